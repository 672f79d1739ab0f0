// frame_hook/hook/pyver_312.h — CPython 3.12. The evaluator clears and pops its own frame. CPython exports no function
// for that, so this file has its own.
#pragma once

#include "frame_hook/hook/pyver_since_312.h"
#include "frame_hook/hook/pyver_until_312.h"

namespace framejit::frame_hook::pyver {

struct FrameStack {
  _PyCFrame own{};
  void push(PyThreadState* thread, Frame* frame) {
    _PyCFrame* up = thread->cframe;
    own = *up;
    own.previous = up;
    own.current_frame = frame;
    frame->previous = up->current_frame;
    thread->cframe = &own;
  }
  void pop(PyThreadState* thread, Frame*) { thread->cframe = own.previous; }
};

// A frame object that somebody else holds takes over the frame. The frame is unlinked: the thread's top frame is its
// caller.
inline void move_into_frame_object(PyThreadState* thread, PyFrameObject* object, Frame* frame) {
  auto* copy = reinterpret_cast<Frame*>(object->_f_frame_data);
  const size_t bytes = offsetof(Frame, localsplus) + sizeof(PyObject*) * static_cast<size_t>(frame->stacktop);
  memcpy(static_cast<void*>(copy), static_cast<void*>(frame), bytes);
  Py_INCREF(copy->f_code);  // the caller drops the dying frame's reference
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
    leave_generator(thread, generator, frame);
    drop_contents(thread, frame);
    Py_CLEAR(generator->gi_exc_state.exc_value);
  } else {
    drop_contents(thread, frame);
    Py_DECREF(frame->f_code);
    pop_data_stack(thread, frame);
  }
  thread->c_recursion_remaining++;
}

inline void suspend_generator(PyThreadState* thread, Frame* frame, int yield_index, int) {
  PyGenObject* generator = _PyFrame_GetGenerator(frame);
  set_next(frame, yield_index + 1);
  generator->gi_frame_state = FRAME_SUSPENDED;
  leave_generator(thread, generator, frame);
}

}  // namespace framejit::frame_hook::pyver
