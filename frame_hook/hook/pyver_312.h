// frame_hook/hook/pyver_312.h — CPython 3.12. The evaluator clears and pops its own frame, and nothing exported does that: own code.
#pragma once

#include "frame_hook/hook/pyver_common.h"

namespace framejit::frame_hook::pyver {

inline PyCodeObject* code(Frame* frame) { return frame->f_code; }
inline PyObject* function(Frame* frame) { return frame->f_funcobj; }
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
    own_ = *up;
    own_.previous = up;
    own_.current_frame = frame_;
    frame_->previous = up->current_frame;
    thread_->cframe = &own_;
    on_ = true;
  }
  void leave() {
    if (!on_) return;
    thread_->cframe = own_.previous;
    on_ = false;
  }

 private:
  PyThreadState* thread_;
  Frame* frame_;
  _PyCFrame own_{};
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

// A frame object that somebody else holds takes the frame over. The frame is unlinked: the thread's top frame is its caller.
inline void move_into_frame_object(PyThreadState* thread, PyFrameObject* object, Frame* frame) {
  auto* copy = reinterpret_cast<Frame*>(object->_f_frame_data);
  const size_t bytes = offsetof(Frame, localsplus) + sizeof(PyObject*) * static_cast<size_t>(frame->stacktop);
  memcpy(static_cast<void*>(copy), static_cast<void*>(frame), bytes);
  Py_INCREF(copy->f_code);  // the dying frame's reference is dropped by the caller
  object->f_frame = copy;
  copy->owner = FRAME_OWNED_BY_FRAME_OBJECT;
  copy->previous = nullptr;
  if (_PyFrame_IsIncomplete(copy)) copy->prev_instr = _PyCode_CODE(copy->f_code) + copy->f_code->_co_firsttraceable;
  PyObject* pending = PyErr_GetRaisedException();
  object->f_back = PyThreadState_GetFrame(thread);
  if (pending) PyErr_SetRaisedException(pending);
  if (!PyObject_GC_IsTracked(reinterpret_cast<PyObject*>(object))) PyObject_GC_Track(object);
}

inline void drop_contents(PyThreadState* thread, Frame* frame) {
  if (PyFrameObject* object = frame->frame_obj) {
    frame->frame_obj = nullptr;
    const bool is_kept = Py_REFCNT(object) > 1;
    if (is_kept) move_into_frame_object(thread, object, frame);
    Py_DECREF(object);
    if (is_kept) return;
  }
  for (int slot = 0; slot < frame->stacktop; slot++) Py_XDECREF(frame->localsplus[slot]);
  Py_XDECREF(frame->f_locals);
  Py_DECREF(frame->f_funcobj);
}

inline void pop_data_stack(PyThreadState* thread, Frame* frame) {
  auto** start = reinterpret_cast<PyObject**>(frame);
  _PyStackChunk* chunk = thread->datastack_chunk;
  if (start != &chunk->data[0]) {
    thread->datastack_top = start;
    return;
  }
  _PyStackChunk* below = chunk->previous;  // the frame was the first of its chunk: free the chunk
  PyObjectArenaAllocator arena;
  PyObject_GetArenaAllocator(&arena);
  thread->datastack_chunk = below;
  thread->datastack_top = &below->data[below->top];
  thread->datastack_limit = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(below) + below->size);
  arena.free(arena.ctx, chunk, chunk->size);
}

inline void end_frame(PyThreadState* thread, Frame* frame) {
  thread->c_recursion_remaining--;
  if (is_generator_frame(frame)) {
    PyGenObject* generator = _PyFrame_GetGenerator(frame);
    generator->gi_frame_state = FRAME_CLEARED;
    thread->exc_info = generator->gi_exc_state.previous_item;
    generator->gi_exc_state.previous_item = nullptr;
    drop_contents(thread, frame);
    Py_CLEAR(generator->gi_exc_state.exc_value);
    frame->previous = nullptr;
  } else {
    drop_contents(thread, frame);
    Py_DECREF(frame->f_code);
    pop_data_stack(thread, frame);
  }
  thread->c_recursion_remaining++;
}
inline void end_unentered_frame(PyThreadState* thread, Frame* frame) {
  frame->previous = nullptr;  // was never linked
  end_frame(thread, frame);
}

inline void suspend_generator(PyThreadState* thread, Frame* frame, int yield_index, int) {
  PyGenObject* generator = _PyFrame_GetGenerator(frame);
  set_next(frame, yield_index + 1);
  generator->gi_frame_state = FRAME_SUSPENDED;
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
inline bool breaker_is_set(PyThreadState* thread) {
  return *reinterpret_cast<volatile int*>(&thread->interp->ceval.eval_breaker) != 0;
}
// Nothing exported does all pending work: the RESUME of a trivial Python function does.
inline bool poll(PyThreadState*, PyObject* trivial_function) {
  PyObject* none = PyObject_CallNoArgs(trivial_function);
  Py_XDECREF(none);
  return none != nullptr;
}

inline PyObject* take_exception() { return PyErr_GetRaisedException(); }
inline void give_exception(PyObject* exception) { PyErr_SetRaisedException(exception); }
inline PyObject* none_as_handled(PyObject* previous) { return previous; }

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
