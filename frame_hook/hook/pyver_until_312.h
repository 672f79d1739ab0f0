// frame_hook/hook/pyver_until_312.h — what CPython 3.11 and 3.12 share: prev_instr is the unit before the next one; no
// exported function polls.
#pragma once

#include "frame_hook/hook/pyver_common.h"

namespace framejit::frame_hook::pyver {

inline PyCodeObject* code(Frame* frame) { return frame->f_code; }
inline Frame* current(PyThreadState* thread) { return thread->cframe->current_frame; }
inline _Py_CODEUNIT* first_unit(Frame* frame) { return _PyCode_CODE(frame->f_code); }
inline PyObject** stack_base(Frame* frame) { return frame->localsplus + frame->f_code->co_nlocalsplus; }
inline int next_index(Frame* frame) { return static_cast<int>(frame->prev_instr + 1 - first_unit(frame)); }
inline void set_next(Frame* frame, int index) { frame->prev_instr = first_unit(frame) + index - 1; }
inline int current_index(Frame* frame) { return static_cast<int>(frame->prev_instr - first_unit(frame)); }
inline void set_current(Frame* frame, int index) { frame->prev_instr = first_unit(frame) + index; }

inline bool breaker_is_set(PyThreadState* thread) {
  return *reinterpret_cast<volatile int*>(&thread->interp->ceval.eval_breaker) != 0;
}
// No exported function does all pending work, but the RESUME of a trivial Python function does.
inline bool poll(PyThreadState*, PyObject* trivial_function) {
  PyObject* none = PyObject_CallNoArgs(trivial_function);
  Py_XDECREF(none);
  return none != nullptr;
}

inline PyObject* none_as_handled(PyObject* previous) { return previous; }

}  // namespace framejit::frame_hook::pyver
