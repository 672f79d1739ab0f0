// frame_hook/hook/armed_call.cpp — the callable object whose calls are armed.
#include <Python.h>
#include <structmember.h>

#include <cstddef>

#include "frame_hook/hook/frame_hook.h"

namespace framejit::frame_hook {
namespace {

struct ArmedCall {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* options;
  PyObject* attributes;   // __dict__
  PyObject* weak_references;
};

ArmedCall* as_armed(PyObject* object) { return reinterpret_cast<ArmedCall*>(object); }

PyObject* armed_vectorcall(PyObject* self, PyObject* const* arguments, size_t count_and_flag, PyObject* keyword_names) {
  ArmedCall* armed = as_armed(self);
  return call_armed(armed->function, arguments, count_and_flag, keyword_names, armed->options);
}

int armed_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_armed(self)->function);
  Py_VISIT(as_armed(self)->options);
  Py_VISIT(as_armed(self)->attributes);
  return 0;
}

int armed_clear(PyObject* self) {
  Py_CLEAR(as_armed(self)->attributes);
  Py_CLEAR(as_armed(self)->options);
  return 0;  // the function is kept: a call may be running
}

void armed_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (as_armed(self)->weak_references) PyObject_ClearWeakRefs(self);
  armed_clear(self);
  Py_CLEAR(as_armed(self)->function);
  Py_TYPE(self)->tp_free(self);
}

PyObject* armed_bind(PyObject* self, PyObject* object, PyObject*) {
  return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

PyObject* armed_repr(PyObject* self) {
  return PyUnicode_FromFormat("<framejit compiled %R>", as_armed(self)->function);
}

// What a call binds and runs is the plain function's own, so a change through either of the two takes effect on both.
PyObject* plain_function(PyObject* self) {
  PyObject* function = as_armed(self)->function;
  return PyMethod_Check(function) ? PyMethod_GET_FUNCTION(function) : function;
}

PyObject* get_of_function(PyObject* self, void* name) {
  return PyObject_GetAttrString(plain_function(self), static_cast<const char*>(name));
}

int set_of_function(PyObject* self, PyObject* value, void* name) {
  return PyObject_SetAttrString(plain_function(self), static_cast<const char*>(name), value);
}

PyGetSetDef of_function(const char* name) {
  return {name, get_of_function, set_of_function, nullptr, const_cast<char*>(name)};
}

PyMemberDef armed_members[] = {
    {"function", T_OBJECT_EX, offsetof(ArmedCall, function), READONLY, "the plain function"},
    {"options", T_OBJECT, offsetof(ArmedCall, options), READONLY, "what the call is armed with"},
    {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef armed_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                              of_function("__code__"),
                              of_function("__defaults__"),
                              of_function("__kwdefaults__"),
                              {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject make_type() {
  PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "framejit.ArmedCall";
  type.tp_basicsize = sizeof(ArmedCall);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  type.tp_vectorcall_offset = offsetof(ArmedCall, vectorcall);
  type.tp_dictoffset = offsetof(ArmedCall, attributes);
  type.tp_weaklistoffset = offsetof(ArmedCall, weak_references);
  type.tp_call = PyVectorcall_Call;
  type.tp_dealloc = armed_dealloc;
  type.tp_traverse = armed_traverse;
  type.tp_clear = armed_clear;
  type.tp_descr_get = armed_bind;
  type.tp_repr = armed_repr;
  type.tp_members = armed_members;
  type.tp_getset = armed_getset;
  return type;
}

}  // namespace

PyTypeObject* armed_call_type() {
  static PyTypeObject type = make_type();
  return PyType_Ready(&type) < 0 ? nullptr : &type;
}

PyObject* make_armed_call(PyObject* function, PyObject* options) {
  if (!PyFunction_Check(function) && !(PyMethod_Check(function) && PyFunction_Check(PyMethod_GET_FUNCTION(function)))) {
    PyErr_Format(PyExc_TypeError, "a Python function or method is needed, not %.200s", Py_TYPE(function)->tp_name);
    return nullptr;
  }
  PyTypeObject* type = armed_call_type();
  ArmedCall* armed = type ? PyObject_GC_New(ArmedCall, type) : nullptr;
  if (!armed) return nullptr;
  armed->vectorcall = armed_vectorcall;
  armed->function = Py_NewRef(function);
  armed->options = Py_XNewRef(options);
  armed->attributes = nullptr;
  armed->weak_references = nullptr;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(armed));
  return reinterpret_cast<PyObject*>(armed);
}

}  // namespace framejit::frame_hook
