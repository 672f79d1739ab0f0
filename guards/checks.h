// guards/checks.h — the check functions, one per row of guard_kinds.def. No Python code runs, no exception is left set.
#pragma once

#include "guards/fetch.h"
#include "guards/step.h"

namespace framejit::guards {

// Same exact type and value: bits of floats, True and 1 told apart, tuples and frozensets element by element. Types
// that were named to compare_by_value(): their own ==. Others: identity.
bool same_value(PyObject* a, PyObject* b);
// Instances of this type of a C extension, which lives for ever, are immutable and equal when its == says so; == and
// repr() run no Python code.
void compare_by_value(PyTypeObject* type);
bool is_compared_by_value(PyTypeObject* type);
// What the object holds as an instance of a subclass of int, float, str or bytes is the value of `exact`, bit by bit.
bool holds_value(PyObject* object, PyObject* exact);
bool same_order(PyObject* a, PyObject* b);  // two equal sets iterate alike
// len() of a builtin container or str or bytes, subclasses' builtin part included; -1 for others.
Py_ssize_t builtin_length(PyObject* object);
bool has_keys(PyObject* dict, PyObject* keys);  // these exact strs, and no others
bool has_keys_in_order(PyObject* dict, PyObject* keys);
bool is_linked_in_order(PyObject* ordered, PyObject* keys);  // of an OrderedDict, by its own list
// What sources of kind computed are made of and give: exact float, int, bool, str.
bool is_number_or_text(PyObject* object);
// The version tag of a type, given one when it has none; 0 when CPython has no more to give.
uint64_t type_version_of(PyTypeObject* type);

bool is_class_unchanged(PyObject* type, const Step& step);  // looks at the class; keeps the version at which it held

inline bool check_is(const RunState&, PyObject* object, const Step& step) { return object == step.object; }
inline bool check_type_is(const RunState&, PyObject* object, const Step& step) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == step.object;
}
inline bool check_type_unchanged(const RunState&, PyObject* object, const Step& step) {
  if (!PyType_Check(object)) return false;
  const uint64_t version = type_version(object);
  return (version != 0 && version == step.seen) || is_class_unchanged(object, step);
}
inline bool check_same(const RunState& run, PyObject* object, const Step& step) {
  return object == run.registers[step.target];
}
inline bool check_distinct(const RunState& run, PyObject* object, const Step& step) {
  return object != run.registers[step.target];
}
inline bool check_length(const RunState&, PyObject* object, const Step& step) {
  return builtin_length(object) == step.number;
}
inline bool check_equals(const RunState&, PyObject* object, const Step& step) {
  return object == step.object ||
         (same_value(object, step.object) && (step.number == 0 || same_order(object, step.object)));
}
inline bool check_holds(const RunState&, PyObject* object, const Step& step) {
  return holds_value(object, step.object);
}
inline bool check_iterator_has(const RunState&, PyObject* object, const Step& step) {
  return items_left(object) >= step.number;
}
inline bool check_iterator_ends(const RunState&, PyObject* object, const Step& step) {
  return items_left(object) == step.number;
}
inline bool check_cache_agrees(const RunState&, PyObject* object, const Step& step) {
  PyObject* cache = lru_cache_of(object);
  PyObject* entry = cache ? find_in_dict(cache, PyTuple_GET_ITEM(step.object, 0), step.hash) : nullptr;
  return cache && (!entry || same_value(lru_result_of(entry), PyTuple_GET_ITEM(step.object, 1)));
}
inline bool check_function_code(const RunState&, PyObject* object, const Step& step) {
  return PyFunction_Check(object) && PyFunction_GET_CODE(object) == step.object;
}
inline bool check_dict_has(const RunState&, PyObject* object, const Step& step) {
  return PyDict_Check(object) && find_in_dict(object, step.object, step.hash);
}
inline bool check_dict_lacks(const RunState&, PyObject* object, const Step& step) {
  return PyDict_Check(object) && !find_in_dict(object, step.object, step.hash);
}
inline bool check_dict_key_set(const RunState&, PyObject* object, const Step& step) {
  return PyDict_Check(object) && has_keys(object, step.object);
}
inline bool check_dict_keys(const RunState&, PyObject* object, const Step& step) {
  return PyDict_Check(object) && has_keys_in_order(object, step.object);
}
inline bool check_linked_order(const RunState&, PyObject* object, const Step& step) {
  return PyODict_Check(object) && is_linked_in_order(object, step.object);
}
inline bool check_tensor(const RunState& run, PyObject* object, const Step& step) {
  return step.facts->matches(object, run.symbols);
}
inline bool check_int_range(const RunState& run, PyObject* object, const Step& step) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  run.symbols[step.number] = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}

}  // namespace framejit::guards
