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

#include "graph/aten/traced_tensor.h"
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

// ------------------------------------------------------------------ properties of traced tensors

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
    if (meta != nullptr) {
      properties.creation = meta->get_creation_meta();
      properties.writes_since = counter_of(tensor).current_version() - meta->get_attr_version();
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

// If autograd could not regenerate the view from strides alone, it is made by ops that autograd knows.
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

at::Tensor view_of(const at::Tensor& base, const at::Tensor& tensor, CreationMeta creation) {
  if (base.is_complex() != tensor.is_complex() || base.is_conj() != tensor.is_conj() ||
      base.is_neg() != tensor.is_neg()) {
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
    raises = call_->raises;
  }

  bool run(PyObject* const* inputs, const int64_t* symbols, PyObject** outputs, WeightOwners& owners) override {
    HANDLE_TH_ERRORS
    stopped_by = Reason::run_failed;
    if (!may_find_gradients(inputs)) {
      PyErr_SetString(PyExc_RuntimeError,
                      "framejit: this call differs from the recorded one: an input whose gradient the compiled code "
                      "computes now has hooks, is passed twice, or is part of another input's history");
      return false;
    }
    for (size_t i : set_.unviewed)
      if (is_leaf_view(THPVariable_Unpack(inputs[i]))) {
        PyErr_SetString(PyExc_RuntimeError,
                        "framejit: this call differs from the recorded one: the compiled code returns or writes a view "
                        "of an input that is itself a view of another tensor now");
        return false;
      }
    const InputVersions versions(set_.written, inputs);
    c10::SmallVector<PyObject*, 16> made(set_.properties.size());
    if (!call_->run(inputs, symbols, made.data(), owners)) {
      is_wrong = call_->is_wrong;
      raises = call_->raises;
      stopped_by = call_->stopped_by;
      return false;
    }
    versions.settle();
    for (size_t i = 0; i < made.size(); ++i) settle(inputs, made.data(), i);
    for (size_t i = 0; i < output_count; ++i) outputs[i] = Py_NewRef(made[set_.returned[i]]);
    for (PyObject* object : made) Py_DECREF(object);
    return true;
    END_HANDLE_TH_ERRORS_RET(false)
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

  void settle(PyObject* const* inputs, PyObject** made, size_t i) const {
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
    if (of.defined() && !same_storage(of, tensor)) return;
    const bool taken = is_taken(inputs, made, i);
    if (properties.view) {
      if (of.defined()) settle_view(properties, of, taken, tensor);
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

  static void settle_view(const OutputProperties& properties, const at::Tensor& of, bool taken, at::Tensor& tensor) {
    const DifferentiableViewMeta* through = view_meta(of);
    const at::Tensor base = through != nullptr ? through->get_backward_view().base_ : of;
    const CreationMeta creation =
        through != nullptr ? torch::autograd::propagate_creation_meta(through->get_creation_meta(), properties.creation)
                           : properties.creation;
    if (properties.own_history && tensor.grad_fn() != nullptr) {
      const torch::autograd::Edge history = torch::autograd::impl::gradient_edge(tensor);
      tensor = view_of(base, tensor, creation);
      torch::autograd::impl::set_gradient_edge(tensor, history);
      return;
    }
    DifferentiableViewMeta* meta = taken ? nullptr : view_meta(tensor);
    if (properties.history) {  // the view is made under autograd, by strides: its gradient is the base's
      const c10::AutoGradMode with_gradient(true);
      tensor = view_by_ops(of, tensor);
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
