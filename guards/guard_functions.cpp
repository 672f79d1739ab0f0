// guards/guard_functions.cpp — the checks and fetches that need more than a load or two.
#include "guards/guard_functions.h"

#include <structmember.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>
#include <vector>

#include "graph/int64_range.h"
#include "guards/class_state.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/py_ref.h"

namespace framejit::guards {
namespace {

bool same_tuple(PyObject* a, PyObject* b) {
  const Py_ssize_t n = PyTuple_GET_SIZE(a);
  if (PyTuple_GET_SIZE(b) != n) return false;
  for (Py_ssize_t i = 0; i < n; ++i)
    if (!same_value(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  return true;
}

// Live entries of a set's table; a removed one keeps a dummy key with hash -1 (Objects/setobject.c).
template <class Visit>
bool all_entries(PyObject* set, Visit visit) {
  auto* object = reinterpret_cast<PySetObject*>(set);
  for (const setentry* entry = object->table; entry <= object->table + object->mask; ++entry)
    if (entry->key && entry->hash != -1 && !visit(*entry)) return false;
  return true;
}

bool set_has(PyObject* set, const setentry& wanted) {
  return !all_entries(
      set, [&](const setentry& entry) { return entry.hash != wanted.hash || !same_value(entry.key, wanted.key); });
}

bool same_set(PyObject* a, PyObject* b) {
  return PySet_GET_SIZE(a) == PySet_GET_SIZE(b) &&
         all_entries(a, [&](const setentry& entry) { return set_has(b, entry); });
}

bool same_bytes(PyObject* a, PyObject* b) {
  return PyBytes_GET_SIZE(a) == PyBytes_GET_SIZE(b) &&
         std::memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), PyBytes_GET_SIZE(a)) == 0;
}

// Exact strs compare equal when length, width and characters are the same: CPython stores each str in its narrowest
// width.
bool same_str(PyObject* a, PyObject* b) {
  const Py_ssize_t n = PyUnicode_GET_LENGTH(a);
  return PyUnicode_GET_LENGTH(b) == n && PyUnicode_KIND(a) == PyUnicode_KIND(b) &&
         std::memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b), n * PyUnicode_KIND(a)) == 0;
}

bool same_int(PyObject* a, PyObject* b) {
  int a_overflow = 0, b_overflow = 0;
  const long long x = PyLong_AsLongLongAndOverflow(a, &a_overflow), y = PyLong_AsLongLongAndOverflow(b, &b_overflow);
  if (!a_overflow && !b_overflow) return x == y;
  if (a_overflow != b_overflow) return false;
  const PyRef equal = PyRef::steal(PyLong_Type.tp_richcompare(a, b, Py_EQ));  // a subclass may have its own ==
  return equal.get() == Py_True;
}

bool same_float(PyObject* a, PyObject* b) {
  const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
  return std::memcmp(&x, &y, sizeof x) == 0;
}

// Equal ranges may differ in start or stop if they are empty or have one item.
bool same_range(PyObject* a, PyObject* b) {
  static PyObject* const names[] = {PyUnicode_InternFromString("start"), PyUnicode_InternFromString("stop"),
                                    PyUnicode_InternFromString("step")};
  for (PyObject* name : names) {
    const PyRef x = PyRef::steal(PyObject_GenericGetAttr(a, name)), y = PyRef::steal(PyObject_GenericGetAttr(b, name));
    if (!same_value(x.get(), y.get())) return false;
  }
  return true;
}

// For two objects of a class that shows its value as memory: -0.0 and NaN are told apart.
bool same_memory(PyObject* a, PyObject* b) {
  Py_buffer x, y;
  if (PyObject_GetBuffer(a, &x, PyBUF_SIMPLE) < 0) return drop_error(), false;
  const bool has_both = PyObject_GetBuffer(b, &y, PyBUF_SIMPLE) == 0;
  const bool same = has_both && x.len == y.len && std::memcmp(x.buf, y.buf, static_cast<size_t>(x.len)) == 0;
  PyBuffer_Release(&x);
  if (has_both) PyBuffer_Release(&y);
  else drop_error();
  return same;
}

