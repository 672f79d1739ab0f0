// runtime/aten/passing_nodes.h — nodes of torch's autograd graph that pass gradients on unchanged.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/aten/torch_version.h"

namespace framejit::runtime {

// Passes gradients on: the first to its target, the others to the next such node. So they arrive one after the other,
// in eager's order.
class Deliver final : public torch::autograd::Node {
 public:
  std::string name() const override { return "CompiledBackward"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
};

// The history of one output among several.
class OneOutput final : public torch::autograd::Node {
 public:
  void set_name(std::string name) { name_ = std::move(name); }
  std::string name() const override { return name_; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }

 private:
  std::string name_;
};

// An edge to each gradient's target. Each one but the first leads through the nodes of the gradients before it.
inline std::vector<torch::autograd::Edge> chained(std::vector<torch::autograd::Edge> edges,
                                                  const std::vector<at::Tensor>& targets) {
  std::vector<torch::autograd::Edge> rest;  // edges to the node of the next gradient
  for (size_t k = edges.size(); k-- > 0;) {
    auto node = make_autograd_node<Deliver>();
    node->add_next_edge(edges[k]);
    for (torch::autograd::Edge& edge : rest) node->add_next_edge(std::move(edge));
    rest.clear();
    for (size_t i = k; i < edges.size(); ++i) rest.emplace_back(node, node->add_input_metadata(targets[i]));
  }
  return rest;
}

}  // namespace framejit::runtime
