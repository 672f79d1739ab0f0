// guards/guard_functions.h — the check functions, one per row of guard_kinds.def. They run no Python code and leave no
// exception set.
#pragma once

#include "guards/fetch.h"
#include "guards/step.h"

namespace framejit::guards {

// Same exact type and value: bits of floats, True and 1 told apart, tuples and frozensets element by element. Types
// passed to compare_by_value(): their own ==. Others: identity.
bool same_value(PyObject* a, PyObject* b);
// Says that instances of this type of a C extension are immutable and equal if its == says so, that its == and repr()
// run no Python code, and that the type lives for ever.
void compare_by_value(PyTypeObject* type);
bool is_compared_by_value(PyTypeObject* type);
// Whether an instance of a subclass of int, float, str or bytes holds the value of `exact`, bit by bit.
bool holds_value(PyObject* object, PyObject* exact);
bool same_order(PyObject* a, PyObject* b);  // two equal sets iterate in the same order
// len() of a builtin container or str or bytes, or of that part of a subclass's instance; -1 for others.
Py_ssize_t builtin_length(PyObject* object);
bool has_keys(PyObject* dict, PyObject* keys);  // exactly these exact strs
// No value that another object may have too. Others of a class of the user may be equal: only the class can say so.
bool is_compared_by_identity(PyObject* key);
bool has_keys_in_order(PyObject* dict, PyObject* keys);  // keys: as WeakObjects holds them
// The keys of a dict as a tuple, in the order of its iteration. An OrderedDict keeps that order in a list of its own.
// Null if this list has other keys than the dict: dict's own methods can do that to an OrderedDict.
PyRef keys_in_order(PyObject* dict);
bool is_linked_in_order(PyObject* ordered, PyObject* keys);  // has_keys_in_order for an OrderedDict, by its own list
// What sources of kind computed take and return: exact float, int, bool, str.
bool is_number_or_text(PyObject* object);
// How the number of a 0-dim tensor is read; false: the object has none. Set once, by the code that knows tensors.
using ReadNumber = bool (*)(PyObject* tensor, double& number);
void set_number_reader(ReadNumber reader);
bool have_same_number(PyObject* a, PyObject* b);  // bit by bit
// The version tag of a type, which gets one if it has none; 0 if CPython has none left.
uint64_t type_version_of(PyTypeObject* type);

bool is_class_unchanged(PyObject* type, const Step& step);  // looks at the class; stores the version for which the
                                                            // guard held

inline bool guard_is(const RunState&, PyObject* object, const Step& step) { return object == step.object; }
inline bool guard_type_is(const RunState&, PyObject* object, const Step& step) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == step.object;
}
inline bool guard_type_unchanged(const RunState&, PyObject* object, const Step& step) {
  if (!PyType_Check(object)) return false;
  const uint64_t version = type_version(object);
  return (version != 0 && version == step.seen) || is_class_unchanged(object, step);
}
inline bool guard_same(const RunState& run, PyObject* object, const Step& step) {
  return object == run.registers[step.target];
}
inline bool guard_distinct(const RunState& run, PyObject* object, const Step& step) {
  return object != run.registers[step.target];
}
inline bool guard_same_number(const RunState& run, PyObject* object, const Step& step) {
  return have_same_number(object, run.registers[step.target]);
}
inline bool guard_length(const RunState&, PyObject* object, const Step& step) {
  return builtin_length(object) == step.number;
}
inline bool guard_equals(const RunState&, PyObject* object, const Step& step) {
  return object == step.object ||
         (same_value(object, step.object) && (step.number == 0 || same_order(object, step.object)));
}
inline bool guard_holds(const RunState&, PyObject* object, const Step& step) {
  return holds_value(object, step.object);
}
inline bool guard_iterator_has(const RunState&, PyObject* object, const Step& step) {
  return items_left(object) >= step.number;
}
inline bool guard_iterator_ends(const RunState&, PyObject* object, const Step& step) {
  return items_left(object) == step.number;
}
inline bool guard_cache_agrees(const RunState&, PyObject* object, const Step& step) {
  PyObject* cache = lru_cache_of(object);
  PyObject* entry = cache ? find_in_dict(cache, PyTuple_GET_ITEM(step.object, 0), step.hash) : nullptr;
  return cache && (!entry || same_value(lru_result_of(entry), PyTuple_GET_ITEM(step.object, 1)));
}
inline bool guard_function_code(const RunState&, PyObject* object, const Step& step) {
  return PyFunction_Check(object) && PyFunction_GET_CODE(object) == step.object;
}
inline bool guard_dict_has(const RunState&, PyObject* object, const Step& step) {
  return PyDict_Check(object) && find_in_dict(object, step.object, step.hash);
}
inline bool guard_dict_lacks(const RunState&, PyObject* object, const Step& step) {
  return PyDict_Check(object) && !find_in_dict(object, step.object, step.hash);
}
inline bool guard_dict_key_set(const RunState&, PyObject* object, const Step& step) {
  return PyDict_Check(object) && has_keys(object, step.object);
}
inline bool guard_dict_keys(const RunState&, PyObject* object, const Step& step) {
  return PyDict_Check(object) && has_keys_in_order(object, step.object);
}
inline bool guard_linked_order(const RunState&, PyObject* object, const Step& step) {
  return PyODict_Check(object) && is_linked_in_order(object, step.object);
}
inline bool guard_tensor(const RunState& run, PyObject* object, const Step& step) {
  return step.facts->matches(object, run.symbols);
}
inline bool guard_int_range(const RunState& run, PyObject* object, const Step& step) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  run.symbols[step.number] = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}

}  // namespace framejit::guards
