#include "frame_hook/aten/torch_callables.h"

#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <string>
#include <string_view>

#include "frame_hook/trace/values/known_types.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {
namespace {

// An attribute of a module is read from its dict, because torch's module-level __getattr__ would import what is asked
// for.
PyRef attribute_of(PyObject* object, const std::string& name) {
  if (PyModule_Check(object)) return PyRef::borrow(PyDict_GetItemString(PyModule_GetDict(object), name.c_str()));
  return PyRef::steal(PyObject_GetAttrString(object, name.c_str()));
}

// The object at a dotted path of loaded modules and attributes: new reference or null, no error set.
PyRef find_path(std::string_view path) {
  PyObject* const modules = PyImport_GetModuleDict();
  for (size_t end = path.rfind('.'); end != std::string_view::npos && end > 0; end = path.rfind('.', end - 1)) {
    PyObject* module = PyDict_GetItemString(modules, std::string(path.substr(0, end)).c_str());
    if (module == nullptr) continue;
    PyRef object = PyRef::borrow(module);
    for (size_t at = end; object && at != std::string_view::npos;) {
      const size_t next = path.find('.', at + 1);
      object = attribute_of(object.get(),
                            std::string(path.substr(at + 1, next == std::string_view::npos ? next : next - at - 1)));
      at = next;
    }
    drop_error();
    return object;
  }
  return {};
}

}  // namespace

PyTypeObject* torch_tensor_type() { return reinterpret_cast<PyTypeObject*>(THPVariableClass); }
bool is_tensor(PyObject* object) { return PyType_IsSubtype(Py_TYPE(object), torch_tensor_type()); }

// The objects are kept for ever: torch is never unloaded, and a freed address must not come to mean another function.
TorchCallables::TorchCallables() {
  const auto add = [](std::unordered_set<const PyObject*>& list, const char* path) {
    if (PyRef object = find_path(path); object && is_of_package(object.get(), "torch")) list.insert(object.release());
  };
#define TORCH_CALLABLE(list, path, why) add(list##_, path);
#include "frame_hook/aten/torch_callables.def"
#undef TORCH_CALLABLE
  parameter_ = find_path("torch.nn.parameter.Parameter").release();
}

const TorchCallables& TorchCallables::get() {
  static const auto* const callables = new TorchCallables;
  return *callables;
}

bool TorchCallables::answers_true_while_compiling(PyObject* callable) const { return compiling_.count(callable) != 0; }

}  // namespace framejit::frame_hook
