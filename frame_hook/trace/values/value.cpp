// frame_hook/trace/values/value.cpp — attributes of instances, interned names, and which real objects are plain.
// It runs no Python code.
#include "frame_hook/trace/values/value.h"

#include <array>
#include <unordered_set>

#include "frame_hook/trace/values/object_kinds.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

Value* InstanceValue::find_attr(PyObject* name, bool* known) const {
  for (const auto& [n, v] : attrs)
    if (n.get() == name) {
      *known = true;
      return v;
    }
  *known = false;
  return nullptr;
}

PyObject* interned(std::string_view text) {
  // Indexed by the address of the text, nearly always a literal; two texts that share a slot take turns. The GIL is
  // held.
  struct Known { std::string text; PyObject* object = nullptr; };
  static std::array<Known, 512> table;
  Known& known = table[(reinterpret_cast<size_t>(text.data()) * 0x9E3779B97F4A7C15ull) >> 55];
  if (known.text != text || !known.object) {
    known.text = text;
    known.object = PyUnicode_InternFromString(known.text.c_str());
    static std::unordered_set<PyObject*> kept;  // holds a reference to each, for ever
    if (!kept.insert(known.object).second) Py_DECREF(known.object);
  }
  return known.object;
}

std::vector<PyRef> set_items(PyObject* set) {
  std::vector<PyRef> items;
  PyRef iterator = PyRef::steal(PySet_Type.tp_iter(set));
  while (PyObject* item = iterator ? PyIter_Next(iterator.get()) : nullptr) items.push_back(PyRef::steal(item));
  drop_error();
  return items;
}

bool is_plain(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
      type == &PyBytes_Type || type == &PyComplex_Type || type == &PyRange_Type || o == Py_None || o == Py_Ellipsis ||
      o == Py_NotImplemented)
    return true;
  if (is_numpy_scalar(o)) return true;
  if (type == &PyTuple_Type) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
      if (!is_plain(PyTuple_GET_ITEM(o, i))) return false;
    return true;
  }
  if (type == &PySlice_Type) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    return is_plain(s->start) && is_plain(s->stop) && is_plain(s->step);
  }
  if (type == &PyFrozenSet_Type) {
    for (const PyRef& item : set_items(o))
      if (!is_plain(item.get())) return false;
    return true;
  }
  return false;
}

PyObject* real_type(Value* v) { return v->object && PyType_Check(v->object.get()) ? v->object.get() : nullptr; }

}  // namespace framejit::frame_hook
