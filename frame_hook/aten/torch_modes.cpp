// frame_hook/aten/torch_modes.cpp — reading and writing torch's thread-local modes.
#include "frame_hook/aten/torch_modes.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>

#include "frame_hook/trace/values/originals.h"
#include "guards/aten/replaced_kernels.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {
namespace {

constexpr std::array kDevices = {c10::DeviceType::CPU, c10::DeviceType::CUDA};

int autocast_nesting() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

bool same_flags(const c10::AutogradState& a, const c10::AutogradState& b) {
  return a.get_grad_mode() == b.get_grad_mode() && a.get_inference_mode() == b.get_inference_mode() &&
         a.get_fw_grad_mode() == b.get_fw_grad_mode() &&
         a.get_multithreading_enabled() == b.get_multithreading_enabled() &&
         a.get_view_replay_enabled() == b.get_view_replay_enabled();
}

}  // namespace

TorchModes TorchModes::current() {
  TorchModes modes;
  for (size_t i = 0; i < kDevices.size(); ++i)
    modes.autocast_dtypes_[i] = at::autocast::get_autocast_dtype(kDevices[i]);
  modes.autocast_cache_ = at::autocast::is_autocast_cache_enabled();
  modes.autocast_nesting_ = autocast_nesting();
  modes.default_dtype_ = c10::get_default_dtype_as_scalartype();
  return modes;
}

void TorchModes::apply() const {
  c10::AutogradState::set_tls_state(autograd_);
  c10::impl::_force_tls_local_dispatch_key_set(keys_);
  for (size_t i = 0; i < kDevices.size(); ++i)
    if (at::autocast::get_autocast_dtype(kDevices[i]) != autocast_dtypes_[i])
      at::autocast::set_autocast_dtype(kDevices[i], autocast_dtypes_[i]);
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
  for (int n = autocast_nesting(); n < autocast_nesting_; ++n) at::autocast::increment_nesting();
  for (int n = autocast_nesting(); n > autocast_nesting_; --n) at::autocast::decrement_nesting();
  if (c10::get_default_dtype_as_scalartype() != default_dtype_)
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype_));
}

bool TorchModes::operator==(const TorchModes& other) const {
  return same_flags(autograd_, other.autograd_) && keys_.included_ == other.keys_.included_ &&
         keys_.excluded_ == other.keys_.excluded_ && autocast_dtypes_ == other.autocast_dtypes_ &&
         autocast_cache_ == other.autocast_cache_ && autocast_nesting_ == other.autocast_nesting_ &&
         default_dtype_ == other.default_dtype_;
}

namespace {

// Of torch.utils.checkpoint: the code of a function that is defined inside of a class's __init__.
bool is_made_by(const char* type_name, PyObject* code) {
  PyObject* const type = find_original("torch.utils.checkpoint", type_name);
  const PyRef init = PyRef::steal(type ? PyObject_GetAttrString(type, "__init__") : nullptr);
  drop_error();
  if (!init || !PyFunction_Check(init.get())) return false;
  const PyRef constants = PyRef::steal(PyObject_GetAttrString(PyFunction_GET_CODE(init.get()), "co_consts"));
  drop_error();
  for (Py_ssize_t i = 0; constants && i < PyTuple_GET_SIZE(constants.get()); ++i)
    if (PyTuple_GET_ITEM(constants.get(), i) == code) return true;
  return false;
}

// A checkpoint matches the saved tensors of the forward and of the recomputation by position. Compiled code saves
// different tensors in the two.
bool checkpointing() {
  const auto& stack = at::SavedTensorDefaultHooks::get_tls_state().stack;
  if (stack.empty() || !c10::GradMode::is_enabled()) return false;
  PyObject* unpack = stack.top().second.ptr(getPyInterpreter());  // the pack hook may be wrapped
  if (unpack == nullptr || !PyFunction_Check(unpack)) return false;
  PyObject* code = PyFunction_GET_CODE(unpack);
  return is_made_by("_checkpoint_hook", code) || is_made_by("_recomputation_hook", code);
}

}  // namespace

std::optional<std::string> unsupported_mode() {
  if (torch::autograd::AnomalyMode::is_enabled() && c10::GradMode::is_enabled()) return "anomaly detection";
  if (checkpointing()) return "activation checkpointing";
  if (at::impl::torch_function_mode_enabled()) return "a torch-function mode";
  if (c10::impl::TorchDispatchModeTLS::any_modes_set()) return "a torch-dispatch mode";
  const c10::DispatchKeySet included = c10::impl::tls_local_dispatch_key_set().included_;
  if (included.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) return "a functorch transform";
  if (included.has(c10::DispatchKey::Functionalize)) return "functionalisation";
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0)) return "forward-mode AD";  // tensors may carry tangents
  if (included.has(c10::DispatchKey::Tracer)) return "tracing of torch.jit";
  if (guards::has_replaced_kernels())
    return "a kernel of " + guards::replaced_kernel() + " that the program has registered";
  return std::nullopt;
}

}  // namespace framejit::frame_hook
