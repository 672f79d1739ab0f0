// frame_hook/aten/output_properties.cpp — reads properties off the traced tensors, and gives them to the outputs of a
// call.
#include "frame_hook/aten/output_properties.h"

#include <ATen/ops/_conj_ops.h>
#include <ATen/ops/_neg_view_ops.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/view_as_complex_ops.h>
#include <ATen/ops/view_as_real_ops.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <utility>

#include "graph/aten/recorder.h"
#include "graph/aten/sym_node.h"
#include "graph/aten/traced_tensor.h"
#include "graph/node_values.h"
#include "runtime/aten/inner_backward.h"
#include "runtime/aten/own_tensor.h"

namespace framejit::frame_hook {
namespace {

using torch::autograd::CreationMeta;
using torch::autograd::DifferentiableViewMeta;

DifferentiableViewMeta* view_meta(const at::Tensor& tensor) {
  DifferentiableViewMeta* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
  return meta != nullptr && meta->has_bw_view() ? meta : nullptr;
}

const c10::VariableVersion& counter_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter();
}

void set_version(const at::Tensor& tensor, int64_t version) {
  c10::VariableVersion counter = counter_of(tensor);
  counter.set_version(version);
}

// A version counter has no identity to ask for: advance one and see whether the other follows.
bool share_counter(const at::Tensor& a, const at::Tensor& b) {
  if (!counter_of(a).enabled() || !counter_of(b).enabled()) return false;
  const int64_t a_version = counter_of(a).current_version(), b_version = counter_of(b).current_version();
  set_version(a, std::max(a_version, b_version) + 1);
  const bool follows = counter_of(b).current_version() != b_version;
  set_version(a, a_version);
  return follows;
}

bool same_storage(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && b.has_storage() &&
         a.unsafeGetTensorImpl()->unsafe_storage().is_alias_of(b.unsafeGetTensorImpl()->unsafe_storage());
}

// Whether the view shows its memory as another kind of number than its base does (complex, conjugated, negated).
// Strides alone cannot make such a view.
bool changes_kind(const at::Tensor& view, const at::Tensor& base) {
  return base.is_complex() != view.is_complex() || base.is_conj() != view.is_conj() || base.is_neg() != view.is_neg();
}

// ------------------------------------------------------------------ properties of traced tensors

// Whether the memory of a view was written after the view was made.
bool is_written_since(const graph::Graph& g, graph::ValueId view) {
  const auto shows_view = [&](graph::ValueId v) {
    return v != graph::kNoValue && g.values[graph::index_of(v)].storage == g.values[graph::index_of(view)].storage;
  };
  for (size_t n = static_cast<size_t>(g.values[graph::index_of(view)].node + 1); n < g.nodes.size(); ++n)
    for (const int8_t written : g.nodes[n].op->write_args) {
      bool found = false;
      graph::for_each_value(g.nodes[n].args[static_cast<size_t>(written)],
                            [&](graph::ValueId v) { found = found || shows_view(v); });
      if (found) return true;
    }
  return false;
}

bool has_other_sign(const graph::Graph& g, graph::ValueId view) {
  while (view != graph::kNoValue && g.values[graph::index_of(view)].node >= 0) {
    const graph::Node& node = g.nodes[static_cast<size_t>(g.values[graph::index_of(view)].node)];
    if (node.op->is(graph::KnownOp::neg_view)) return true;
    if (!node.op->has(graph::kView)) return false;
    view = *node.args[0].get<graph::ValueId>();
  }
  return false;
}

std::shared_ptr<const ViewOp> op_of_view(const at::Tensor& tensor, const DifferentiableViewMeta& meta) {
  const torch::autograd::ViewInfo& of_base = meta.get_backward_view();
  const CreationMeta creation = meta.get_creation_meta();
  const bool has_op = creation != CreationMeta::IN_CUSTOM_FUNCTION;
  const graph::TracedTensorImpl* traced = graph::as_traced(tensor);
  if (!has_op || !of_base.has_view_fn() || of_base.view_fn().num_tensors() > 0) return nullptr;
  auto op = std::make_shared<ViewOp>();
  std::vector<c10::SymInt> now;
  bool varies = false;
  for (const c10::SymInt& number : of_base.view_fn().get_symints()) {
    op->numbers.push_back(graph::expr_of(number));
    varies = varies || !op->numbers.back().is_constant();
    now.emplace_back(traced->recorder().shapes().hint(op->numbers.back()));
  }
  op->function = of_base.view_fn().clone_and_set(std::move(now));  // the copy does not keep the recorder alive
  if (!varies) op->numbers.clear();
  return op;
}

class Collector {
 public:
  explicit Collector(const std::vector<at::Tensor>& inputs) : inputs_(inputs) {}

