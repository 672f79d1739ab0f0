// frame_hook/hook/pyver_311.h — CPython 3.11. The caller of the hook clears and pops frames; prev_instr is the unit before the next.
#pragma once

#include "frame_hook/hook/pyver_common.h"

namespace framejit::frame_hook::pyver {

inline PyCodeObject* code(Frame* frame) { return frame->f_code; }
inline PyObject* function(Frame* frame) { return reinterpret_cast<PyObject*>(frame->f_func); }
inline _Py_CODEUNIT* first_unit(Frame* frame) { return _PyCode_CODE(frame->f_code); }
inline PyObject** stack_base(Frame* frame) { return frame->localsplus + frame->f_code->co_nlocalsplus; }
inline int next_index(Frame* frame) { return static_cast<int>(frame->prev_instr + 1 - first_unit(frame)); }
inline void set_next(Frame* frame, int index) { frame->prev_instr = first_unit(frame) + index - 1; }
inline int current_index(Frame* frame) { return static_cast<int>(frame->prev_instr - first_unit(frame)); }
inline void set_current(Frame* frame, int index) { frame->prev_instr = first_unit(frame) + index; }

class Link {
 public:
  Link(PyThreadState* thread, Frame* frame) : thread_(thread), frame_(frame) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { leave(); }
  bool is_on() const { return on_; }
  void enter() {
    _PyCFrame* up = thread_->cframe;
    own_ = *up;  // use_tracing goes in with it, and out again below
    own_.previous = up;
    own_.current_frame = frame_;
    frame_->previous = up->current_frame;
    frame_->is_entry = true;
    thread_->cframe = &own_;
    on_ = true;
  }
  void leave() {
    if (!on_) return;
    thread_->cframe = own_.previous;
    thread_->cframe->use_tracing = own_.use_tracing;
    on_ = false;
  }

 private:
  PyThreadState* thread_;
  Frame* frame_;
  _PyCFrame own_{};
  bool on_ = false;
};

inline bool enter_recursion(PyThreadState*) { return Py_EnterRecursiveCall("") == 0; }
inline void leave_recursion(PyThreadState*) { Py_LeaveRecursiveCall(); }
inline bool stack_is_low(PyThreadState*) { return false; }
inline void end_unentered_frame(PyThreadState*, Frame*) {}
inline void end_frame(PyThreadState*, Frame*) {}

// gen_send_ex2 restores exc_info and previous.
inline void suspend_generator(PyThreadState*, Frame* frame, int yield_index, int) {
  set_next(frame, yield_index + 1);
  _PyFrame_GetGenerator(frame)->gi_frame_state = FRAME_SUSPENDED;
}

inline bool is_observed(PyThreadState* thread, PyCodeObject*) { return thread->cframe->use_tracing != 0; }
inline bool breaker_is_set(PyThreadState* thread) {
  return *reinterpret_cast<volatile int*>(&thread->interp->ceval.eval_breaker) != 0;
}
// Nothing exported does all pending work: the RESUME of a trivial Python function does.
inline bool poll(PyThreadState*, PyObject* trivial_function) {
  PyObject* none = PyObject_CallNoArgs(trivial_function);
  Py_XDECREF(none);
  return none != nullptr;
}

inline PyObject* take_exception() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyException_SetTraceback(value, traceback ? traceback : Py_None);
  Py_XDECREF(traceback);
  Py_XDECREF(type);
  return value;
}
inline void give_exception(PyObject* exception) {
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(exception))), exception, PyException_GetTraceback(exception));
}
inline PyObject* none_as_handled(PyObject* previous) { return previous; }

inline Py_ssize_t extra_request(freefunc free) { return _PyEval_RequestCodeExtraIndex(free); }
inline int extra_set(PyCodeObject* code, Py_ssize_t index, void* value) {
  return _PyCode_SetExtra(reinterpret_cast<PyObject*>(code), index, value);
}
inline int extra_get_by_api(PyCodeObject* code, Py_ssize_t index, void** value) {
  return _PyCode_GetExtra(reinterpret_cast<PyObject*>(code), index, value);
}
// The public readers of interpreter frames come with 3.12.
inline bool agrees_with_api(Frame*) { return true; }

}  // namespace framejit::frame_hook::pyver