std::vector<PyTypeObject*>& types_compared_by_value() {
  static auto* types = new std::vector<PyTypeObject*>;
  return *types;
}

PyRef& fresh_attribute() {  // never destroyed: a thread may end after the interpreter
  static thread_local PyRef* kept = new PyRef;
  return *kept;
}

}  // namespace

bool same_order(PyObject* a, PyObject* b) {  // of equal sets: the same order now, and after the same changes
  auto* other = reinterpret_cast<PySetObject*>(b);
  const auto* self = reinterpret_cast<PySetObject*>(a);
  if (self->mask != other->mask || self->fill != other->fill || self->finger != other->finger) return false;
  const setentry* next = other->table;
  return all_entries(a, [&](const setentry& entry) {
    while (!next->key || next->hash == -1) ++next;
    return same_value(entry.key, (next++)->key);
  });
}

bool same_value(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return false;
  if (type == &PyLong_Type) return same_int(a, b);
  if (type == &PyUnicode_Type) return same_str(a, b);
  if (type == &PyFloat_Type) return same_float(a, b);
  if (type == &PyTuple_Type) return same_tuple(a, b);
  if (type == &PyBytes_Type) return same_bytes(a, b);
  if (type == &PyComplex_Type) {
    const Py_complex x = reinterpret_cast<PyComplexObject*>(a)->cval, y = reinterpret_cast<PyComplexObject*>(b)->cval;
    return std::memcmp(&x, &y, sizeof x) == 0;
  }
  if (type == &PyFrozenSet_Type || type == &PySet_Type) return same_set(a, b);
  if (type == &PySlice_Type) {
    auto *x = reinterpret_cast<PySliceObject*>(a), *y = reinterpret_cast<PySliceObject*>(b);
    return same_value(x->start, y->start) && same_value(x->stop, y->stop) && same_value(x->step, y->step);
  }
  if (type == &PyRange_Type) return same_range(a, b);
  if (!is_compared_by_value(type)) return false;
  if (type->tp_as_buffer && type->tp_as_buffer->bf_getbuffer) return same_memory(a, b);
  const PyRef equal = PyRef::steal(type->tp_richcompare(a, b, Py_EQ));
  if (!equal) drop_error();
  return equal.get() == Py_True;
}

void compare_by_value(PyTypeObject* type) {
  if (!is_compared_by_value(type)) types_compared_by_value().push_back(type);
}

bool is_compared_by_value(PyTypeObject* type) {
  const auto& types = types_compared_by_value();
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool holds_value(PyObject* object, PyObject* exact) {
  if (PyFloat_CheckExact(exact)) return PyFloat_Check(object) && same_float(object, exact);
  if (PyLong_CheckExact(exact)) return PyLong_Check(object) && same_int(object, exact);
  if (PyUnicode_CheckExact(exact)) return PyUnicode_Check(object) && same_str(object, exact);
  return PyBytes_CheckExact(exact) && PyBytes_Check(object) && same_bytes(object, exact);
}

Py_ssize_t builtin_length(PyObject* object) {
  if (PyTuple_Check(object)) return PyTuple_GET_SIZE(object);
  if (PyList_Check(object)) return PyList_GET_SIZE(object);
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyUnicode_Check(object)) return PyUnicode_GET_LENGTH(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  if (PyBytes_Check(object)) return PyBytes_GET_SIZE(object);
  return -1;
}

bool has_keys(PyObject* dict, PyObject* keys) {
  const Py_ssize_t n = PyTuple_GET_SIZE(keys);
  if (PyDict_GET_SIZE(dict) != n) return false;
  Py_ssize_t position = 0, i = 0;
  PyObject *key, *value;
  while (i < n && PyDict_Next(dict, &position, &key, &value) && key == PyTuple_GET_ITEM(keys, i))
    ++i;  // they are mostly in the same order
  for (; i < n; ++i) {
    PyObject* wanted = PyTuple_GET_ITEM(keys, i);
    if (!find_in_dict(dict, wanted, PyObject_Hash(wanted))) return false;
  }
  return true;
}

bool is_compared_by_identity(PyObject* key) {
  return !PyUnicode_Check(key) && !PyLong_Check(key) && !PyFloat_Check(key) && !PyComplex_Check(key) &&
         !PyBytes_Check(key) && !PyTuple_Check(key) && !PyAnySet_Check(key) && !PySlice_Check(key) &&
         !PyRange_Check(key) && !is_compared_by_value(Py_TYPE(key));
}

namespace {

bool is_key(PyObject* key, PyObject* kept) {
  PyObject* const wanted = held_object(kept);
  return wanted && same_value(key, wanted);
}

}  // namespace

bool has_keys_in_order(PyObject* dict, PyObject* keys) {
  const Py_ssize_t n = PyTuple_GET_SIZE(keys);
  if (PyDict_GET_SIZE(dict) != n) return false;
  Py_ssize_t position = 0, i = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) {
    if (i >= n || !is_key(key, PyTuple_GET_ITEM(keys, i))) return false;
    ++i;
  }
  return i == n;
}

