#include "frame_hook/trace/protocol/made_values.h"

#include <string>

#include "frame_hook/trace/machine/graph_break.h"
#include "guards/cpython/names.h"

namespace framejit::frame_hook {

PyTypeObject* method_wrapper_type() {
  static PyTypeObject* const type = Py_TYPE(PyObject_GetAttrString(Py_None, "__str__"));
  return type;
}

MethodValue* make_method(Heap& heap, Value* function, Value* self) {
  PyTypeObject* const of =
      function->kind == ValueKind::object && function->object ? Py_TYPE(function->object.get()) : nullptr;
  const bool in_c = of == &PyMethodDescr_Type || of == &PyClassMethodDescr_Type;
  auto* m = heap.make<MethodValue>(ValueKind::method, of == &PyWrapperDescr_Type ? method_wrapper_type()
                                                      : in_c                     ? &PyCFunction_Type
                                                                                 : &PyMethod_Type);
  m->function = function;
  m->self = self;
  return m;
}

// A finaliser runs when the last reference is dropped, and a trace does not know when that is.
InstanceValue* make_instance(Heap& heap, PyTypeObject* type) {
  if (_PyType_Lookup(type, interned("__del__")))
    graph_break(Reason::made_in_trace,
                std::string("an object of class ") + type->tp_name + ", which has a __del__,");
  return heap.make<InstanceValue>(ValueKind::instance, type);
}

Value* mapping_proxy(Heap& heap, Value* mapping) {
  InstanceValue* v = make_instance(heap, &PyDictProxy_Type);
  v->payload = mapping;
  return v;
}

}  // namespace framejit::frame_hook
