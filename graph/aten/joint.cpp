// graph/aten/joint.cpp — hidden leaves, tangents, one run of the autograd engine over traced tensors.
#include "graph/aten/joint.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

#include "runtime/aten/torch_version.h"
#include "graph/node_values.h"
#include "graph/shape_rule.h"

namespace framejit::graph {
namespace {

// What stands between a hidden leaf and the input that the program sees: the identity.
struct InputNode final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
  std::string name() const override { return "FramejitInput"; }
};

// The same value as a tensor without autograd history.
at::Tensor copy_of_value(const at::Tensor& tensor) {
  const TracedTensorImpl* traced = as_traced(tensor);
  at::Tensor copy(traced->shallow_copy_and_detach(c10::VariableVersion(0), true));
  as_traced(copy)->input = traced->input;
  return copy;
}

at::Tensor non_leaf(const at::Tensor& leaf) {
  at::Tensor result = copy_of_value(leaf);
  auto node = runtime::make_autograd_node<InputNode>();
  node->set_next_edges(torch::autograd::collect_next_edges(leaf));
  torch::autograd::set_history(result, node);
  return result;
}

// Whether autograd runs on this thread alone is of no matter to eager, but the recorder is used by one thread at a
// time.
class OnThisThread {
 public:
  OnThisThread() : outer_(c10::AutogradState::get_tls_state()) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~OnThisThread() { c10::AutogradState::set_tls_state(outer_); }
  OnThisThread(const OnThisThread&) = delete;

 private:
  c10::AutogradState outer_;
};

}  // namespace

at::Tensor JointRecording::add_input(const at::Tensor& real, const std::string& source,
                                     const DynamicExtents& dynamic) {
  at::Tensor traced = recorder_->add_input(real, source, dynamic);
  leaves_.resize(recorder_->input_count());
  visible_.resize(recorder_->input_count());
  visible_.back() = traced;
  if (!real.requires_grad()) return traced;
  leaves_.back() = traced;
  if (!real.is_leaf()) visible_.back() = non_leaf(traced);
  return visible_.back();
}

bool JointRecording::has_new_history(size_t input) const {
  if (input >= visible_.size() || !visible_[input].defined()) return false;
  const auto& node = visible_[input].grad_fn();
  return node != nullptr && dynamic_cast<const InputNode*>(node.get()) == nullptr;
}

// What a formula reads of the forward is what eager's node has saved: the recording shows it op by op.
void JointRecording::find_kept(JointGraph& joint) const {
  const Graph& graph = joint.graph;
  JointLayout& layout = joint.layout;
  const size_t tangents = layout.tangents.size();
  std::vector<std::vector<bool>> depends(graph.values.size());  // on which tangents; empty: it is the forward's
  for (size_t t = 0; t < tangents; ++t) {
    depends[index_of(graph.inputs[layout.forward_inputs + t])].resize(tangents);
    depends[index_of(graph.inputs[layout.forward_inputs + t])][t] = true;
  }
  std::vector<bool> kept(graph.values.size());
  layout.conflicts.resize(tangents * tangents);
  for (size_t i = layout.forward_nodes; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    std::vector<bool> on(tangents);
    bool keeps = false;
    for_each_value(node, [&](ValueId v) {
      if (v == kNoValue) return;
      const std::vector<bool>& theirs = depends[index_of(v)];
      const int32_t producer = graph.values[index_of(v)].node;
      if (theirs.empty() && producer < static_cast<int32_t>(layout.forward_nodes))
        keeps = kept[graph.values[index_of(v)].storage] = true;
      for (size_t t = 0; t < theirs.size(); ++t) on[t] = on[t] || theirs[t];
    });
    for (ValueId v : node.results)
      if (v != kNoValue) depends[index_of(v)] = on;
    for (size_t t = 0; keeps && t < tangents; ++t)
      for (size_t u = 0; u < tangents; ++u)
        if (on[t] && on[u]) layout.conflicts[t * tangents + u] = true;
  }
  const auto is_kept = [&](ValueId v) { return v != kNoValue && kept[graph.values[index_of(v)].storage]; };
  for (size_t i = 0; i < layout.forward_inputs; ++i) layout.keeps_input.push_back(is_kept(graph.inputs[i]));
  for (size_t i = 0; i < layout.forward_outputs; ++i) layout.keeps_output.push_back(is_kept(graph.outputs[i]));
}

