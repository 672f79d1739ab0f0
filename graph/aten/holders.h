// graph/aten/holders.h — which nodes of eager's graph hold something for a backward, seen while torch's engine runs
// over a recording.
//
// What a node reads while it runs is what it holds. But here, a node that leads to no gradient does not run, and the
// node before it computes no gradient for it. In eager, both do: views that were made without grad mode lead to such
// nodes. So these nodes are also run with an undefined gradient. Then a node computes nothing, but still unpacks what
// it holds, and its errors show what that is.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/aten/formulas.h"
#include "graph/aten/recorder.h"
#include "graph/joint.h"

namespace framejit::graph {

using HistoryReached = std::vector<std::set<const torch::autograd::Node*>>;  // per root: what its backward may run

bool is_of_written(std::string_view text);  // what torch says of a held value that was written since

class HolderNotes {
 public:
  // leaves: where the backward ends. The recorder and `reached` must stay.
  HolderNotes(const Recorder& recorder, const HistoryReached& reached, const std::vector<at::Tensor>& leaves);
  // The name of a node that holds what was written since. torch's error names sizes, which vary.
  std::optional<std::string> holds_written() const;
  // Call it before the engine runs, inside of a RecordScope. Inputs may be undefined.
  void look_into_ends(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs);
  // The same, before look_into_ends(): what eager says if the program writes to one of them.
  void look_into_views(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs);
  // After the engine has run. leaf_of: per gradient.
  std::vector<Holder> of(const std::vector<size_t>& leaf_of);

 private:
  using Node = torch::autograd::Node;
  struct Run {
    Node* node;
    size_t first_op;
  };
  void find_leaves(const std::vector<at::Tensor>& leaves);
  std::vector<Node*> with_ends() const;
  static std::vector<Saved> versions_of(Node& node, const std::vector<at::Tensor>& inputs,
                                        const std::vector<at::Tensor>& outputs);
  void add_end(Node& node);
  std::vector<bool> roots_of(const Node& node) const;

  const Recorder& recorder_;
  const HistoryReached& reached_;
  std::map<const Node*, std::vector<bool>> leaves_reached_;
  std::vector<Formulas::Node> held_;  // the node of a write frees the one that it runs, and what only that one leads to
  std::vector<Run> runs_;
  std::map<const Node*, std::vector<std::pair<Saved, std::string>>> write_errors_;
  std::map<const Node*, std::vector<Saved>> versions_;  // by nodes at the ends
  std::vector<std::pair<uint64_t, Holder>> ends_;  // with their place in the engine's queue
};

}  // namespace framejit::graph
