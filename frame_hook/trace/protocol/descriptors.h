// frame_hook/trace/protocol/descriptors.h — binds what was found along a class, as __get__ of a descriptor does.
//
// Descriptors in Python are inlined. Those in C run only if they are known to be pure.
#pragma once

#include "frame_hook/trace/machine/tracer.h"
#include "frame_hook/trace/protocol/lookup.h"

namespace framejit::frame_hook {

Value* bind(Tracer& t, const Found& found, Value* self, PyTypeObject* type, Value* type_value);
// find_special(), bound to v; null: there is none.
Value* python_special(Tracer& t, Value* v, const char* name);
Value* type_special(Tracer& t, Value* v, const char* name);  // the same; of a class: its metaclass's

}  // namespace framejit::frame_hook
