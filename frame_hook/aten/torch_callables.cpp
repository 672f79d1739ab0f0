#include "frame_hook/aten/torch_callables.h"

#include <torch/csrc/autograd/python_variable.h>

#include <string>

#include "frame_hook/trace/values/originals.h"

namespace framejit::frame_hook {

PyTypeObject* torch_tensor_type() { return reinterpret_cast<PyTypeObject*>(THPVariableClass); }
bool is_tensor(PyObject* object) { return PyType_IsSubtype(Py_TYPE(object), torch_tensor_type()); }

TorchCallables::TorchCallables() {
  const auto add = [](std::unordered_set<const PyObject*>& list, const std::string& path) {
    const size_t dot = path.rfind('.');
    if (PyObject* const object = find_original(path.substr(0, dot).c_str(), path.substr(dot + 1).c_str()))
      list.insert(object);
  };
#define TORCH_CALLABLE(list, path, why) add(list##_, path);
#include "frame_hook/aten/torch_callables.def"
#undef TORCH_CALLABLE
  parameter_ = find_original("torch.nn.parameter", "Parameter");
}

const TorchCallables& TorchCallables::get() {
  static const auto* const callables = new TorchCallables;
  return *callables;
}

bool TorchCallables::answers_true_while_compiling(PyObject* callable) const { return compiling_.count(callable) != 0; }

}  // namespace framejit::frame_hook
