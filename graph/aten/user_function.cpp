#include "graph/aten/user_function.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <unordered_set>

#include "graph/aten/torch_values.h"
#include "graph/node_values.h"
#include "graph/op_lists.h"

namespace framejit::graph {
namespace {

using torch::autograd::variable_list;

std::unordered_set<at::TensorImpl*> impls_of(const std::vector<at::Tensor>& tensors) {
  std::unordered_set<at::TensorImpl*> impls;
  for (const at::Tensor& tensor : tensors) impls.insert(tensor.unsafeGetTensorImpl());
  return impls;
}

// What the recorded ops of a backward read and write, by the memory that they touch.
class BackwardOps {
 public:
  BackwardOps(const Graph& graph, size_t first, size_t end) : graph_(graph), first_(first), end_(end) {
    for (size_t n = first; n < end; ++n)
      for (ValueId v : graph.nodes[n].results)
        if (v != kNoValue) made_.insert(storage_of(v));
    for (const ValueInfo& value : graph.values)
      if (value.node < static_cast<int32_t>(first)) made_.erase(value.storage);
  }

  void add_gradient(ValueId stand_in) { depends_.insert(storage_of(stand_in)); }
  // Values that may be read: those in this memory.
  void allow(uint32_t storage) { allowed_.insert(storage); }

  std::optional<std::string> problem() {
    for (size_t n = first_; n < end_; ++n) {
      const Node& node = graph_.nodes[n];
      if (node.op->has(kRandom)) return "draws random numbers: draw them in forward(), and save them";
      for (int8_t i : node.op->write_args)
        if (!all_in(made_, node.args[static_cast<size_t>(i)]))
          return "writes to a tensor that it is given: write to a copy of it";
      for (const Arg& arg : node.args)
        if (!may_read(arg))
          return "reads a tensor that is not saved, or was not made in forward() for it: use ctx.save_for_backward()";
      follow(node);
    }
    return std::nullopt;
  }
  bool may_read(ValueId v) const {
    return is_made_here(v) || allowed_.contains(storage_of(v)) || depends(v) || is_constant(v);
  }
  bool depends(ValueId v) const { return depends_.contains(storage_of(v)); }
  bool is_linear() const { return is_linear_; }

 private:
  uint32_t storage_of(ValueId v) const { return graph_.values[index_of(v)].storage; }
  bool is_made_here(ValueId v) const { return graph_.values[index_of(v)].node >= static_cast<int32_t>(first_); }
  bool is_constant(ValueId v) const {
    return std::find(graph_.constants.begin(), graph_.constants.end(), v) != graph_.constants.end();
  }

  template <class Set>
  bool all_in(const Set& set, const Arg& arg) const {
    bool all = true;
    for_each_value(arg, [&](ValueId v) { all = all && (v == kNoValue || set.contains(storage_of(v))); });
    return all;
  }
  bool may_read(const Arg& arg) const {
    bool all = true;
    for_each_value(arg, [&](ValueId v) { all = all && (v == kNoValue || may_read(v)); });
    return all;
  }

  void follow(const Node& node) {
    size_t dependent = 0, others = 0;
    for_each_value(node, [&](ValueId v) {
      if (v != kNoValue) ++(depends_.contains(storage_of(v)) ? dependent : others);
    });
    if (dependent == 0) return;
    for (ValueId v : node.results)
      if (v != kNoValue) depends_.insert(storage_of(v));
    is_linear_ = is_linear_ && is_linear_op(node, dependent, others);
  }

