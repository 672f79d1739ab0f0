// guards/class_state.h — which changes of a class a trace minds.
//
// A class has a number that stays while only its data attributes get other values: numbers, strings, None and builtin
// containers under names that are not __special__. Whoever reads one guards the value that was read, as of any other
// source. Whatever else a class is made of makes a new number when it changes: the names that it has, its functions,
// descriptors, __special__ attributes and bases. (Its version tag changes with every assignment, a counter of calls
// included, and so only says when to look again.)
#pragma once

#include <Python.h>

#include <cstdint>

namespace framejit::guards {

// Never 0, and unique among all states of all classes. No Python code runs, no exception is left. The GIL must be held.
uint64_t class_state(PyTypeObject* type);
// Of a built-in method: what the class of its self has under its name, borrowed; null where that is something else.
PyObject* descriptor_of_method(PyObject* object);
bool is_class_data(PyObject* name, PyObject* value);  // an item of a class's dict that is a data attribute

}  // namespace framejit::guards
