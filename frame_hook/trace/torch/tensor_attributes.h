// frame_hook/trace/torch/tensor_attributes.h — attributes of tensors: those that C code of torch keeps
// (tensor_attributes.def), and marks that the trace leaves on them.
#pragma once

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

Value* tensor_attribute(Tracer& t, TensorValue* v, PyObject* name);  // null: AttributeError
void set_tensor_attribute(Tracer& t, TensorValue* v, PyObject* name, Value* to);  // to null: deletes it

}  // namespace framejit::frame_hook
