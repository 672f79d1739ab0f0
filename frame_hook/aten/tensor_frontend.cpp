// frame_hook/aten/tensor_frontend.cpp — what the tracer asks about real tensors and torch's modes.
#include "frame_hook/aten/tensor_frontend.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include "frame_hook/aten/recording.h"
#include "frame_hook/aten/shared_memory.h"
#include "frame_hook/aten/torch_callables.h"
#include "frame_hook/aten/torch_modes.h"
#include "graph/aten/torch_values.h"
#include "guards/aten/replaced_kernels.h"
#include "guards/aten/tensor_facts.h"
#include "guards/cpython/interrupts.h"
#include "guards/guard_functions.h"
#include "runtime/aten/derived_values.h"
#include "runtime/aten/shape_functions.h"
#include "runtime/aten/torch_version.h"
#include "runtime/gpu_driver.h"

namespace framejit::frame_hook {
namespace {

c10::DispatchKeySet ordinary_keys(c10::DispatchKey dense, c10::BackendComponent backend) {
  return c10::DispatchKeySet({dense, c10::DispatchKey::ADInplaceOrView}) |
         c10::getAutogradRelatedKeySetFromBackend(backend) | c10::getAutocastRelatedKeySetFromBackend(backend);
}

// Why a tensor of an exact class cannot be traced; empty when it can.
std::string obstacle(const at::Tensor& tensor) {
  using c10::BackendComponent;
  static const c10::DispatchKeySet on_cpu = ordinary_keys(c10::DispatchKey::CPU, BackendComponent::CPUBit);
  static const c10::DispatchKeySet on_cuda = ordinary_keys(c10::DispatchKey::CUDA, BackendComponent::CUDABit);
  if (!tensor.defined()) return "an undefined tensor";
  if (!tensor.is_cpu() && !tensor.is_cuda()) return "a tensor on the device " + tensor.device().str();
  if (tensor.is_cuda()) {
    static const Result<void> gpu = runtime::find_gpu();
    if (!gpu) return "a tensor on the device " + tensor.device().str() + " (" + gpu.error().message + ")";
  }
  const c10::DispatchKeySet ordinary = tensor.is_cuda() ? on_cuda : on_cpu;
  if (tensor.layout() != c10::kStrided) return "a tensor that is not strided (to_dense() makes one that is)";
  const DType dtype = graph::dtype_of(tensor.scalar_type());
  if (dtype == DType::kOther || is_complex(dtype))
    return "a tensor of dtype " + guards::dtype_name(tensor.scalar_type());
  if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return "a tensor with symbolic sizes";
  if (tensor.is_nested()) return "a nested tensor";
  using c10::DispatchKey;
  static const c10::DispatchKeySet of_transforms(
      {DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper, DispatchKey::BatchedNestedTensor});
  if (tensor.key_set().has_any(of_transforms))
    return "a tensor inside of an active transform of torch.func (vmap, grad or another)";
  if (tensor.is_neg()) return "a negated view (resolve_neg() makes an ordinary tensor)";
  // Compared by union: a difference of key sets keeps the backend's bit.
  if ((tensor.key_set() | ordinary) == ordinary) return "";
  std::string keys;
  for (const DispatchKey key : tensor.key_set() - ordinary)
    keys += (keys.empty() ? "" : ", ") + std::string(toString(key));
  return "a tensor with calls of its own for torch's dispatcher (" + keys + ")";
}

// torch keeps the symbol of a wrapped symbolic number as an attribute of the tensor's Python object.
std::optional<graph::SymExpr> wrapped_symbol(const at::Tensor& number) {
  if (number.scalar_type() != c10::kLong || !runtime::has_python_object(number)) return std::nullopt;
  py::gil_scoped_acquire gil;
  PyRef object = PyRef::steal(THPVariable_Wrap(number));
  PyRef symbol = PyRef::steal(PyObject_GetAttrString(object.get(), "_wrapped_number"));
  drop_error();
  if (!symbol || !torch::is_symint(py::handle(symbol.get()))) return std::nullopt;
  return graph::expr_of(py::cast<c10::SymInt>(py::handle(symbol.get())));
}

const c10::SymNodeImpl* wrapped_node(const c10::SymNodeImpl& node) {
  const auto* python = dynamic_cast<const torch::impl::PythonSymNodeImpl*>(&node);
  if (python == nullptr) return nullptr;
  py::gil_scoped_acquire gil;
  const py::handle object = const_cast<torch::impl::PythonSymNodeImpl*>(python)->getPyObj();
  return py::isinstance<c10::SymNodeImpl>(object) ? py::cast<c10::SymNode>(object).get() : nullptr;
}

class TorchFrontend final : public TensorFrontend {
 public:
  TensorClass classify(PyObject* object, std::string* reason) override {
    PyTypeObject* const type = Py_TYPE(object);
    if (!PyType_IsSubtype(type, torch_tensor_type())) return TensorClass::kNot;
    std::string why;
    if (type != torch_tensor_type() && reinterpret_cast<PyObject*>(type) != TorchCallables::get().parameter_type())
      why = std::string("a tensor of the subclass ") + type->tp_name;
    else if (graph::as_traced(THPVariable_Unpack(object)) == nullptr) why = obstacle(THPVariable_Unpack(object));
    if (why.empty()) return TensorClass::kPlain;
    if (reason != nullptr) *reason = std::move(why);
    return TensorClass::kUnsupported;
  }
  std::shared_ptr<const guards::TensorFacts> facts_of_unsupported(PyObject* tensor) override {
    return THPVariable_Unpack(tensor).defined() ? guards::make_kind_facts(tensor) : nullptr;
  }
  std::unique_ptr<Recording> begin() override { return std::make_unique<TorchRecording>(); }
  std::shared_ptr<const guards::ModeFacts> current_modes() override { return guards::current_mode_facts(); }
  bool records_nothing() override { return unsupported_mode().has_value(); }
  std::shared_ptr<void> save_modes() override { return std::make_shared<TorchModes>(TorchModes::current()); }
  void restore_modes(const std::shared_ptr<void>& snapshot) override {
    static_cast<const TorchModes*>(snapshot.get())->apply();
  }
  std::shared_ptr<const guards::ModeFacts> no_listener() override { return guards::no_listener_facts(); }
  bool same_modes(const std::shared_ptr<void>& a, const std::shared_ptr<void>& b) override {
    return *static_cast<const TorchModes*>(a.get()) == *static_cast<const TorchModes*>(b.get());
  }
  bool may_overlap(PyObject* const* tensors, size_t written, size_t count) override {
    c10::SmallVector<const at::Tensor*, 16> all;
    for (size_t i = 0; i < count; ++i) all.push_back(&THPVariable_Unpack(tensors[i]));
    return may_share_written({all.data(), all.size()}, written);
  }
  bool is_pure_without_tensors(PyObject* callable) override {
    return TorchCallables::get().is_pure_without_tensors(callable);
  }
  bool answers_true_while_compiling(PyObject* callable) override {
    return TorchCallables::get().answers_true_while_compiling(callable);
  }
};

}  // namespace

bool install_tensor_frontend() {
  if (THPVariableClass == nullptr) {
    PyErr_SetString(PyExc_ImportError, "framejit: import torch first");
    return false;
  }
  if (!guards::watch_kernels()) return false;
  static TorchFrontend frontend;
  try {
    graph::register_recorder();
  } catch (const std::exception& e) {
    PyErr_Format(PyExc_ImportError, "framejit: torch's dispatch key for recording is taken: %s", e.what());
    return false;
  }
  runtime::remember_operators();
  graph::set_wrapped_symbol_reader(&wrapped_symbol);
  graph::set_wrapped_node_reader(&wrapped_node);
  guards::set_number_reader(&guards::read_number);
  set_tensor_frontend(&frontend);
  return true;
}

bool distrust_weights(PyObject* tensors) {
  std::vector<at::Tensor> weights;
  const PyRef items = PyRef::steal(PySequence_Fast(tensors, "framejit: a list of tensors is needed"));
  if (!items) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(items.get(), i);
    if (!THPVariable_Check(item)) return PyErr_Format(PyExc_TypeError, "framejit: a list of tensors is needed"), false;
    weights.push_back(THPVariable_Unpack(item));
  }
  runtime::distrust(weights);
  return true;
}

}  // namespace framejit::frame_hook
