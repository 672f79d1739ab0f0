// graph/joint.h — a joint graph, which is a forward and its backward in one, and the two graphs that it is cut into.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace framejit::graph {

// How a joint graph reads. Inputs: those of the forward, then one tangent per entry of `tangents`. Outputs: those of the
// forward, then the gradients that exist.
struct JointLayout {
  size_t forward_inputs = 0, forward_outputs = 0, forward_nodes = 0;  // nodes: as they were recorded
  std::vector<uint32_t> tangents;        // which forward output each tangent belongs to
  std::vector<int32_t> gradient_output;  // per forward input: the output that is its gradient; -1: it gets none
  // Whether eager's formulas keep the memory of a forward input or output for the backward. They check its version
  // then, so a program that writes it meanwhile is told. What they do not keep, a program may write.
  std::vector<bool> keeps_input, keeps_output;
  std::vector<std::string> root_names;   // per tangent: what eager calls the node that made the output
  std::vector<uint32_t> delivery;        // the inputs that get gradients, as eager's backward would give them; empty: in order
  // Per pair of tangents (the first times the number of tangents, plus the second): whether a formula that runs for both
  // keeps something. Eager frees it in the first backward, so that a second one misses it.
  std::vector<bool> conflicts;
};

// A value that the backward reads: an input or output of the forward, or one that the forward makes for it.
struct Saved {
  enum Of : uint8_t { kInput, kOutput, kValue } of = kValue;
  uint32_t index = 0;  // of the input or output; kValue: among the values saved
  bool operator==(const Saved&) const = default;
};

struct TrainingGraphs {
  Graph forward;   // outputs: those of the program, then the values saved
  Graph backward;  // inputs: what `saved` names, then the tangents; outputs: gradients, as `gradients`
  size_t forward_outputs = 0;        // those of the program
  std::vector<Saved> saved;
  std::vector<uint32_t> tangents;    // which forward output each tangent belongs to
  std::vector<uint32_t> gradients;   // the forward inputs that get one, in the order of delivery
  std::vector<uint32_t> kept_inputs, kept_outputs;  // whose versions eager checks in the backward
  std::vector<bool> conflicts;       // as in JointLayout
  std::vector<std::vector<bool>> readers;  // per value in `saved`, per tangent: whether what it leads to reads the value
  std::vector<std::string> root_names;     // per tangent: what eager calls the node that made the output
  bool draws = false;  // random numbers
  std::shared_ptr<const Graph> recorded;  // the joint graph before any pass
  std::vector<uint32_t> gradient_outputs;  // per entry of `gradients`: which output of `recorded` it is
};

}  // namespace framejit::graph