PyRef keys_in_order(PyObject* dict) {
  const Py_ssize_t n = PyDict_GET_SIZE(dict);
  PyRef keys = PyRef::steal(PyTuple_New(n));
  std::unordered_set<PyObject*> stored;
  Py_ssize_t position = 0, i = 0;
  PyObject *stored_key, *value;
  for (; PyDict_Next(dict, &position, &stored_key, &value); ++i) {
    if (PyODict_Check(dict)) stored.insert(stored_key);
    else PyTuple_SET_ITEM(keys.get(), i, Py_NewRef(stored_key));
  }
  if (!PyODict_Check(dict)) return keys;
  const PyRef iterator = PyRef::steal(PyODict_Type.tp_iter(dict));
  i = 0;
  while (PyRef key = PyRef::steal(iterator ? PyIter_Next(iterator.get()) : nullptr)) {
    if (i == n || stored.erase(key.get()) == 0) return {};
    PyTuple_SET_ITEM(keys.get(), i++, key.release());
  }
  drop_error();
  return i == n ? std::move(keys) : PyRef();
}

bool is_linked_in_order(PyObject* ordered, PyObject* keys) {
  const PyRef iterator = PyRef::steal(PyODict_Type.tp_iter(ordered));
  Py_ssize_t i = 0;
  while (const PyRef key = PyRef::steal(iterator ? PyIter_Next(iterator.get()) : nullptr)) {
    if (i >= PyTuple_GET_SIZE(keys) || !is_key(key.get(), PyTuple_GET_ITEM(keys, i))) return false;
    ++i;
  }
  drop_error();
  return i == PyTuple_GET_SIZE(keys);
}

bool is_number_or_text(PyObject* object) {
  return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object) ||
         PyUnicode_CheckExact(object);
}

uint64_t type_version_of(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__framejit_version__");
  _PyType_Lookup(type, name);  // a lookup gives the type a tag if it has none, as long as CPython has tags left
  return type_version(reinterpret_cast<PyObject*>(type));
}

bool is_class_unchanged(PyObject* type, const Step& step) {
  if (class_state(reinterpret_cast<PyTypeObject*>(type)) != static_cast<uint64_t>(step.number)) return false;
  step.seen = type_version(type);
  return true;
}

PyObject* make_instance_dict(PyObject* object) {
  if (Py_TYPE(object)->tp_dictoffset == 0) {
#if PY_VERSION_HEX >= 0x030C0000
    if (!(Py_TYPE(object)->tp_flags & Py_TPFLAGS_MANAGED_DICT)) return nullptr;
#else
    return nullptr;
#endif
  }
  PyObject* dict = PyObject_GenericGetDict(object, nullptr);
  if (!dict) {
    drop_error();
    return nullptr;
  }
  Py_DECREF(dict);  // the object keeps it alive
  return dict;
}

