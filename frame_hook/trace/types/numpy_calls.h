// frame_hook/trace/types/numpy_calls.h — NumPy functions of known numbers and arrays: they run for real.
//
// A resulting number is a constant. An array belongs to the trace (ArrayValue): the trace writes to it as the program
// does, and at the exit each call gets a copy. Tensors whose contents are known are read. If such a tensor shares
// memory with an array, neither may be written any more.
#pragma once

#include <Python.h>

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

// A row of numpy_rows.def, or a function of module operator, on numbers, arrays, and lists and tuples of them. It may
// write to `written`.
Value* call_numpy(Tracer& t, PyObject* callable, const Arguments& args, ArrayValue* written = nullptr);
Value* array_operator(Tracer& t, const char* function, Value* a, Value* b,
                      bool in_place);  // `function` of module operator
Value* array_attribute(Shadows& shadows, ArrayValue* array, PyObject* name);
Value* array_item(Tracer& t, ArrayValue* array, Value* key);
void write_array_item(Tracer& t, ArrayValue* array, Value* key, Value* to);

// The result of a pure function for a tensor whose contents are known; null: they are not.
Value* of_known_tensor(RealCalls& calls, PyObject* function, Value* tensor);
Value* array_of_tensor(RealCalls& calls, Value* tensor);  // Tensor.numpy(); null: its contents are not known
Value* tensor_of_array(RealCalls& calls, ArrayValue* array, bool shares);

}  // namespace framejit::frame_hook
