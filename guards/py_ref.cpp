// guards/py_ref.cpp — the drop that may free the object, and run Python code for that.
#include "guards/py_ref.h"

#include "guards/interpreter_end.h"

namespace framejit {

// A thread whose stack is unwound while the interpreter ends has no GIL, and lets go of nothing.
void PyRef::drop_last(PyObject* object) noexcept {
  if (!PyGILState_Check()) return;
  stays_if_python_ends([&] { Py_DECREF(object); });
}

}  // namespace framejit
