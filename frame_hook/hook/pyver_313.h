// frame_hook/hook/pyver_313.h — CPython 3.13. instr_ptr is the current or next instruction; clearing and polling are exported.
#pragma once

#include "frame_hook/hook/pyver_common.h"

#ifdef Py_GIL_DISABLED
#error "free-threaded builds are not supported"
#endif

namespace framejit::frame_hook::pyver {

inline PyCodeObject* code(Frame* frame) { return reinterpret_cast<PyCodeObject*>(frame->f_executable); }
inline PyObject* function(Frame* frame) { return frame->f_funcobj; }
inline _Py_CODEUNIT* first_unit(Frame* frame) { return _PyCode_CODE(code(frame)); }
inline PyObject** stack_base(Frame* frame) { return frame->localsplus + code(frame)->co_nlocalsplus; }
inline int next_index(Frame* frame) { return static_cast<int>(frame->instr_ptr - first_unit(frame)); }
inline void set_next(Frame* frame, int index) { frame->instr_ptr = first_unit(frame) + index; }
inline int current_index(Frame* frame) { return next_index(frame); }
inline void set_current(Frame* frame, int index) { set_next(frame, index); }

class Link {
 public:
  Link(PyThreadState* thread, Frame* frame) : thread_(thread), frame_(frame) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { leave(); }
  bool is_on() const { return on_; }
  void enter() {
    frame_->previous = thread_->current_frame;
    thread_->current_frame = frame_;
    on_ = true;
  }
  void leave() {
    if (!on_) return;
    thread_->current_frame = frame_->previous;
    on_ = false;
  }

 private:
  PyThreadState* thread_;
  Frame* frame_;
  bool on_ = false;
};

inline bool enter_recursion(PyThreadState* thread) {
  if (thread->py_recursion_remaining-- <= 0 && !thread->recursion_headroom) {
    thread->recursion_headroom++;
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
    thread->recursion_headroom--;
    thread->py_recursion_remaining++;
    return false;
  }
  if (Py_EnterRecursiveCall("") == 0) return true;
  thread->py_recursion_remaining++;
  return false;
}
inline void leave_recursion(PyThreadState* thread) {
  Py_LeaveRecursiveCall();
  thread->py_recursion_remaining++;
}
inline bool stack_is_low(PyThreadState* thread) { return thread->c_recursion_remaining < 300; }

inline void end_frame(PyThreadState* thread, Frame* frame) { _PyEval_FrameClearAndPop(thread, frame); }
inline void end_unentered_frame(PyThreadState* thread, Frame* frame) {
  frame->previous = nullptr;  // was never linked
  end_frame(thread, frame);
}

inline void suspend_generator(PyThreadState* thread, Frame* frame, int yield_index, int yield_arg) {
  PyGenObject* generator = _PyFrame_GetGenerator(frame);
  set_next(frame, yield_index + 1);
  generator->gi_frame_state = static_cast<int8_t>(FRAME_SUSPENDED + (yield_arg == 1));
  thread->exc_info = generator->gi_exc_state.previous_item;
  generator->gi_exc_state.previous_item = nullptr;
  frame->previous = nullptr;
}

inline bool is_observed(PyThreadState* thread, PyCodeObject* code) {
  if (thread->c_tracefunc || thread->c_profilefunc) return true;
  const uint8_t* tools = thread->interp->monitors.tools;  // a byte per event, 15 or 16: two words that overlap
  constexpr size_t event_count = sizeof(thread->interp->monitors.tools);
  static_assert(event_count >= 8 && event_count <= 16);
  uint64_t first, last;
  memcpy(&first, tools, 8);
  memcpy(&last, tools + event_count - 8, 8);
  if (first | last) return true;
  if (!code->_co_monitoring) return false;
  for (int event = 0; event < _PY_MONITORING_LOCAL_EVENTS; event++)
    if (code->_co_monitoring->local_monitors.tools[event]) return true;
  return false;
}
inline bool breaker_is_set(PyThreadState* thread) { return (thread->eval_breaker & 0xFF) != 0; }
inline bool poll(PyThreadState* thread, PyObject*) { return _Py_HandlePending(thread) == 0; }

inline PyObject* take_exception() { return PyErr_GetRaisedException(); }
inline void give_exception(PyObject* exception) { PyErr_SetRaisedException(exception); }
// "Nothing is handled" is NULL here, never None.
inline PyObject* none_as_handled(PyObject* previous) {
  if (previous != Py_None) return previous;
  Py_DECREF(previous);
  return nullptr;
}

inline Py_ssize_t extra_request(freefunc free) { return PyUnstable_Eval_RequestCodeExtraIndex(free); }
inline int extra_set(PyCodeObject* code, Py_ssize_t index, void* value) {
  return PyUnstable_Code_SetExtra(reinterpret_cast<PyObject*>(code), index, value);
}
inline int extra_get_by_api(PyCodeObject* code, Py_ssize_t index, void** value) {
  return PyUnstable_Code_GetExtra(reinterpret_cast<PyObject*>(code), index, value);
}
inline bool agrees_with_api(Frame* frame) {
  PyObject* by_api = PyUnstable_InterpreterFrame_GetCode(frame);
  const bool same_code = by_api == reinterpret_cast<PyObject*>(code(frame));
  Py_XDECREF(by_api);
  return same_code && PyUnstable_InterpreterFrame_GetLasti(frame) == current_index(frame) * 2;
}

}  // namespace framejit::frame_hook::pyver
