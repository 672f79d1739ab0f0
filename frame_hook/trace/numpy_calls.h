// frame_hook/trace/numpy_calls.h — NumPy's functions on plain numbers: they run concretely, and what they give is a constant.
#pragma once

#include <Python.h>

#include <vector>

#include "frame_hook/trace/tracer.h"
#include "guards/py_ref.h"

namespace framejit::frame_hook {

// The callable, or one of the arguments, is NumPy's own.
bool calls_numpy(PyObject* callable, const std::vector<PyObject*>& args);

// As long as it lives, what NumPy would warn of raises FloatingPointError: a warning belongs to each call, not to the trace.
class NumpyWarnings {
 public:
  explicit NumpyWarnings(bool active);
  ~NumpyWarnings();
  NumpyWarnings(const NumpyWarnings&) = delete;
  NumpyWarnings& operator=(const NumpyWarnings&) = delete;

 private:
  PyRef state_;
};

// A row of numpy_rows.def on numbers, and on lists and tuples of them.
Value* call_numpy(Tracer& t, PyObject* callable, const Arguments& args);

}  // namespace framejit::frame_hook
