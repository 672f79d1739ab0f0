// guards/describe.cpp — objects as short text, without calling their own __repr__.
#include "guards/describe.h"

#include "guards/cpython/interrupts.h"
#include "guards/cpython/py_ref.h"
#include "guards/cpython/weak_objects.h"
#include "guards/guard_functions.h"

namespace framejit::guards {
namespace {

constexpr size_t kLongest = 80;
constexpr int kDeepest = 8;

std::string shortened(std::string text) {
  if (text.size() <= kLongest) return text;
  text.resize(kLongest - 3);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.pop_back();
  return text + "...";
}

bool is_literal(PyTypeObject* t) {
  return t == &PyLong_Type || t == &PyFloat_Type || t == &PyUnicode_Type || t == &PyBytes_Type || t == &PyBool_Type ||
         t == &PyComplex_Type || t == Py_TYPE(Py_None) || t == Py_TYPE(Py_Ellipsis);
}

// repr() of an int of thousands of digits raises (CPython has a limit), or takes long.
std::string literal(PyObject* object) {
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (!overflow) return std::to_string(value);
    return "<int of " + std::to_string(_PyLong_NumBits(object)) + " bits>";
  }
  PyRef text = PyRef::steal(Py_TYPE(object)->tp_repr(object));  // not PyObject_Repr: it runs signal handlers
  if (!text) {
    drop_error();
    return "<" + type_name(Py_TYPE(object)) + " object>";
  }
  return text_of_str(text.get());
}

std::string range(PyObject* object) {
  auto part = [&](const char* name) {
    const PyRef value = PyRef::steal(PyObject_GetAttrString(object, name));
    return value ? describe(value.get()) : "?";
  };
  const std::string step = part("step");
  return "range(" + part("start") + ", " + part("stop") + (step == "1" ? "" : ", " + step) + ")";
}

// A list may hold itself.
std::string sequence(PyObject* object) {
  const bool tuple = PyTuple_Check(object);
  static thread_local int depth = 0;
  if (depth >= kDeepest) return tuple ? "(...)" : "[...]";
  ++depth;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(object);
  std::string text(1, tuple ? '(' : '[');
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (i) text += ", ";
    if (text.size() > kLongest) break;
    text += describe(PySequence_Fast_GET_ITEM(object, i));
  }
  if (tuple && n == 1) text += ",";
  --depth;
  return text + (tuple ? ")" : "]");
}

}  // namespace

std::string text_of_str(PyObject* str) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(str, &size);
  if (data) return std::string(data, size);
  drop_error();  // lone surrogates
  return "<str>";
}

std::string type_name(PyTypeObject* type) {
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return type->tp_name;
  const std::string name = text_of_str(reinterpret_cast<PyHeapTypeObject*>(type)->ht_qualname);
  PyObject* key = PyUnicode_InternFromString("__module__");
  PyObject* module = type->tp_dict && key ? PyDict_GetItemWithError(type->tp_dict, key) : nullptr;
  Py_XDECREF(key);
  drop_error();
  if (!module || !PyUnicode_CheckExact(module)) return name;
  const std::string prefix = text_of_str(module);
  return prefix == "builtins" || prefix == "__main__" ? name : prefix + "." + name;
}

std::string describe(PyObject* object) {
  if (!object) return "nothing";
  if (PyWeakref_CheckRefExact(object)) {
    PyObject* alive = weak_target(object);
    return alive ? describe(alive) : "<dead object>";
  }
  PyTypeObject* type = Py_TYPE(object);
  if (is_compared_by_value(type)) return shortened(literal(object));
  if (type == &PyRange_Type) return shortened(range(object));
  if (is_literal(type)) return shortened(literal(object));
  if (PyType_Check(object)) return type_name(reinterpret_cast<PyTypeObject*>(object));
  if (type == &PyTuple_Type || type == &PyList_Type) return shortened(sequence(object));
  if (PyModule_Check(object)) {
    const char* name = PyModule_GetName(object);
    drop_error();
    return name ? name : "<module>";
  }
  if (PyFunction_Check(object)) return text_of_str(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
  if (PyCode_Check(object)) return "<code " + text_of_str(reinterpret_cast<PyCodeObject*>(object)->co_qualname) + ">";
  if (PyCFunction_Check(object)) return reinterpret_cast<PyCFunctionObject*>(object)->m_ml->ml_name;
  return "<" + type_name(type) + " object>";
}

}  // namespace framejit::guards
