// frame_hook/hook/pyver_311.h — CPython 3.11. The caller of the hook clears and pops frames.
#pragma once

#include "frame_hook/hook/pyver_until_312.h"

namespace framejit::frame_hook::pyver {

inline PyObject* function(Frame* frame) { return reinterpret_cast<PyObject*>(frame->f_func); }

// The thread's current frame is stored in a C structure of each running interpreter; native code brings its own.
struct FrameStack {
  _PyCFrame own{};
  void push(PyThreadState* thread, Frame* frame) {
    _PyCFrame* up = thread->cframe;
    own = *up;  // use_tracing is copied in here, and out again below
    own.previous = up;
    own.current_frame = frame;
    frame->previous = up->current_frame;
    frame->is_entry = true;
    thread->cframe = &own;
  }
  void pop(PyThreadState* thread, Frame*) {
    thread->cframe = own.previous;
    thread->cframe->use_tracing = own.use_tracing;
  }
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
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(exception))), exception,
                PyException_GetTraceback(exception));
}

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
