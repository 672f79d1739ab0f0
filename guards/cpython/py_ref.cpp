// guards/cpython/py_ref.cpp — drops a reference, which may free the object and run Python code.
#include "guards/cpython/py_ref.h"

#include "guards/cpython/interpreter_end.h"

namespace framejit {

// A thread whose stack is unwound while the interpreter ends does not have the GIL: it drops nothing.
void PyRef::drop_last(PyObject* object) noexcept {
  if (!PyGILState_Check()) return;
  stays_if_python_ends([&] { Py_DECREF(object); });
}

}  // namespace framejit
