// frame_hook/trace/values/known_types.h — types of C code that the tracer knows, by identity: rows of known_types.def.
//
// A type is looked up in its module once the module is loaded; before that no object can have it. The type found there
// must have been made by C code, because the program may have put its own class in its place.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string_view>

namespace framejit::frame_hook {

enum class KnownType : uint8_t {
#define KNOWN_TYPE(id, module, name, why) id,
#include "frame_hook/trace/values/known_types.def"
#undef KNOWN_TYPE
};

PyTypeObject* known_type(KnownType which);  // borrowed, for ever; null: its module is not loaded
inline bool is_known(const PyTypeObject* type, KnownType which) { return type == known_type(which); }
bool is_made_by_c(PyTypeObject* type);      // not by a class statement or by type()
PyTypeObject* builtin_base(PyTypeObject* type);  // the C class that defines the layout of its instances
// Whether C code made an object, or Python code of the package: the program may have put its own in that place.
bool is_of_package(PyObject* object, std::string_view package);

}  // namespace framejit::frame_hook