  OutputSet run(const std::vector<at::Tensor>& handed_out) {
    for (const at::Tensor& tensor : handed_out) {
      if (const DifferentiableViewMeta* meta = view_meta(tensor);
          meta != nullptr && is_hidden(meta->get_backward_view().base_))
        add(meta->get_backward_view().base_);
      set_.returned.push_back(add(tensor));
    }
    return std::move(set_);
  }

 private:
  static bool is_hidden(const at::Tensor& base) {
    const graph::TracedTensorImpl* traced = graph::as_traced(base);
    return traced != nullptr && traced->input < 0;
  }

  size_t add(const at::Tensor& tensor) {
    const auto at =
        std::find_if(set_.tensors.begin(), set_.tensors.end(), [&](const at::Tensor& t) { return t.is_same(tensor); });
    if (at != set_.tensors.end()) return static_cast<size_t>(at - set_.tensors.begin());
    set_.properties.push_back(properties_of(tensor));
    set_.tensors.push_back(tensor);
    return set_.tensors.size() - 1;
  }

  // Asking a view that was made without grad mode for its history raises once its base has been written.
  static bool has_history(const at::Tensor& tensor, const DifferentiableViewMeta* meta) {
    if (meta == nullptr || meta->get_creation_meta() != CreationMeta::NO_GRAD_MODE) return tensor.grad_fn() != nullptr;
    return torch::autograd::impl::grad_fn_unsafe(tensor) != nullptr &&
           counter_of(tensor).current_version() == meta->get_attr_version();
  }

  OutputProperties properties_of(const at::Tensor& tensor) {
    OutputProperties properties;
    const graph::TracedTensorImpl* traced = graph::as_traced(tensor);
    properties.is_input = traced == nullptr || traced->input >= 0;
    if (properties.is_input) return properties;
    properties.inference = tensor.is_inference();
    DifferentiableViewMeta* meta = view_meta(tensor);
    properties.view = meta != nullptr;
    properties.history = has_history(tensor, meta);
    relate(tensor, properties);
    const graph::Graph& g = traced->recorder().graph();
    properties.has_other_sign =
        (properties.view || properties.shares_input || properties.shares_output) && has_other_sign(g, traced->value);
    if (meta != nullptr) {
      properties.creation = meta->get_creation_meta();
      properties.writes_since = counter_of(tensor).current_version() - meta->get_attr_version();
      properties.by_strides = properties.history && !changes_kind(tensor, meta->get_backward_view().base_) &&
                              is_written_since(g, traced->value);
      const bool is_of_grad_mode =
          properties.creation == CreationMeta::DEFAULT || properties.creation == CreationMeta::MULTI_OUTPUT_NODE;
      if (properties.has_other_sign || (properties.history && is_of_grad_mode && !properties.by_strides))
        properties.op = op_of_view(tensor, *meta);
    } else if (properties.of == OutputProperties::Of::kNothing && counter_of(tensor).enabled()) {
      properties.version = counter_of(tensor).current_version();
    }
    return properties;
  }

  void relate(const at::Tensor& tensor, OutputProperties& properties) {
    properties.shares_input = relate(tensor, inputs_, OutputProperties::Of::kInput, properties);
    properties.shares_output = relate(tensor, set_.tensors, OutputProperties::Of::kOutput, properties);
  }

