// frame_hook/trace/protocol/construct.h — calling a class.
//
// Metaclasses, __new__ and __init__ in Python are inlined. Exact builtin classes have rows in types/builtins.def.
#pragma once

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

Value* call_type(Tracer& t, Value* type, const Arguments& args);
Value* standard_construct(Tracer& t, Value* type_value, PyTypeObject* type, const Arguments& args);  // type.__call__
Value* builtin_new(Tracer& t, PyTypeObject* type, const Arguments& args);  // C __new__ of builtin_base(type)

}  // namespace framejit::frame_hook
