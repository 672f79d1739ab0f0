#include "frame_hook/trace/torch/called_by_rows.h"

#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/loaded_modules.h"

namespace framejit::frame_hook::rows {

PyObject* torch_member(const char* module_name, const char* name) {
  PyObject* const found = member_of_module(module_name, name);
  if (!found || !is_of_package(found, "torch"))
    graph_break(Reason::unknown_callable, std::string(module_name) + "." + name + " as the program has replaced it");
  return found;
}

Value* method(Tracer& t, Value* self, const char* name, std::initializer_list<Value*> args) {
  return t.call(t.get_attribute(self, interned(name)), args);
}

bool grad_mode() {
  const PyRef on = PyRef::steal(PyObject_CallNoArgs(torch_member("torch", "is_grad_enabled")));
  return on && on.get() == Py_True;
}

void NoGrad::set(bool enabled) {
  PyRef::steal(PyObject_CallOneArg(torch_member("torch._C", "_set_grad_enabled"), enabled ? Py_True : Py_False));
}

}  // namespace framejit::frame_hook::rows
