// tests/golden/partition_cases.cpp — folder partition: joint graphs and what they are cut into.
//
// Names say what is what: inputs named tangent_... are tangents of the outputs, in their order; an input named kept_...
// is one that eager holds for the backward. Outputs that depend on tangents are gradients of the inputs, in their
// order. "run: partition" prints the forward, what is saved and the backward; "run: partition given 01 wanted 110" the
// backward for some of the tangents and gradients; "run: partition budget 0" recomputes everything that it may.
#include <gtest/gtest.h>

#include <sstream>

#include "graph/node_values.h"
#include "graph/passes/partition.h"
#include "tests/golden/golden.h"
#include "tests/parsers/graph_parser.h"

namespace framejit::graph {
namespace {

bool has_prefix(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

JointLayout layout_of(const Graph& joint) {
  JointLayout layout;
  std::vector<bool> depends(joint.values.size());
  for (size_t i = 0; i < joint.inputs.size(); ++i) {
    if (has_prefix(joint.input_names[i], "tangent_")) {
      layout.roots.push_back(static_cast<uint32_t>(layout.roots.size()));
      depends[index_of(joint.inputs[i])] = true;
    } else {
      ++layout.forward_inputs;
      layout.keeps_input.push_back(has_prefix(joint.input_names[i], "kept_"));
    }
  }
  for (const Node& node : joint.nodes) {
    bool any = false;
    for_each_value(node, [&](ValueId v) { any = any || (v != kNoValue && depends[index_of(v)]); });
    for (ValueId v : node.results)
      if (v != kNoValue) depends[index_of(v)] = any;
  }
  while (layout.forward_outputs < joint.outputs.size() && !depends[index_of(joint.outputs[layout.forward_outputs])])
    ++layout.forward_outputs;
  for (uint32_t i = 0; layout.forward_outputs + i < joint.outputs.size(); ++i)
    layout.gradients.push_back({GradientOf::kInput, i});
  layout.groups.assign(layout.roots.size(), 0);
  layout.keeps_output.assign(layout.forward_outputs, false);
  return layout;
}

std::vector<bool> flags_of(const std::string& text) {
  std::vector<bool> flags;
  for (char c : text) flags.push_back(c == '1');
  return flags;
}

std::string text_of(const TrainingGraphs& graphs) {
  static constexpr const char* kWords[] = {"input ", "output ", "value "};
  std::string text = print(graphs.forward);
  for (const Saved& saved : graphs.saved) text += "saved " + (kWords[saved.of] + std::to_string(saved.index)) + "\n";
  return text + print(graphs.backward);
}

Result<std::string> run(const golden::Case& c) {
  FJ_TRY(const Graph joint, parse_graph(c.in));
  FJ_TRY_VOID(verify(joint));
  std::string word, given, wanted;
  int64_t budget = 100;
  std::istringstream words(c.stages.at(0));
  for (words >> word; words >> word;) {
    if (word == "given") words >> given;
    if (word == "wanted") words >> wanted;
    if (word == "budget") words >> budget;
  }
  FJ_TRY(const TrainingGraphs graphs, partition(joint, layout_of(joint), budget));
  FJ_TRY_VOID(verify(graphs.forward));
  FJ_TRY_VOID(verify(graphs.backward));
  if (given.empty()) return text_of(graphs);
  FJ_TRY(const Graph partial, partial_backward(graphs, flags_of(given), flags_of(wanted)));
  FJ_TRY_VOID(verify(partial));
  return print(partial);
}

const golden::Folder kFolder("partition", run);

}  // namespace
}  // namespace framejit::graph
