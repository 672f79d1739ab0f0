// frame_hook/trace/values/numpy_objects.h — what is NumPy's own, and how its calls are made.
#pragma once

#include <Python.h>

#include <vector>

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

PyRef attribute_of(PyObject* object, const char* name);  // null if it has none; no error is set
bool is_true(PyObject* object, const char* name);  // of an attribute; of a null object: false
bool lies_in_order(PyObject* array);  // contiguous, the last dimension innermost

}  // namespace framejit::frame_hook
