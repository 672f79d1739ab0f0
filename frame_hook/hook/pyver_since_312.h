// frame_hook/hook/pyver_since_312.h — what CPython 3.12 and 3.13 share: a hook ends its own frames, monitoring, the
// unstable API.
#pragma once

#include "frame_hook/hook/pyver_common.h"

namespace framejit::frame_hook::pyver {

inline PyCodeObject* code(Frame* frame);       // each version defines it
inline int current_index(Frame* frame);
inline void end_frame(PyThreadState* thread, Frame* frame);

inline PyObject* function(Frame* frame) { return frame->f_funcobj; }

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

inline void end_unentered_frame(PyThreadState* thread, Frame* frame) {
  frame->previous = nullptr;  // was never linked
  end_frame(thread, frame);
}

// A generator's frame leaves the thread, and its exc_info leaves with it.
inline void leave_generator(PyThreadState* thread, PyGenObject* generator, Frame* frame) {
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

inline PyObject* take_exception() { return PyErr_GetRaisedException(); }
inline void give_exception(PyObject* exception) { PyErr_SetRaisedException(exception); }

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
