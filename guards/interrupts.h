// guards/interrupts.h — errors that are no answer: how what C++ asks of Python fails without losing an interrupt.
//
// Signal handlers run inside of PyObject_Repr, dict lookups and whatever else may run Python code: the error that is
// set behind such a call need not be the call's. guards and frame_hook therefore never call PyErr_Clear but
// drop_error().
#pragma once

#include <Python.h>

namespace framejit {

void drop_set_error();
// No error is set behind it. What is no Exception (KeyboardInterrupt, SystemExit) is kept until the compile that runs
// on this thread ends; without one it is raised at the thread's next instruction, as its type alone.
inline void drop_error() {
  if (PyErr_Occurred()) [[unlikely]] drop_set_error();
}

bool error_is_interrupt();     // the error that is set
void keep_error();             // as if it was one: an error of a signal handler, whatever its type
bool interrupt_is_kept();      // the compile on this thread is to be given up
void restore_interrupt();      // sets the kept one, in the place of an error that is set

class KeepsInterrupts {        // around a compile
 public:
  KeepsInterrupts();
  ~KeepsInterrupts();
  KeepsInterrupts(const KeepsInterrupts&) = delete;
};

}  // namespace framejit
