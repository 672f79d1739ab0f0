#include "graph/aten/holders.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "graph/aten/formulas.h"
#include "graph/aten/torch_texts.h"
#include "graph/aten/traced_tensor.h"
#include "graph/aten/user_function.h"
#include "runtime/aten/saved_for_backward.h"
#include "runtime/aten/torch_words.h"

namespace framejit::graph {
namespace {

using runtime::has_any;
using torch::autograd::variable_list;

// Makes a call when the engine comes to a node.
class AtNode final : public torch::autograd::FunctionPreHook {
 public:
  explicit AtNode(std::function<void()> call) : call_(std::move(call)) {}
  variable_list operator()(const variable_list& gradients) override {
    call_();
    return gradients;
  }

 private:
  std::function<void()> call_;
};

std::optional<std::string> error_of(torch::autograd::Node& node) {
  const SymbolsStay stay;
  try {
    (void)node(variable_list(node.num_inputs()));
    return std::nullopt;
  } catch (const std::exception& e) { return runtime::torch_words(e); }
}

bool errs(torch::autograd::Node& node) { return error_of(node).has_value(); }

// What the node would raise if the program had written to the tensor.
std::optional<std::string> error_after_write(torch::autograd::Node& node, const at::Tensor& tensor) {
  c10::VariableVersion counter = tensor.unsafeGetTensorImpl()->version_counter();
  if (!counter.enabled()) return std::nullopt;
  const auto version = counter.current_version();
  counter.set_version(version + 1);
  const std::optional<std::string> found = error_of(node);
  counter.set_version(version);
  return found;
}

// A view that is asked for its history after a write makes a new history. The destructor restores the old ones.
class HistoriesOfViews {
 public:
  explicit HistoriesOfViews(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors)
      if (auto* meta = tensor.defined() ? torch::autograd::impl::get_view_autograd_meta(tensor) : nullptr;
          meta != nullptr && meta->has_bw_view())
        metas_.emplace_back(meta, meta->grad_fn_, meta->get_attr_version());
  }
  ~HistoriesOfViews() {
    for (const auto& [meta, history, version] : metas_) {
      meta->grad_fn_ = history;
      meta->set_attr_version(version);
    }
  }
  HistoriesOfViews(const HistoriesOfViews&) = delete;

 private:
  using Meta = torch::autograd::DifferentiableViewMeta;
  std::vector<std::tuple<Meta*, decltype(Meta::grad_fn_), uint32_t>> metas_;
};

// Whether views show parts of a value's memory. These ops make such views, in whatever call of the program.
bool shows_parts(const Graph& graph, ValueId of) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const graph::Node& node) {
    const bool makes_several = node.op->has(kView) && node.results.size() > 1;
    return (makes_several || node.op->is(KnownOp::slice_tensor) || node.op->is(KnownOp::select_int)) &&
           graph.values[index_of(*node.args[0].get<ValueId>())].storage == graph.values[index_of(of)].storage;
  });
}

bool is_formula(const torch::autograd::Node& node) {
  return dynamic_cast<const torch::autograd::AccumulateGrad*>(&node) == nullptr &&
         dynamic_cast<const UserFunction*>(&node) == nullptr;
}

const torch::autograd::CopySlices* as_write(const torch::autograd::Node* node) {
  return dynamic_cast<const torch::autograd::CopySlices*>(node);
}

}  // namespace

HolderNotes::HolderNotes(const Recorder& recorder, const HistoryReached& reached, const std::vector<at::Tensor>& leaves)
    : recorder_(recorder), reached_(reached) {
  find_leaves(leaves);
  for (const auto& [node, reached] : leaves_reached_)  // only this recording owns the nodes
    if (has_any(reached))
      const_cast<Node*>(node)->add_pre_hook(std::make_unique<AtNode>(
          [this, at = const_cast<Node*>(node)] { runs_.push_back({at, recorder_.graph().nodes.size()}); }));
}

bool is_of_written(std::string_view text) {
  return has_torch_text(TorchText::written_since, text) || has_torch_text(TorchText::traced_limit, text);
}

std::optional<std::string> HolderNotes::holds_written() const {
  for (const auto& [node, reached] : leaves_reached_)
    if (is_formula(*node) && as_write(node) == nullptr)
      if (const auto text = error_of(const_cast<Node&>(*node)); text && is_of_written(*text)) return node->name();
  return std::nullopt;
}

void HolderNotes::find_leaves(const std::vector<at::Tensor>& leaves) {
  std::set<const Node*> all;
  for (const auto& nodes : reached_) all.insert(nodes.begin(), nodes.end());
  std::vector<const Node*> from_leaves(all.begin(), all.end());
  std::stable_sort(from_leaves.begin(), from_leaves.end(),
                   [](const Node* a, const Node* b) { return a->topological_nr() < b->topological_nr(); });
  for (const Node* node : all) held_.push_back(const_cast<Node*>(node)->getptr());
  std::map<const Node*, size_t> index;
  for (size_t i = 0; i < leaves.size(); ++i) index[torch::autograd::impl::grad_accumulator(leaves[i]).get()] = i;
  for (const Node* node : from_leaves) {
    std::vector<bool>& reached = leaves_reached_[node];
    reached.resize(leaves.size());
    if (const auto at = index.find(node); at != index.end()) reached[at->second] = true;
    for (const torch::autograd::Edge& edge : node->next_edges())
      if (const auto at = leaves_reached_.find(edge.function.get()); at != leaves_reached_.end())
        for (size_t i = 0; i < leaves.size(); ++i) reached[i] = reached[i] || at->second[i];
  }
}