  bool is_linear_op(const Node& node, size_t dependent, size_t others) const {
    const std::string& name = node.op->functional.empty() ? node.op->name : node.op->functional;
    if (is_in(OpList::linear_selections, name))
      return std::all_of(node.args.begin(), node.args.end(),
                         [&](const Arg& arg) { return is_mask(arg) || is_zero(arg) || depends(arg); });
    if (node.op->has(kView) || is_in(OpList::linear_jointly, name))
      return others == 0 && !(node.op->has(kTakesAlpha) && is_number(node.args[1]));
    if (is_in(OpList::linear_in_each, name)) return dependent == 1;
    return is_in(OpList::linear_in_first, name) && dependent == 1 && depends(node.args[0]);
  }
  bool depends(const Arg& arg) const {
    const ValueId* v = arg.get<ValueId>();
    return v != nullptr && *v != kNoValue && depends(*v);
  }
  bool is_mask(const Arg& arg) const {
    const ValueId* v = arg.get<ValueId>();
    return v != nullptr && *v != kNoValue && !depends(*v) && graph_.meta(*v).dtype == DType::kBool;
  }
  static bool is_number(const Arg& arg) { return arg.get<double>() != nullptr || arg.get<SymExpr>() != nullptr; }
  static bool is_zero(const Arg& arg) {
    const double* number = arg.get<double>();
    const SymExpr* integer = arg.get<SymExpr>();
    return number != nullptr ? *number == 0 : integer != nullptr && integer->as_constant() == 0;
  }

  const Graph& graph_;
  const size_t first_, end_;
  std::set<uint32_t> made_, allowed_, depends_;
  bool is_linear_ = true;
};

}  // namespace

UserFunction::Tensors UserFunction::wrap(const std::shared_ptr<Recorder>& recorder, const FunctionForward& forward) {
  recorder_ = recorder;
  name_ = forward.name;
  makes_zeros_ = forward.makes_zeros;
  set_next_edges(torch::autograd::collect_next_edges(forward.inputs));
  const auto no_tangents = [](const variable_list&, const variable_list&) -> variable_list {
    throw std::runtime_error("a jvp() while a backward is traced");
  };
  const auto self = getptr();
  // The version rises once more than the function writes, because torch's wrapper marks the tensor dirty
  // (python_function.cpp, _mark_dirty).
  for (const at::Tensor& tensor : forward.dirty) torch::autograd::impl::bump_version(tensor);
  Tensors outputs = torch::autograd::_wrap_outputs(
      forward.inputs, impls_of(forward.not_differentiable), impls_of(forward.dirty), forward.outputs, self, no_tangents,
      forward.saves_after ? impls_of(forward.saved) : std::unordered_set<at::TensorImpl*>(),
      [](const at::Tensor& x) { return x.view_as(x); }, /*pure_view=*/false);
  for (const at::Tensor& tensor : forward.saved) saved_.emplace_back(tensor, tensor.grad_fn() == self);
  const c10::AutoGradMode as_in_a_backward(false);
  for (const auto& output : outputs) add_stand_in(output);
  first_node_ = recorder_->graph().nodes.size();
  return outputs;
}

// The stand-in is written, so that its contents do not count as known.
void UserFunction::add_stand_in(const std::optional<at::Tensor>& output) {
  const bool is_differentiable = output && output->requires_grad();
  differentiable_ += is_differentiable ? 1 : 0;
  stand_ins_.emplace_back();
  if (output && (makes_zeros_ || is_differentiable)) stand_ins_.back() = at::empty_like(output->detach()).zero_();
}

std::optional<std::string> UserFunction::take_backward(const FunctionForward& forward,
                                                       const std::vector<at::Tensor>& gradients,
                                                       const std::vector<at::Tensor>& numbers) {
  const Graph& graph = recorder_->graph();
  end_node_ = graph.nodes.size();
  BackwardOps ops(graph, first_node_, end_node_);
  const auto storage_of = [&](const at::Tensor& tensor) {
    return graph.values[index_of(recorder_->value_of(tensor))].storage;
  };
  // Nobody else can write to a tensor that forward() made and does not return.
  std::set<uint32_t> shared;
  for (size_t v = 0; v < forward.first_value; ++v) shared.insert(graph.values[v].storage);
  for (const auto& output : forward.outputs)
    if (output) shared.insert(storage_of(*output));
  for (size_t n = forward.first_node; n < first_node_; ++n)
    for (ValueId v : graph.nodes[n].results)
      if (v != kNoValue && !shared.contains(graph.values[index_of(v)].storage))
        ops.allow(graph.values[index_of(v)].storage);
  for (const auto* tensors : {&forward.saved, &numbers})
    for (const at::Tensor& tensor : *tensors) ops.allow(storage_of(tensor));
  for (const auto& stand_in : stand_ins_)
    if (stand_in) ops.add_gradient(recorder_->value_of(*stand_in));
  if (auto problem = ops.problem()) return problem;
  is_linear_ = ops.is_linear();
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    const ValueId value = recorder_->value_of(gradient);
    if (!ops.may_read(value)) return "returns a tensor that is not saved: use ctx.save_for_backward()";
    if (!ops.depends(value)) has_own_gradients_ = true, is_linear_ = false;
  }
  gradients_ = gradients;
  return std::nullopt;
}

