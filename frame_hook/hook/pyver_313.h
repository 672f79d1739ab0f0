// frame_hook/hook/pyver_313.h — CPython 3.13. instr_ptr is the current or next instruction; clearing and polling are
// exported.
#pragma once

#include "frame_hook/hook/pyver_since_312.h"

#ifdef Py_GIL_DISABLED
#error "free-threaded builds are not supported"
#endif

namespace framejit::frame_hook::pyver {

inline PyCodeObject* code(Frame* frame) { return reinterpret_cast<PyCodeObject*>(frame->f_executable); }
inline Frame* current(PyThreadState* thread) { return thread->current_frame; }
inline _Py_CODEUNIT* first_unit(Frame* frame) { return _PyCode_CODE(code(frame)); }
inline PyObject** stack_base(Frame* frame) { return frame->localsplus + code(frame)->co_nlocalsplus; }
inline int next_index(Frame* frame) { return static_cast<int>(frame->instr_ptr - first_unit(frame)); }
inline void set_next(Frame* frame, int index) { frame->instr_ptr = first_unit(frame) + index; }
inline int current_index(Frame* frame) { return next_index(frame); }
inline void set_current(Frame* frame, int index) { set_next(frame, index); }

struct FrameStack {
  void push(PyThreadState* thread, Frame* frame) {
    frame->previous = thread->current_frame;
    thread->current_frame = frame;
  }
  void pop(PyThreadState* thread, Frame* frame) { thread->current_frame = frame->previous; }
};

inline void end_frame(PyThreadState* thread, Frame* frame) { _PyEval_FrameClearAndPop(thread, frame); }

inline void suspend_generator(PyThreadState* thread, Frame* frame, int yield_index, int yield_arg) {
  PyGenObject* generator = _PyFrame_GetGenerator(frame);
  set_next(frame, yield_index + 1);
  generator->gi_frame_state = static_cast<int8_t>(FRAME_SUSPENDED + (yield_arg == 1));
  leave_generator(thread, generator, frame);
}

inline bool breaker_is_set(PyThreadState* thread) { return (thread->eval_breaker & 0xFF) != 0; }
inline bool poll(PyThreadState* thread, PyObject*) { return _Py_HandlePending(thread) == 0; }

// "Nothing is handled" is NULL here, never None.
inline PyObject* none_as_handled(PyObject* previous) {
  if (previous != Py_None) return previous;
  Py_DECREF(previous);
  return nullptr;
}

}  // namespace framejit::frame_hook::pyver
