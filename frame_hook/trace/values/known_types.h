// frame_hook/trace/values/known_types.h — types of C code that the tracer knows, by identity: rows of known_types.def.
//
// Each is an original (originals.h) that C code made. Until its module is loaded, no object can have it.
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
PyTypeObject* builtin_base(PyTypeObject* type);  // the C class that defines the layout of its instances

}  // namespace framejit::frame_hook
