// graph/aten/formulas.h — derivative formulas of ours, in place of torch's that read data.
//
// Some of torch's formulas read a number (are there zeros?) to choose one of two computations. A recording has no data.
// Ours compute the same values with masks.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <map>

namespace framejit::graph {

// The formulas of one recording.
class Formulas {
 public:
  using Node = decltype(torch::autograd::Edge::function);  // as torch holds it

  // Puts nodes with our formulas in place of torch's, in `edges` and in the history that they lead to. Nobody else may
  // hold nodes of that history. Records ops whose results nothing reads.
  void replace(torch::autograd::edge_list& edges);
  // The node with our formula, or the node itself.
  Node in_place_of(const Node& torchs) const;

 private:
  void replace(Node& node);

  std::map<const void*, Node> ours_;  // a node of ours keeps torch's alive
};

// Whether the node may have saved a number of the program, as those of products and quotients do.
bool keeps_number(const torch::autograd::Node& node);
// Whether it made several views in one call.
bool made_views(const torch::autograd::Node& node);

}  // namespace framejit::graph
