// frame_hook/trace/numpy_calls.cpp — see numpy_calls.h.
#include "frame_hook/trace/numpy_calls.h"

#include <algorithm>
#include <cstring>

#include "frame_hook/trace/object_kinds.h"
#include "frame_hook/trace/protocol.h"
#include "guards/interrupts.h"

namespace framejit::frame_hook {

bool calls_numpy(PyObject* callable, const std::vector<PyObject*>& args) {
  const bool own = std::strncmp(Py_TYPE(callable)->tp_name, "numpy.", 6) == 0 || (PyType_Check(callable) && is_numpy_scalar_type(reinterpret_cast<PyTypeObject*>(callable)));
  return own || std::any_of(args.begin(), args.end(), [](PyObject* o) { return o && is_numpy_scalar(o); });
}

NumpyWarnings::NumpyWarnings(bool active) {
  PyObject* module = active ? PyDict_GetItemString(PyImport_GetModuleDict(), "numpy") : nullptr;
  PyObject* make = module ? PyDict_GetItemString(PyModule_GetDict(module), "errstate") : nullptr;
  const PyRef nothing = PyRef::steal(PyTuple_New(0)), all = PyRef::steal(Py_BuildValue("{s:s}", "all", "raise"));
  PyRef state = PyRef::steal(make ? PyObject_Call(make, nothing.get(), all.get()) : nullptr);
  const PyRef entered = PyRef::steal(state ? PyObject_CallMethod(state.get(), "__enter__", nullptr) : nullptr);
  if (entered) state_ = std::move(state);
  drop_error();
}

NumpyWarnings::~NumpyWarnings() {
  if (!state_) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyRef::steal(PyObject_CallMethod(state_.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
  drop_error();
  PyErr_Restore(type, value, traceback);
}

namespace {

// NumPy reads a list as it reads a tuple.
Value* as_operand(Tracer& t, Value* v) {
  ListValue* list = list_of(v);
  TupleValue* tuple = tuple_of(v);
  if (!list && !tuple) return without_symbols(t, v);
  t.type_of(v);
  std::vector<Value*> items = t.unpack(payload_of(v));
  for (Value*& item : items) item = as_operand(t, item);
  return t.tuple(std::move(items));
}

}  // namespace

Value* call_numpy(Tracer& t, PyObject* callable, const Arguments& args) {
  Arguments plain = args;
  for (Value*& v : plain.positional) v = as_operand(t, v);
  for (auto& [name, v] : plain.keywords) v = as_operand(t, v);
  Value* result = run_plain(t, callable, plain);
  if (!t.is_constant(result)) graph_break(BreakReason::unsupported_value, "an array that " + name_of_callable(callable) + " makes");
  return result;
}

}  // namespace framejit::frame_hook
