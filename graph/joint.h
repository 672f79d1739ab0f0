// graph/joint.h — a joint graph, which is a forward and its backward in one, and the two graphs that it is cut into.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace framejit::graph {

// What a gradient is for: an input of the forward, or a root, which is an output with a history. A root has a gradient
// if another root is computed from it. Eager adds it to the root's tangent before the root's hooks run.
struct GradientOf {
  enum Of : uint8_t { kInput, kRoot } of = kInput;
  uint32_t index = 0;  // of the input, or among the roots
  bool operator==(const GradientOf&) const = default;
};

// A value that the backward reads: an input or output of the forward, or one that the forward makes for it.
struct Saved {
  enum Of : uint8_t { kInput, kOutput, kValue } of = kValue;
  uint32_t index = 0;  // of the input or output; kValue: among the values saved
  bool operator==(const Saved&) const = default;
};

// A node of eager's graph that holds something for the backward. It runs for a root that is given and a gradient that
// is wanted. As a rule, it checks the versions of what it holds, then frees it, so that a second run raises.
struct Holder {
  std::vector<bool> roots, gradients;  // no gradient at all: it runs in a backward of everything
  std::vector<Saved> versions;         // inputs and outputs of the forward
  // What eager raises after a write to one of several views that one op returned. It is not the error about a version
  // that differs.
  std::vector<std::pair<Saved, std::string>> write_errors;
  size_t first_op = 0, end_op = 0;     // the recorded nodes that it consists of
  bool holds = false;
};

// How a joint graph reads. Inputs: those of the forward, then one tangent per root, which is the whole gradient of that
// output. Outputs: those of the forward, then the gradients, in the order in which eager's engine would give them.
struct JointLayout {
  size_t forward_inputs = 0, forward_outputs = 0, forward_nodes = 0;  // nodes: as they were recorded
  std::vector<uint32_t> roots;  // which forward output each tangent belongs to
  std::vector<GradientOf> gradients;
  // Whether eager's formulas keep the memory of a forward input or output for the backward. They check its version in
  // the backward, so a write in between is an error. The program may write to memory that they do not keep.
  std::vector<bool> keeps_input, keeps_output;
  // Per forward input, and per output: for which roots such a formula runs. A backward of other roots does not check
  // the version.
  std::vector<std::vector<bool>> input_keepers, output_keepers;
  std::vector<std::string> root_names;  // what eager calls the node that made the output
  std::vector<uint32_t> without_history;  // recorded nodes of the forward that ran without grad mode
  std::vector<Holder> holders;  // in the order in which eager's engine would run them
  std::vector<uint32_t> groups;  // per root: roots of a group share formulas, and no group is computed from itself
  // Per root and gradient: whether eager computes the gradient if the root's gradient is given. A gradient of zeros
  // counts, although its value does not depend on the root's.
  std::vector<std::vector<bool>> reaches;
  bool has_functions = false;  // formulas of the program: torch has no derivative of them
};

struct TrainingGraphs {
  Graph forward;  // outputs: those of the program, then the values saved
  Graph backward;  // inputs: what `saved` names, then the tangents; outputs: as `gradients`
  size_t forward_outputs = 0;  // those of the program
  std::vector<Saved> saved;
  std::vector<uint32_t> roots;  // as in JointLayout
  std::vector<GradientOf> gradients;
  std::vector<uint32_t> kept_inputs, kept_outputs;  // whose versions eager checks in the backward
  std::vector<std::vector<bool>> input_keepers, output_keepers;  // per kept tensor, per root: its formulas keep it
  std::vector<Holder> holders;  // as in JointLayout
  // Per value in `saved`: for which tangents, and for which gradients, the backward reads it.
  std::vector<std::vector<bool>> readers, gradient_readers;
  std::vector<std::string> root_names;  // as in JointLayout
  std::vector<uint32_t> groups;
  std::vector<std::vector<bool>> reaches;  // as in JointLayout
  bool draws = false;  // random numbers
  bool has_functions = false;  // as in JointLayout
  bool is_decomposed = false;  // the graphs consist of core ops
  std::shared_ptr<const Graph> recorded;  // the joint graph before any pass
  size_t forward_nodes = 0;  // the first of its nodes, as in JointLayout
  std::vector<uint32_t> without_history;  // of its nodes, as in JointLayout
};

// Fills in what the recorded joint graph shows about its formulas: what they keep, which roots share them, and on which
// roots a gradient depends. Adds to what `reaches` and `holders` already have; removes holders that hold nothing.
void describe_joint(const Graph& recorded, JointLayout& layout);

// Translates the alias of a gradient from the joint graph to the backward, which takes `saved` values and then the
// tangents. A gradient that shares a tangent's memory in eager does so here; any other has memory of its own.
OutputAlias alias_in_backward(OutputAlias in_joint, const JointLayout& layout, size_t saved);

// Per root: whether a formula that runs for it reads this very value of the recorded forward. Formulas that read
// another value in the same memory do not count.
std::vector<bool> roots_that_read(const TrainingGraphs& graphs, ValueId v);

}  // namespace framejit::graph
