// runtime/aten/history_walk.h — finds the nodes that a backward from given nodes may run.
//
// Both walks return the nodes that they met, each once, in that order. A null node leads nowhere.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <set>
#include <utility>
#include <vector>

namespace framejit::runtime {

using HistoryNodes = std::vector<const torch::autograd::Node*>;

// visit(node, open) adds to `open` what comes after the node.
template <class Visit>
HistoryNodes walk_nodes(std::vector<torch::autograd::Node*> open, Visit&& visit) {
  HistoryNodes met;
  std::set<const torch::autograd::Node*> seen;
  while (!open.empty()) {
    torch::autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    met.push_back(node);
    visit(*node, open);
  }
  return met;
}

// Walks a history that other threads may use too. follow(edge): whether the walk goes on at the end of the edge.
template <class Follow>
HistoryNodes walk_history(torch::autograd::Node* begin, Follow&& follow) {
  return walk_nodes({begin}, [&](const torch::autograd::Node& node, auto& open) {
    for (const torch::autograd::Edge& edge : node.next_edges())
      if (edge.is_valid() && follow(edge)) open.push_back(edge.function.get());
  });
}

// Walks a history that nobody else knows of: follow() may change the edge. The node of a write to a part of a tensor,
// which CopySlices runs itself, is met too.
template <class Follow>
HistoryNodes walk_own_history(std::vector<torch::autograd::Node*> begin, Follow&& follow) {
  return walk_nodes(std::move(begin), [&](torch::autograd::Node& node, auto& open) {
    const auto go_along = [&](torch::autograd::Edge& edge) {
      if (edge.is_valid() && follow(edge)) open.push_back(edge.function.get());
    };
    for (torch::autograd::Edge& edge : const_cast<torch::autograd::edge_list&>(node.next_edges())) go_along(edge);
    if (auto* const slices = dynamic_cast<torch::autograd::CopySlices*>(&node)) {
      torch::autograd::Edge write(std::move(slices->fn), 0);  // none after a backward that freed it
      go_along(write);
      slices->fn = std::move(write.function);
    }
  });
}

}  // namespace framejit::runtime
