// guards/cpython/interrupts.cpp — the interrupt that a thread keeps.
#include "guards/cpython/interrupts.h"

#include <utility>

#include "guards/cpython/py_ref.h"

namespace framejit {
namespace {

thread_local bool t_keeps = false;
thread_local PyObject* t_kept = nullptr;  // owned; none outlives its compile, so no thread ends with one

}  // namespace

bool error_is_interrupt() { return PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception); }

void drop_set_error() {
  if (error_is_interrupt()) keep_error();
  else PyErr_Clear();
}

void keep_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  const PyRef owned[] = {PyRef::steal(type), PyRef::steal(value), PyRef::steal(traceback)};
  if (!t_keeps) PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), type);
  else if (!t_kept) t_kept = Py_NewRef(value);
}

bool interrupt_is_kept() { return t_kept != nullptr; }

void restore_interrupt() {
  PyObject* value = std::exchange(t_kept, nullptr);
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(value))), value, PyException_GetTraceback(value));
}

KeepsInterrupts::KeepsInterrupts() { t_keeps = true; }
KeepsInterrupts::~KeepsInterrupts() { t_keeps = false; }

}  // namespace framejit