  // Whether the tensor shares memory with one of `others`; stores the one that it belongs to.
  static bool relate(const at::Tensor& tensor, const std::vector<at::Tensor>& others, OutputProperties::Of of,
                     OutputProperties& properties) {
    bool shares = false;
    for (size_t i = 0; i < others.size(); ++i) {
      if (!same_storage(tensor, others[i])) continue;
      shares = true;
      if (properties.of != OutputProperties::Of::kNothing) continue;
      if (!(properties.view ? tensor._base().is_same(others[i]) : share_counter(tensor, others[i]))) continue;
      properties.of = of;
      properties.index = i;
    }
    return shares;
  }

  const std::vector<at::Tensor>& inputs_;
  OutputSet set_;
};

// ------------------------------------------------------------------ properties given to tensors

at::Tensor strided(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  return at::_ops::as_strided::call(base, c10::fromIntArrayRefSlow(sizes), c10::fromIntArrayRefSlow(strides), offset);
}

// Makes the view with ops that autograd knows, for views that it could not regenerate from strides alone.
at::Tensor view_by_ops(const at::Tensor& base, const at::Tensor& tensor) {
  at::Tensor view = base;
  if (base.is_complex() && !tensor.is_complex())
    view = at::_ops::view_as_real::call(base.is_conj() ? at::_ops::_conj::call(base) : base);
  if (tensor.is_complex() && !base.is_complex()) {
    c10::SmallVector<int64_t, 8> sizes(tensor.sizes()), strides;
    for (int64_t stride : tensor.strides()) strides.push_back(2 * stride);
    sizes.push_back(2);
    strides.push_back(1);
    view = at::_ops::view_as_complex::call(strided(base, sizes, strides, 2 * tensor.storage_offset()));
  } else {
    view = strided(view, tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }
  if (view.is_conj() != tensor.is_conj()) view = at::_ops::_conj::call(view);
  return view.is_neg() != tensor.is_neg() ? at::_ops::_neg_view::call(view) : view;
}

bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.storage_offset() == b.storage_offset() &&
         a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

// Makes the view under autograd, which records its history.
at::Tensor view_with_history(const OutputProperties& properties, const at::Tensor& of, const at::Tensor& tensor,
                             std::span<const int64_t> symbols) {
  const c10::AutoGradMode with_gradient(true);
  if (properties.op)
    if (at::Tensor view = properties.op->view(of, symbols); are_alike(view, tensor)) return view;
  return view_by_ops(of, tensor);
}

at::Tensor view_of(const at::Tensor& base, const at::Tensor& tensor, CreationMeta creation) {
  if (changes_kind(tensor, base)) {
    const c10::InferenceMode normal(false);
    const c10::AutoGradMode no_grad(false);
    at::Tensor view = view_by_ops(base, tensor);
    view_meta(view)->set_creation_meta(creation);
    return view;
  }
  return torch::autograd::make_variable_differentiable_view(
      runtime::own_tensor(tensor, false), torch::autograd::ViewInfo(base, nullptr, nullptr), std::nullopt, true,
      creation);
}

class MarkedCall final : public CompiledCall {
 public:
  MarkedCall(std::unique_ptr<CompiledCall> call, OutputSet outputs, size_t inputs)
      : call_(std::move(call)), set_(std::move(outputs)), input_count_(inputs) {
    output_count = set_.returned.size();
    op_count = call_->op_count;
    kernel_count = call_->kernel_count;
  }

  CallResult run(PyObject* const* inputs, const int64_t* symbols, PyObject** outputs, WeightOwners& owners) override {
    HANDLE_TH_ERRORS
    if (!may_find_gradients(inputs)) {
      PyErr_SetString(PyExc_RuntimeError,
                      "this call differs from the recorded one: an input whose gradient the compiled code computes now "
                      "has hooks, is passed twice, or is part of another input's history");
      return {CallStatus::failed};
    }
    for (size_t i : set_.unviewed)
      if (is_leaf_view(THPVariable_Unpack(inputs[i]))) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this call differs from the recorded one: the compiled code returns or writes a view "
                        "of an input that is itself a view of another tensor now");
        return {CallStatus::failed};
      }
    const InputVersions versions(set_.written, inputs);
    c10::SmallVector<PyObject*, 16> made(set_.properties.size());
    const CallResult ran = call_->run(inputs, symbols, made.data(), owners);
    if (ran.status != CallStatus::done) return ran;
    versions.settle();
    for (size_t i = 0; i < made.size(); ++i) settle(inputs, {symbols, set_.symbol_count}, made.data(), i);
    for (size_t i = 0; i < output_count; ++i) outputs[i] = Py_NewRef(made[set_.returned[i]]);
    for (PyObject* object : made) Py_DECREF(object);
    return {};
    END_HANDLE_TH_ERRORS_RET({CallStatus::failed})
  }

