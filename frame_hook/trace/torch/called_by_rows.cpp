#include "frame_hook/trace/torch/called_by_rows.h"

#include "frame_hook/trace/values/originals.h"

namespace framejit::frame_hook::rows {

Value* method(Tracer& t, Value* self, const char* name, std::initializer_list<Value*> args) {
  return t.call(t.get_attribute(self, interned(name)), args);
}

bool grad_mode() {
  const PyRef on = PyRef::steal(PyObject_CallNoArgs(original("torch", "is_grad_enabled")));
  return on && on.get() == Py_True;
}

void NoGrad::set(bool enabled) {
  PyRef::steal(PyObject_CallOneArg(original("torch._C", "_set_grad_enabled"), enabled ? Py_True : Py_False));
}

}  // namespace framejit::frame_hook::rows
