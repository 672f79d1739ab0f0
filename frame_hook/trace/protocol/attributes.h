// frame_hook/trace/protocol/attributes.h — attributes as object.__getattribute__, type.__getattribute__ and
// object.__setattr__ read and write them; hooks of the program are asked before.
#pragma once

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

// Asks the hooks too. Null: AttributeError; a SymbolicRaise from Python code passes through.
Value* attribute_or_null(Tracer& t, Value* v, PyObject* name);
Value* generic_attribute(Tracer& t, Value* v, PyObject* name);   // object.__getattribute__
Value* type_attribute(Tracer& t, Value* type, PyObject* name);   // type.__getattribute__
void generic_set_attribute(Tracer& t, Value* v, PyObject* name, Value* to);  // object.__setattr__; to null: __delattr__

}  // namespace framejit::frame_hook
