// frame_hook/trace/values/size_marks.h — which sizes of a tensor its user has marked: as symbols, or as constants.
//
// In: a real tensor. Out: the marks that framejit.mark_dynamic and mark_static left on it, and those of torch's
// functions of these names (attributes of the tensor). They are hints: no guard depends on them.
#pragma once

#include <Python.h>

#include <vector>

#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

struct SizeMarks {
  struct Dynamic {
    size_t dim;
    PyRef least, most;                     // ints; null: no bound
  };
  std::vector<Dynamic> dynamic;
  std::vector<size_t> fixed;               // without those that are in `dynamic`
};

SizeMarks size_marks(PyObject* tensor);

}  // namespace framejit::frame_hook
