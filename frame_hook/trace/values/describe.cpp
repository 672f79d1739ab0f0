#include "frame_hook/trace/values/describe.h"

#include "frame_hook/trace/values/c_packages.h"
#include "frame_hook/trace/values/known_types.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

std::string describe(Value* v) {
  if (!v) return "nothing";
  if (v->object && PyType_Check(v->object.get()))
    return std::string("class ") + reinterpret_cast<PyTypeObject*>(v->object.get())->tp_name;
  if (v->kind == ValueKind::function) {
    PyCodeObject* code = as<FunctionValue>(v)->code;
    return std::string("function ") + (code ? text_of(code->co_qualname) : "?");
  }
  return std::string("an object of type ") + (v->type ? v->type->tp_name : "?");
}

namespace {

// The module or type that messages name as its origin.
std::string module_text(PyObject* callable) {
  if (!PyCFunction_Check(callable)) {
    PyTypeObject* const type = type_of_callable(callable);
    return is_made_by_c(type) ? type->tp_name : "";
  }
  PyObject* const module = reinterpret_cast<PyCFunctionObject*>(callable)->m_module;
  if (module) return PyUnicode_Check(module) ? text_of(module) : "";
  PyObject* const self = PyCFunction_GET_SELF(callable);
  return self && PyType_Check(self) ? module_text(self) : "";
}

// pybind11 gives the getter of a property no name. Its docstring begins with the signature: "(self: module.Class)".
std::string nameless_property(PyObject* callable) {
  const PyRef doc = PyRef::steal(PyObject_GetAttrString(callable, "__doc__"));
  if (!doc) drop_error();
  const std::string_view text = doc && PyUnicode_Check(doc.get()) ? text_of(doc.get()) : "";
  const size_t colon = text.find(": "), end = text.find_first_of(",)");
  if (!text.starts_with('(') || end == std::string_view::npos || colon >= end) return "a property of an object of C++";
  return "a property of " + std::string(text.substr(colon + 2, end - colon - 2));
}

}  // namespace

std::string name_of_callable(PyObject* callable) {
  PyRef name = PyRef::steal(PyObject_GetAttrString(callable, "__qualname__"));
  if (!name) drop_error();
  std::string own = name && PyUnicode_Check(name.get()) && PyUnicode_GET_LENGTH(name.get()) > 0
                        ? text_of(name.get())
                        : Py_TYPE(callable)->tp_name;
  if (own.starts_with("pybind11_detail_function_record")) own = own.substr(own.rfind('.') + 1);
  if (own.empty()) return nameless_property(callable);
  if (own.find('.') != std::string::npos) return own;
  const std::string module = module_text(callable);
  return module.empty() || module == "builtins" ? own : module + "." + own;
}

std::string name_of_call(PyObject* callable, Value* first) {
  PyTypeObject* const type = first && PyCFunction_Check(callable) ? first->type : nullptr;
  const char* const name = type ? reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name : "";
  PyObject* const method = type ? _PyType_Lookup(type, interned(name)) : nullptr;
  const bool is_method = method && PyInstanceMethod_Check(method) && PyInstanceMethod_GET_FUNCTION(method) == callable;
  return is_method ? std::string(type->tp_name) + "." + name : name_of_callable(callable);
}

}  // namespace framejit::frame_hook