// Lays out a gradient like its stand-in: the trace relies on the stand-in's sizes, strides and offset.
at::Tensor UserFunction::as_stand_in(const at::Tensor& gradient, const at::Tensor& stand_in) const {
  const Graph& graph = recorder_->graph();
  const TensorMeta meta = graph.meta(recorder_->value_of(stand_in));
  if (gradient.defined()) {
    const TensorMeta& given = graph.meta(recorder_->value_of(gradient));
    if (given.sizes == meta.sizes && given.strides == meta.strides && given.offset == meta.offset &&
        given.dtype == meta.dtype)
      return gradient;
  }
  const at::Tensor made = at::empty_strided_symint(sym_ints_of(meta.sizes, recorder_),
                                                   sym_ints_of(meta.strides, recorder_), stand_in.options());
  return gradient.defined() ? made.copy_(gradient) : made.zero_();
}

variable_list UserFunction::apply(variable_list&& gradients) {
  if (c10::GradMode::is_enabled())
    recorder_->fail(
        {Reason::custom_dispatch, "autograd.Function " + name_ + ", whose gradient is differentiated again,"});
  for (const auto& saved : saved_) saved.unpack(getptr());
  std::vector<std::pair<at::Tensor, at::Tensor>> known;
  for (size_t i = 0; i < stand_ins_.size(); ++i) {
    const bool is_given = i < gradients.size() && gradients[i].defined();
    if (!stand_ins_[i]) continue;
    if (!is_given && !makes_zeros_)
      recorder_->fail(
          {Reason::custom_dispatch, "autograd.Function " + name_ + ", some of whose outputs get no gradient,"});
    known.emplace_back(*stand_ins_[i], as_stand_in(is_given ? gradients[i] : at::Tensor(), *stand_ins_[i]));
  }
  return recorder_->repeat(first_node_, end_node_, known, gradients_);
}

void UserFunction::release_variables() {
  for (auto& saved : saved_) saved.reset_data();
}

void ReachedFunctions::note(uint32_t root, const torch::autograd::Node& node) {
  if (const auto* function = dynamic_cast<const UserFunction*>(&node)) roots_of_[function].push_back(root);
}

Result<void> ReachedFunctions::verify(const JointLayout& layout) const {
  if (layout.roots.size() < 2) return {};
  for (const auto& [function, roots] : roots_of_) {
    const auto in_one_group = [&](uint32_t r) { return layout.groups[r] == layout.groups[roots[0]]; };
    const bool in_one_run = function->is_linear() || std::all_of(roots.begin(), roots.end(), in_one_group);
    if (function->has_own_gradients() || !in_one_run || (roots.size() > 1 && function->tells_outputs_apart()))
      return Error{Reason::no_backward,
                   "autograd.Function " + function->name() +
                       ", whose backward() gives a different result if only some outputs have gradients"};
  }
  return {};
}

}  // namespace framejit::graph
