// frame_hook/trace/values/known_types.h — types of C code that the tracer knows, by identity: rows of known_types.def.
//
// A type is looked up in its module once the module is loaded; before that no object can have it. The type found there
// must have been made by C code, because the program may have put its own class in its place.
#pragma once

#include <Python.h>

#include <cstdint>

namespace framejit::frame_hook {

enum class KnownType : uint8_t {
#define KNOWN_TYPE(id, module, name, why) id,
#include "frame_hook/trace/values/known_types.def"
#undef KNOWN_TYPE
};

PyTypeObject* known_type(KnownType which);  // borrowed, for ever; null: its module is not loaded
inline bool is_known(const PyTypeObject* type, KnownType which) { return type == known_type(which); }
bool is_made_by_c(PyTypeObject* type);      // not by a class statement or by type()

// The dict of a module that is loaded under this name, or null; borrowed. A module is recognised by its dict, which is
// the globals of the functions that it defines, never by the name that they have there.
PyObject* dict_of_module(const char* name);

}  // namespace framejit::frame_hook