// Nodes that lead to no leaf, and those that pass a gradient on to such a node.
std::vector<torch::autograd::Node*> HolderNotes::with_ends() const {
  const auto is_end = [&](const Node* node) {
    const auto at = leaves_reached_.find(node);
    return at != leaves_reached_.end() && !has_any(at->second);
  };
  std::set<const Node*> run_by_others;
  for (const auto& [node, reached] : leaves_reached_)
    if (const auto* write = as_write(node); write != nullptr && has_any(reached)) run_by_others.insert(write->fn.get());
  std::vector<Node*> found;
  for (const auto& [node, reached] : leaves_reached_) {
    const bool leads_to_end =
        std::any_of(node->next_edges().begin(), node->next_edges().end(),
                    [&](const torch::autograd::Edge& edge) { return is_end(edge.function.get()); });
    if ((leads_to_end || is_end(node)) && !run_by_others.contains(node))
      found.push_back(const_cast<Node*>(node));
  }
  return found;
}

void HolderNotes::look_into_ends(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
  for (Node* const node : with_ends()) {
    if (!is_formula(*node)) continue;
    const bool is_end = !has_any(leaves_reached_.at(node));
    if (as_write(node) == nullptr) versions_[node] = versions_of(*node, inputs, outputs);
    if (is_end) add_end(*node);
  }
  std::stable_sort(ends_.begin(), ends_.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
}

void HolderNotes::look_into_views(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
  if (std::none_of(leaves_reached_.begin(), leaves_reached_.end(),
                   [](const auto& reached) { return made_views(*reached.first); }))
    return;
  const HistoriesOfViews of_inputs(inputs), of_outputs(outputs);
  for (const auto& [of, tensors] : {std::pair(Saved::kInput, &inputs), {Saved::kOutput, &outputs}})
    for (uint32_t i = 0; i < tensors->size(); ++i) {
      const at::Tensor& tensor = (*tensors)[i];
      if (!tensor.defined() || !tensor.requires_grad() || as_traced(tensor) == nullptr ||
          !shows_parts(recorder_.graph(), as_traced(tensor)->value))
        continue;
      for (const auto& [node, reached] : leaves_reached_)
        if (has_any(reached) && is_formula(*node) && as_write(node) == nullptr)
          if (auto text = error_after_write(const_cast<Node&>(*node), tensor);
              text && has_torch_text(TorchText::written_views, *text))
            write_errors_[node].emplace_back(Saved{of, i}, std::move(*text));
    }
}

// The inputs and outputs that the node holds: it raises after a write to them. Throws what the node throws if nothing
// was written after the forward.
std::vector<Saved> HolderNotes::versions_of(Node& node, const std::vector<at::Tensor>& inputs,
                                            const std::vector<at::Tensor>& outputs) {
  const SymbolsStay stay;
  (void)node(variable_list(node.num_inputs()));
  std::vector<Saved> versions;
  for (const auto& [of, tensors] : {std::pair(Saved::kInput, &inputs), {Saved::kOutput, &outputs}})
    for (uint32_t i = 0; i < tensors->size(); ++i)
      if ((*tensors)[i].defined() && error_after_write(node, (*tensors)[i])) versions.push_back({of, i});
  return versions;
}

void HolderNotes::add_end(Node& node) {
  Holder holder;
  holder.roots = roots_of(node);
  holder.versions = versions_[&node];
  node.release_variables();
  holder.holds = as_write(&node) != nullptr || errs(node);  // the node of a write frees the node that it runs
  ends_.emplace_back(node.sequence_nr(), std::move(holder));
}

std::vector<bool> HolderNotes::roots_of(const Node& node) const {
  std::vector<bool> roots;
  for (const auto& nodes : reached_) roots.push_back(nodes.contains(&node));
  return roots;
}

std::vector<Holder> HolderNotes::of(const std::vector<size_t>& leaf_of) {
  std::vector<Holder> holders;
  auto end = ends_.begin();
  const auto take_end = [&] {
    holders.push_back((end++)->second);
    holders.back().gradients.resize(leaf_of.size());
  };
  for (size_t i = 0; i < runs_.size(); ++i) {
    const auto [node, first_op] = runs_[i];
    while (end != ends_.end() && end->first > node->sequence_nr()) take_end();
    Holder holder;
    holder.roots = roots_of(*node);
    for (size_t leaf : leaf_of) holder.gradients.push_back(leaves_reached_.at(node)[leaf]);
    if (const auto at = write_errors_.find(node); at != write_errors_.end()) holder.write_errors = at->second;
    holder.first_op = first_op;
    holder.end_op = i + 1 < runs_.size() ? runs_[i + 1].first_op : recorder_.graph().nodes.size();
    if (const auto at = versions_.find(node); at != versions_.end()) {
      holder.versions = at->second;
      holder.holds = errs(*node);  // the engine has freed it
    }
    holder.holds = holder.holds || keeps_number(*node);
    holders.push_back(std::move(holder));
  }
  while (end != ends_.end()) take_end();
  return holders;
}

}  // namespace framejit::graph