 private:
  bool may_find_gradients(PyObject* const* inputs) const {
    for (const auto& [from, to] : set_.apart)
      if (runtime::leads_to(THPVariable_Unpack(inputs[from]), THPVariable_Unpack(inputs[to]))) return false;
    if (set_.unhooked.empty()) return true;
    std::vector<PyObject*> leaves;
    for (size_t i : set_.unhooked) {
      if (runtime::is_watched(THPVariable_Unpack(inputs[i]))) return false;
      leaves.push_back(inputs[i]);
    }
    std::sort(leaves.begin(), leaves.end());
    return std::adjacent_find(leaves.begin(), leaves.end()) == leaves.end();
  }

  void settle(PyObject* const* inputs, std::span<const int64_t> symbols, PyObject** made, size_t i) const {
    const OutputProperties& properties = set_.properties[i];
    // A user's backend may return anything.
    if (properties.is_input || !THPVariable_Check(made[i]) || THPVariable_Unpack(made[i]).layout() != at::kStrided ||
        !THPVariable_Unpack(made[i]).has_storage())
      return;
    at::Tensor tensor = THPVariable_Unpack(made[i]), of;
    if (properties.of == OutputProperties::Of::kInput && THPVariable_Check(inputs[properties.index]))
      of = THPVariable_Unpack(inputs[properties.index]);
    if (properties.of == OutputProperties::Of::kOutput && THPVariable_Check(made[properties.index]))
      of = THPVariable_Unpack(made[properties.index]);
    if (of.defined() && !properties.has_other_sign && !same_storage(of, tensor)) return;
    const bool taken = is_taken(inputs, made, i);
    if (properties.view) {
      if (of.defined()) settle_view(properties, of, taken, symbols, tensor);
    } else {
      settle_own(properties, of, taken, tensor);
    }
    if (!properties.freed.empty()) {
      std::vector<at::Tensor> reached;
      for (size_t input : properties.freed_inputs) reached.push_back(THPVariable_Unpack(inputs[input]));
      runtime::give_freed_history(tensor, properties.freed, reached);
    }
    if (!tensor.is_same(THPVariable_Unpack(made[i]))) Py_SETREF(made[i], THPVariable_Wrap(std::move(tensor)));
  }

  // Whether the object is already that of an input or of an earlier output.
  bool is_taken(PyObject* const* inputs, PyObject* const* made, size_t i) const {
    const OutputProperties& properties = set_.properties[i];
    return (properties.shares_input && std::find(inputs, inputs + input_count_, made[i]) != inputs + input_count_) ||
           (properties.shares_output && std::find(made, made + i, made[i]) != made + i);
  }

  static void settle_view(const OutputProperties& properties, const at::Tensor& of, bool taken,
                          std::span<const int64_t> symbols, at::Tensor& tensor) {
    const DifferentiableViewMeta* through = view_meta(of);
    const at::Tensor base = through != nullptr ? through->get_backward_view().base_ : of;
    const CreationMeta creation =
        through != nullptr ? torch::autograd::propagate_creation_meta(through->get_creation_meta(), properties.creation)
                           : properties.creation;
    const bool has_own = properties.own_history && tensor.grad_fn() != nullptr;
    const torch::autograd::Edge history =
        has_own ? torch::autograd::impl::gradient_edge(tensor) : torch::autograd::Edge();
    if (properties.has_other_sign) {
      const c10::AutoGradMode no_grad(false);
      tensor = properties.op->view(of, symbols);
    }
    if (has_own) {
      tensor = view_of(base, tensor, creation);
      torch::autograd::impl::set_gradient_edge(tensor, history);
      return;
    }
    DifferentiableViewMeta* meta = taken ? nullptr : view_meta(tensor);
    if (properties.history) {  // its gradient goes to the base
      tensor = view_with_history(properties, of, tensor, symbols);
      view_meta(tensor)->set_creation_meta(creation);
      return;
    }
    if (meta == nullptr || !tensor._base().is_same(base)) {
      tensor = view_of(base, tensor, creation);
      meta = view_meta(tensor);
    } else {
      meta->set_creation_meta(creation);
      tensor.unsafeGetTensorImpl()->set_version_counter(counter_of(of));
    }
    if (counter_of(of).enabled()) meta->set_attr_version(counter_of(of).current_version() - properties.writes_since);
  }

