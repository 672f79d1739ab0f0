// frame_hook/trace/types/numpy_calls.h — NumPy functions of known numbers and arrays: they run for real.
//
// A resulting number is a constant. An array belongs to the trace (ArrayValue): the trace writes to it as the program
// does, and at the exit each call gets a copy. Tensors whose contents are known are read. If such a tensor shares
// memory with an array, neither may be written any more.
#pragma once

#include <Python.h>

#include <string_view>
#include <vector>

#include "frame_hook/trace/machine/tracer.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

// Whether the callable is NumPy's own: a function, a ufunc, a class of numbers, a method of one or of arrays.
bool is_of_numpy(PyObject* callable);
// Whether the callable, or one of the arguments, is NumPy's own.
bool calls_numpy(PyObject* callable, const std::vector<PyObject*>& args);

// While one exists, NumPy's warnings raise FloatingPointError: a warning belongs to each call, not to the trace.
class NumpyWarnings {
 public:
  explicit NumpyWarnings(bool active);
  ~NumpyWarnings();
  NumpyWarnings(const NumpyWarnings&) = delete;
  NumpyWarnings& operator=(const NumpyWarnings&) = delete;

 private:
  PyRef state_;
};

// A row of numpy_rows.def, or a function of module operator, on numbers, arrays, and lists and tuples of them. It may
// write to `written`.
Value* call_numpy(Tracer& t, PyObject* callable, const Arguments& args, ArrayValue* written = nullptr);
Value* array_operator(Tracer& t, const char* function, Value* a, Value* b,
                      bool in_place);  // `function` of module operator
Value* array_attribute(Shadows& shadows, ArrayValue* array, PyObject* name);
Value* array_item(Tracer& t, ArrayValue* array, Value* key);
void write_array_item(Tracer& t, ArrayValue* array, Value* key, Value* to);
PyRef attribute_of(PyObject* object, const char* name);  // null if it has none; no error is set
bool lies_in_order(PyObject* array);  // contiguous, the last dimension innermost

// The result of a pure function for a tensor whose contents are known; null: they are not.
Value* of_known_tensor(Tracer& t, PyObject* function, Value* tensor);
Value* array_of_tensor(Tracer& t, Value* tensor);  // Tensor.numpy(); null: its contents are not known
Value* tensor_of_array(Tracer& t, ArrayValue* array, bool shares);

}  // namespace framejit::frame_hook
