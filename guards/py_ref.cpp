// guards/py_ref.cpp — the drop that may free the object, and run Python code for that.
#include "guards/py_ref.h"

#include <cxxabi.h>
#include <unistd.h>

namespace framejit {

// CPython until 3.13 ends a daemon thread by unwinding its stack when it asks for the GIL while the interpreter ends.
// The frames above have no GIL then, and let go of nothing. Nothing may unwind out of a destructor: there the thread
// stays for good, as it would in later versions.
void PyRef::drop_last(PyObject* object) noexcept {
  if (!PyGILState_Check()) return;
  try {
    Py_DECREF(object);
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

}  // namespace framejit
