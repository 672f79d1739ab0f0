// guards/fetch.h — how each kind of source is fetched: one function per row of source_kinds.def.
//
// A fetch returns a borrowed object, or null if there is none. It assumes only that its base is an object, so no guard
// has to come first. No Python code runs, and no exception is left set.
#pragma once

#include "guards/class_state.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/iterators.h"
#include "guards/cpython/lru_cache.h"
#include "guards/cpython/weak_objects.h"
#include "guards/step.h"

namespace framejit::guards {

inline PyObject* fetch_local(const RunState& run, PyObject*, const Step& step) { return run.frame.locals[step.number]; }
inline PyObject* fetch_stack(const RunState& run, PyObject*, const Step& step) {
  return step.number < run.frame.stack_size ? run.frame.stack[step.number] : nullptr;
}
inline PyObject* fetch_globals(const RunState& run, PyObject*, const Step&) { return run.frame.globals; }
inline PyObject* fetch_builtins(const RunState& run, PyObject*, const Step&) { return run.frame.builtins; }
inline PyObject* fetch_frame_function(const RunState& run, PyObject*, const Step&) { return run.frame.function; }
inline PyObject* fetch_sys_modules(const RunState&, PyObject*, const Step&) { return PyImport_GetModuleDict(); }
inline PyObject* fetch_constant(const RunState&, PyObject*, const Step& step) { return step.object; }

PyObject* make_instance_dict(PyObject* object);
inline PyObject* fetch_instance_dict(const RunState&, PyObject* base, const Step&) {
  PyObject** dict = _PyObject_GetDictPtr(base);  // makes the dict of an object with inline values, once per object
  PyObject* found = dict && *dict ? *dict : make_instance_dict(base);
  return found && PyDict_Check(found) ? found : nullptr;
}

inline PyObject* find_in_dict(PyObject* dict, PyObject* key, Py_hash_t hash) {
  PyObject* item = _PyDict_GetItem_KnownHash(dict, key, hash);
  if (!item) drop_error();
  return item;
}
inline PyObject* fetch_dict_item(const RunState&, PyObject* base, const Step& step) {
  return PyDict_Check(base) ? find_in_dict(base, step.object, step.hash) : nullptr;
}
inline PyObject* fetch_list_item(const RunState&, PyObject* base, const Step& step) {
  return PyList_Check(base) && step.number < PyList_GET_SIZE(base) ? PyList_GET_ITEM(base, step.number) : nullptr;
}
inline PyObject* fetch_tuple_item(const RunState&, PyObject* base, const Step& step) {
  return PyTuple_Check(base) && step.number < PyTuple_GET_SIZE(base) ? PyTuple_GET_ITEM(base, step.number) : nullptr;
}
inline PyObject* fetch_type_of(const RunState&, PyObject* base, const Step&) {
  return reinterpret_cast<PyObject*>(Py_TYPE(base));
}
inline PyObject* fetch_type_lookup(const RunState&, PyObject* base, const Step& step) {
  return PyType_Check(base) ? _PyType_Lookup(reinterpret_cast<PyTypeObject*>(base), step.object) : nullptr;
}
// object: the name of a slot that the type of the base declares; property.fget and the like are slots too.
PyObject* fetch_member(const RunState& run, PyObject* base, const Step& step);
inline PyObject* fetch_cell_contents(const RunState&, PyObject* base, const Step&) {
  return PyCell_Check(base) ? PyCell_GET(base) : nullptr;
}

inline PyFunctionObject* as_function(PyObject* object) {
  return PyFunction_Check(object) ? reinterpret_cast<PyFunctionObject*>(object) : nullptr;
}
// A part of a function that is not set reads as None, as in Python.
inline PyObject* or_none(PyObject* object) { return object ? object : Py_None; }
inline PyObject* fetch_function_defaults(const RunState&, PyObject* base, const Step&) {
  auto* f = as_function(base);
  return f ? or_none(f->func_defaults) : nullptr;
}
inline PyObject* fetch_function_kwdefaults(const RunState&, PyObject* base, const Step&) {
  auto* f = as_function(base);
  return f ? or_none(f->func_kwdefaults) : nullptr;
}
inline PyObject* fetch_function_closure(const RunState&, PyObject* base, const Step&) {
  auto* f = as_function(base);
  return f ? or_none(f->func_closure) : nullptr;
}
inline PyObject* fetch_function_globals(const RunState&, PyObject* base, const Step&) {
  auto* f = as_function(base);
  return f ? f->func_globals : nullptr;
}
inline PyObject* fetch_method_self(const RunState&, PyObject* base, const Step&) {
  if (PyMethod_Check(base)) return PyMethod_GET_SELF(base);
  return PyCFunction_Check(base) ? PyCFunction_GET_SELF(base) : nullptr;
}
inline PyObject* fetch_method_function(const RunState&, PyObject* base, const Step&) {
  return PyMethod_Check(base) ? PyMethod_GET_FUNCTION(base) : descriptor_of_method(base);
}

inline PyObject* fetch_iterator_item(const RunState&, PyObject* base, const Step& step) {
  return peek_item(base, step.number, false);
}
inline PyObject* fetch_iterator_key(const RunState&, PyObject* base, const Step& step) {
  return peek_item(base, step.number, true);
}
inline PyObject* fetch_iterator_part(const RunState&, PyObject* base, const Step& step) {
  return iterator_part(base, step.number);
}
inline PyObject* fetch_iterator_container(const RunState&, PyObject* base, const Step&) {
  return has_items(Py_TYPE(base)) ? container_of(base) : nullptr;
}

inline PyObject* fetch_lru_cache(const RunState&, PyObject* base, const Step&) { return lru_cache_of(base); }
inline PyObject* fetch_lru_result(const RunState&, PyObject* base, const Step&) { return lru_result_of(base); }

inline PyObject* fetch_referent(const RunState&, PyObject* base, const Step&) {
  return PyWeakref_CheckRef(base) ? or_none(weak_target(base)) : nullptr;
}
PyObject* fetch_weak_reference(const RunState& run, PyObject* base, const Step& step);  // kept as a computed object

// object: the name. If the getter makes a new object, it is kept until the thread's next such fetch.
PyObject* fetch_attribute(const RunState& run, PyObject* base, const Step& step);
// A new object, kept until forget_computed().
PyObject* fetch_computed(const RunState& run, PyObject* base, const Step& step);
PyObject* fetch_tensor_number(const RunState& run, PyObject* base, const Step& step);  // kept as a computed object
PyObject* fetch_size(const RunState& run, PyObject*, const Step& step);
void forget_computed();  // called where a program begins: by now, what the last one computed is held elsewhere
PyObject* fetch_context_value(const RunState& run, PyObject* base, const Step& step);

}  // namespace framejit::guards