PyObject* fetch_member(const RunState&, PyObject* base, const Step& step) {
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(base), step.object);
  if (!descriptor || Py_TYPE(descriptor) != &PyMemberDescr_Type) return nullptr;
  const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
  char* const place = reinterpret_cast<char*>(base) + member->offset;
  if (member->type == T_BOOL) return *place ? Py_True : Py_False;  // __suppress_context__ of an exception
  if (member->type != T_OBJECT && member->type != T_OBJECT_EX) return nullptr;
  PyObject* value = *reinterpret_cast<PyObject**>(place);
  return value || member->type == T_OBJECT_EX ? value : Py_None;
}

PyObject* fetch_attribute(const RunState&, PyObject* base, const Step& step) {
  PyTypeObject* type = Py_TYPE(base);
  PyObject* descriptor = _PyType_Lookup(type, step.object);
  if (!descriptor) return nullptr;
  PyTypeObject* kind = Py_TYPE(descriptor);
  if (kind != &PyGetSetDescr_Type && kind != &PyMemberDescr_Type) return nullptr;  // any other descriptor may run
                                                                                   // Python code
  PyObject* value = kind->tp_descr_get(descriptor, base, reinterpret_cast<PyObject*>(type));
  if (!value) {
    drop_error();
    return nullptr;
  }
  if (Py_REFCNT(value) == 1) fresh_attribute() = PyRef::steal(value);
  else Py_DECREF(value);
  return value;
}

namespace {

std::vector<PyRef>&
computed_objects() {  // never destroyed: a thread may end after the interpreter. The GIL protects it.
  static auto* const objects = new std::vector<PyRef>;
  return *objects;
}

ReadNumber g_read_number = nullptr;

PyObject* keep_computed(PyObject* made) {
  if (!made) drop_error();
  else computed_objects().push_back(PyRef::steal(made));
  return made;
}

}  // namespace

void set_number_reader(ReadNumber reader) { g_read_number = reader; }

bool have_same_number(PyObject* a, PyObject* b) {
  double x = 0, y = 0;
  return g_read_number && g_read_number(a, x) && g_read_number(b, y) &&
         std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
}

void forget_computed() { computed_objects().clear(); }

PyObject* fetch_computed(const RunState& run, PyObject* base, const Step& step) {
  PyObject* const operands[] = {base, step.number >= 0 ? run.registers[step.number] : nullptr};
  const size_t count = step.number >= 0 ? 2 : 1;
  for (size_t i = 0; i < count; ++i)
    if (!is_number_or_text(operands[i])) return nullptr;
  PyObject* made = keep_computed(PyObject_Vectorcall(step.object, operands, count, nullptr));
  return made && is_number_or_text(made) ? made : nullptr;
}

PyObject* fetch_weak_reference(const RunState&, PyObject* base, const Step&) {
  return keep_computed(PyWeakref_NewRef(base, nullptr));
}

PyObject* fetch_tensor_number(const RunState&, PyObject* base, const Step&) {
  double number = 0;
  return g_read_number && g_read_number(base, number) ? keep_computed(PyFloat_FromDouble(number)) : nullptr;
}

PyObject* fetch_size(const RunState& run, PyObject*, const Step& step) {
  const auto value = graph::value_of(run.set->sizes[step.number], {run.symbols, run.set->symbol_count});
  return value ? keep_computed(PyLong_FromLongLong(*value)) : nullptr;
}

PyObject* fetch_context_value(const RunState&, PyObject* base, const Step&) {
  if (!PyContextVar_CheckExact(base)) return nullptr;
  PyObject* value = nullptr;
  if (PyContextVar_Get(base, nullptr, &value) < 0) drop_error();
  if (!value) return nullptr;
  Py_DECREF(value);  // the context keeps it alive, or the variable does if it is the default
  return value;
}

}  // namespace framejit::guards
