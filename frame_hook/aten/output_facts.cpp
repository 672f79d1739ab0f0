// frame_hook/aten/output_facts.cpp — a call whose outputs are given the marks of the modes that the trace passed through.
#include "frame_hook/aten/output_facts.h"

#include <ATen/ops/alias_ops.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <utility>

namespace framejit::frame_hook {
namespace {

using torch::autograd::CreationMeta;
using torch::autograd::DifferentiableViewMeta;

DifferentiableViewMeta* view_meta(const at::Tensor& tensor) {
  DifferentiableViewMeta* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
  return meta != nullptr && meta->has_bw_view() ? meta : nullptr;
}

CreationMeta creation_now() {
  if (c10::InferenceMode::is_enabled()) return CreationMeta::INFERENCE_MODE;
  return c10::GradMode::is_enabled() ? CreationMeta::DEFAULT : CreationMeta::NO_GRAD_MODE;
}

// The same memory as a tensor that was made in, or outside of, inference mode.
at::Tensor made_in(bool inference, const at::Tensor& tensor) {
  const c10::InferenceMode mode(inference);
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), c10::DispatchKeySet(tensor.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU), tensor.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return alias;
}

// The same memory as another tensor object: a view with a _base, or, as detach() makes it, without one.
at::Tensor alias_of(const at::Tensor& tensor, bool view) { return view ? at::_ops::alias::call(tensor) : tensor.detach(); }

class MarkedCall final : public CompiledCall {
 public:
  MarkedCall(std::unique_ptr<CompiledCall> call, std::vector<OutputFacts> facts, size_t inputs) : call_(std::move(call)), facts_(std::move(facts)), inputs_(inputs) {
    output_count = call_->output_count;
    op_count = call_->op_count;
    kernel_count = call_->kernel_count;
  }

  bool run(PyObject* const* inputs, const int64_t* symbols, const double* floats, PyObject** outputs) override {
    HANDLE_TH_ERRORS
    if (!call_->run(inputs, symbols, floats, outputs)) return false;
    for (size_t i = 0; i < output_count; ++i) {
      if (!THPVariable_Check(outputs[i])) continue;
      if (facts_[i].own_object) separate(inputs, outputs, i);
      mark(facts_[i], outputs[i]);
    }
    return true;
    END_HANDLE_TH_ERRORS_RET(false)
  }

 private:
  void separate(PyObject* const* inputs, PyObject** outputs, size_t i) const {
    const at::Tensor& tensor = THPVariable_Unpack(outputs[i]);
    const bool taken = std::find(inputs, inputs + inputs_, outputs[i]) != inputs + inputs_ || std::find(outputs, outputs + i, outputs[i]) != outputs + i;
    if (taken || (!facts_[i].view && tensor.is_view())) Py_SETREF(outputs[i], THPVariable_Wrap(alias_of(tensor, facts_[i].view)));
  }

  static void mark(const OutputFacts& facts, PyObject*& output) {
    const at::Tensor& tensor = THPVariable_Unpack(output);
    if (tensor.is_inference() != facts.inference) {
      Py_SETREF(output, THPVariable_Wrap(made_in(facts.inference, tensor)));
    } else if (DifferentiableViewMeta* meta = facts.view ? view_meta(tensor) : nullptr) {
      meta->set_creation_meta(facts.creation);
    }
  }

  std::unique_ptr<CompiledCall> call_;
  std::vector<OutputFacts> facts_;
  size_t inputs_;
};

}  // namespace

std::vector<OutputFacts> facts_of_outputs(const std::vector<at::Tensor>& traced) {
  std::vector<OutputFacts> facts;
  for (const at::Tensor& tensor : traced) {
    const DifferentiableViewMeta* meta = view_meta(tensor);
    facts.push_back({tensor.is_inference(), meta != nullptr, false, meta != nullptr ? meta->get_creation_meta() : CreationMeta::DEFAULT});
  }
  return facts;
}

std::unique_ptr<CompiledCall> with_output_facts(std::unique_ptr<CompiledCall> call, std::vector<OutputFacts> facts, size_t inputs) {
  bool differ = false;
  for (const OutputFacts& f : facts) differ = differ || f.own_object || f.inference != c10::InferenceMode::is_enabled() || (f.view && f.creation != creation_now());
  return differ ? std::make_unique<MarkedCall>(std::move(call), std::move(facts), inputs) : std::move(call);
}

}  // namespace framejit::frame_hook