at::Tensor JointRecording::add_tangent(const at::Tensor& output, size_t index) {
  const OpDef* empty_like = find_op("empty_like");
  std::vector<TensorMeta> metas;
  FJ_CHECK(empty_like != nullptr, "no row for empty_like");
  const std::vector<Arg> args{Arg(recorder_->value_of(output))};
  FJ_CHECK(infer_metas(*empty_like, args, recorder_->graph().values, recorder_->shapes(), metas),
           "empty_like refuses an output");
  return recorder_->add_input(std::move(metas[0]), "tangent of output " + std::to_string(index));
}

std::vector<at::Tensor> JointRecording::run_backward(const std::vector<at::Tensor>& roots,
                                                     const std::vector<at::Tensor>& tangents,
                                                     std::vector<uint32_t>& order) const {
  std::vector<at::Tensor> wanted;
  for (uint32_t i = 0; i < leaves_.size(); ++i) {
    if (!leaves_[i].defined()) continue;
    wanted.push_back(leaves_[i]);
    leaves_[i].register_hook([&order, i](const at::Tensor&) { order.push_back(i); });
  }
  std::vector<at::Tensor> found(wanted.size());
  if (!roots.empty() && !wanted.empty()) {
    RecordScope scope(*recorder_);
    ForwardScope views_by_op;  // a backward may write to views of what it made
    OnThisThread alone;
    // Eager's backward runs outside of the autocast region, as a rule.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    recorder_->set_line({});
    try {
      found = torch::autograd::grad(roots, wanted, tangents, /*retain_graph=*/false, /*create_graph=*/false,
                                    /*allow_unused=*/true);
    } catch (...) {
      scope.drop();
      throw;
    }
  }
  std::vector<at::Tensor> gradients(recorder_->input_count());
  for (size_t i = 0, next = 0; i < leaves_.size(); ++i)
    if (leaves_[i].defined()) gradients[i] = found[next++];
  return gradients;
}

Result<JointGraph> JointRecording::finish(const std::vector<at::Tensor>& outputs, const std::vector<bool>& is_root) {
  for (const at::Tensor& constant : recorder_->constants())
    if (constant.requires_grad())
      return Error{Reason::unsupported_tensor, "a captured tensor that needs a gradient but is no input"};
  JointGraph joint;
  JointLayout& layout = joint.layout;
  layout.forward_inputs = recorder_->input_count();
  layout.forward_outputs = outputs.size();
  layout.forward_nodes = recorder_->graph().nodes.size();
  std::vector<at::Tensor> roots, tangents, results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (as_traced(outputs[i]) == nullptr)
      return Error{Reason::recording_failed, "an output is not a tensor of this capture"};
    if (is_root.empty() ? outputs[i].requires_grad() : is_root[i]) {
      roots.push_back(outputs[i]);
      tangents.push_back(add_tangent(outputs[i], i));
      layout.tangents.push_back(static_cast<uint32_t>(i));
      layout.root_names.push_back(outputs[i].grad_fn()->name());
    }
    results.push_back(copy_of_value(outputs[i]));
  }
  std::vector<at::Tensor> gradients = run_backward(roots, tangents, layout.delivery);
  gradients.resize(layout.forward_inputs);
  for (const at::Tensor& gradient : gradients) {
    layout.gradient_output.push_back(gradient.defined() ? static_cast<int32_t>(results.size()) : -1);
    if (gradient.defined()) results.push_back(gradient);
  }
  FJ_TRY_VOID(recorder_->finish(results));
  joint.graph = recorder_->graph();
  find_kept(joint);
  return joint;
}

}  // namespace framejit::graph
