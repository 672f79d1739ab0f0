// guards/class_state.h — which changes of a class invalidate a trace.
//
// A class has a number that stays the same while only its data attributes get other values: numbers, strings, None and
// builtin containers under names that are not __special__. Code that reads one guards the value, as for any other
// source. Every other change of a class makes a new number: of its names, functions, descriptors, __special__
// attributes and bases. (Its version tag changes with every assignment, including that of a call counter, so it only
// says when to look again.)
#pragma once

#include <Python.h>

#include <cstdint>

namespace framejit::guards {

// Never 0, and unique among all states of all classes. No Python code runs, no exception is left. The GIL must be held.
uint64_t class_state(PyTypeObject* type);
// For a built-in method: what the class of its self has under its name, borrowed; null if that is something else.
PyObject* descriptor_of_method(PyObject* object);
bool is_class_data(PyObject* name, PyObject* value);  // whether an item of a class's dict is a data attribute

}  // namespace framejit::guards
