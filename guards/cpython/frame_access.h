// guards/cpython/frame_access.h — a read-only view of a live frame, made by the hook; all pointers are borrowed.
#pragma once

#include <Python.h>

namespace framejit::guards {

struct FrameAccess {
  PyCodeObject* code = nullptr;
  PyObject* function = nullptr;       // the PyFunctionObject
  PyObject* globals = nullptr;
  PyObject* builtins = nullptr;
  // `co_nlocalsplus` slots; a cell slot holds the raw argument until MAKE_CELL has run.
  PyObject* const* locals = nullptr;
  PyObject* const* stack = nullptr;   // value stack, bottom first
  int stack_size = 0;
};

}  // namespace framejit::guards
