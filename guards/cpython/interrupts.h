// guards/cpython/interrupts.h — unexpected errors: how C++ code drops an error of Python without losing an interrupt.
//
// Signal handlers run inside PyObject_Repr, dict lookups and everything else that may run Python code. So the error
// that is set after such a call need not be the call's own. guards and frame_hook therefore never call PyErr_Clear, but
// drop_error().
#pragma once

#include <Python.h>

namespace framejit {

void drop_set_error();
// Afterwards no error is set. An error that is not an Exception (KeyboardInterrupt, SystemExit) is kept until the
// compile on this thread ends. Without a compile, only its type is raised, at the thread's next instruction.
inline void drop_error() {
  if (PyErr_Occurred()) [[unlikely]] drop_set_error();
}

bool error_is_interrupt();     // the error that is set
void keep_error();             // treats the error that is set as an interrupt: an error of a signal handler, whatever
                               // its type
bool interrupt_is_kept();      // the compile on this thread must be given up
void restore_interrupt();      // sets the kept one, in place of an error that is set

class KeepsInterrupts {        // around a compile
 public:
  KeepsInterrupts();
  ~KeepsInterrupts();
  KeepsInterrupts(const KeepsInterrupts&) = delete;
};

}  // namespace framejit