  static void settle_own(const OutputProperties& properties, const at::Tensor& of, bool taken, at::Tensor& tensor) {
    if (taken || tensor.is_view() || tensor.is_inference() != properties.inference)
      tensor = runtime::own_tensor(tensor, properties.inference);
    if (properties.inference) return;
    if (of.defined()) {
      tensor.unsafeGetTensorImpl()->set_version_counter(counter_of(of));
    } else if (properties.shares_input || properties.shares_output) {
      tensor.unsafeGetTensorImpl()->set_version_counter(
          c10::VariableVersion(static_cast<uint32_t>(properties.version)));
    } else if (counter_of(tensor).current_version() != properties.version) {
      set_version(tensor, properties.version);
    }
  }

  std::unique_ptr<CompiledCall> call_;
  OutputSet set_;
  size_t input_count_;
};

}  // namespace

at::Tensor ViewOp::view(const at::Tensor& base, std::span<const int64_t> symbols) const {
  if (numbers.empty()) return (*function)(base);
  std::vector<c10::SymInt> now;
  for (const graph::SymExpr& number : numbers) now.emplace_back(number.eval(symbols));
  return (*function->clone_and_set(std::move(now)))(base);
}

std::vector<bool> OutputSet::roots() const {
  std::vector<bool> roots;
  for (const OutputProperties& f : properties) {
    const bool is_view = f.view && f.of != OutputProperties::Of::kNothing && !f.own_history;
    roots.push_back(f.freed.empty() && (f.new_history || (f.history && !f.is_input && !is_view)));
  }
  return roots;
}

std::vector<bool> OutputSet::views() const {
  std::vector<bool> views;
  for (const OutputProperties& f : properties)
    views.push_back(f.view && f.history && !f.is_input && f.freed.empty() && f.of != OutputProperties::Of::kNothing);
  return views;
}

void OutputSet::add_written(const at::Tensor& input) {
  const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const at::Tensor& t) { return t.is_same(input); });
  const size_t place = static_cast<size_t>(at - tensors.begin());
  if (at == tensors.end()) {
    tensors.push_back(input);
    properties.emplace_back().is_input = true;
  }
  properties[place].new_history = true;
}

OutputSet outputs_of(const std::vector<at::Tensor>& handed_out, const std::vector<at::Tensor>& traced_inputs,
                     const std::vector<size_t>& written_inputs) {
  OutputSet set = Collector(traced_inputs).run(handed_out);
  for (size_t input : written_inputs)
    if (counter_of(traced_inputs[input]).enabled())
      set.written.push_back({input, counter_of(traced_inputs[input]).current_version()});
  return set;
}

bool is_leaf_view(const at::Tensor& tensor) {
  return tensor.requires_grad() && tensor.is_leaf() && tensor.is_view() && !tensor._base().requires_grad();
}

bool is_unusable_view(const at::Tensor& tensor) {
  const DifferentiableViewMeta* meta = view_meta(tensor);
  return meta != nullptr && meta->get_creation_meta() != CreationMeta::DEFAULT &&
         meta->get_creation_meta() != CreationMeta::NO_GRAD_MODE && counter_of(tensor).enabled() &&
         counter_of(tensor).current_version() != meta->get_attr_version();
}

std::unique_ptr<CompiledCall> with_output_properties(std::unique_ptr<CompiledCall> call, OutputSet outputs,
                                                     size_t inputs) {
  outputs.tensors.clear();
  return std::make_unique<MarkedCall>(std::move(call), std::move(outputs), inputs);
}

}  // namespace framejit::frame_hook
