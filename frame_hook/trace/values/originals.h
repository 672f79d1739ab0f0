// frame_hook/trace/values/originals.h — the objects that modules of CPython, torch and NumPy define, whatever the
// program has put in their places.
//
// An object is looked up by module and name once, and kept for ever. It is believed only if it says itself that it is
// what was looked for: a C function by its module and its name in C, a type of C code by its name in C, a Python
// function by its globals and the name of its code, a class by its functions. Modules of originals.def are read when
// framejit is imported, others when they are first asked for an object. No module is imported for this.
#pragma once

#include <Python.h>

namespace framejit::frame_hook {

// What a module defines under a name, or under the name of a class and that of a member: "list.append". Borrowed, for
// ever. Null: the module is not loaded, lacks the name, or has something else in that place.
PyObject* find_original(const char* module, const char* path);
PyTypeObject* find_original_type(const char* module, const char* path);  // the same; null as well if it is no type
// The same. In place of null, a break.
PyObject* original(const char* module, const char* path);
PyTypeObject* original_type(const char* module, const char* path);

// For what C code looks up by name itself: a break as well if the module has something else now.
PyObject* unreplaced(const char* module, const char* name);
// Whether an object is the one that a module defines so; the module may hold another one.
bool is_original(PyObject* object, const char* module, const char* path);

inline PyObject* builtin_function(const char* name) { return original("builtins", name); }
inline PyObject* operator_function(const char* name) { return original("_operator", name); }

void take_originals();  // those of the modules of originals.def

}  // namespace framejit::frame_hook
