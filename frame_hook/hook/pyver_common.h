// frame_hook/hook/pyver_common.h — what the three versions share: the internal headers as C++, co_extra, tracebacks.
#pragma once

#include <Python.h>
#include <cstddef>
#include <cstdint>
#include <cstring>

#undef _PyGC_FINALIZED   // 3.12: a public and an internal header clash
#undef HAVE_STD_ATOMIC   // 3.11, 3.12: lets pycore_atomic.h compile as C++, same layout
#define Py_BUILD_CORE 1
extern "C" {
#include "internal/pycore_code.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_pystate.h"
#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_ceval.h"
#include "internal/pycore_list.h"
#include "internal/pycore_object.h"
#include "internal/pycore_setobject.h"
#endif
}
#undef Py_BUILD_CORE

namespace framejit::frame_hook {
using Frame = ::_PyInterpreterFrame;
using EvalFunction = PyObject* (*)(PyThreadState*, Frame*, int);
}  // namespace framejit::frame_hook

namespace framejit::frame_hook::pyver {

inline PyObject* globals(Frame* frame) { return frame->f_globals; }
inline PyObject* builtins(Frame* frame) { return frame->f_builtins; }
inline PyObject* locals_mapping(Frame* frame) { return frame->f_locals; }  // class bodies, exec; else null
inline PyObject** locals(Frame* frame) { return frame->localsplus; }
inline PyObject** stack_top(Frame* frame) { return frame->localsplus + frame->stacktop; }
inline void set_stack_top(Frame* frame, PyObject** top) { frame->stacktop = static_cast<int>(top - frame->localsplus); }
// Whether anything but the frame itself holds its frame object: a traceback, for instance.
inline bool is_held(Frame* frame) { return frame->frame_obj && Py_REFCNT(frame->frame_obj) > 1; }
inline bool is_generator_frame(Frame* frame) { return frame->owner == FRAME_OWNED_BY_GENERATOR; }
inline bool is_incomplete(Frame* frame) { return _PyFrame_IsIncomplete(frame); }
inline PyObject* interpret(PyThreadState* thread, Frame* frame, int throwing) {
  return _PyEval_EvalFrameDefault(thread, frame, throwing);
}
inline EvalFunction& hook_slot(PyThreadState* thread) { return thread->interp->eval_frame; }

inline PyObject* handled(PyThreadState* thread) { return thread->exc_info->exc_value; }
inline void set_handled(PyThreadState* thread, PyObject* exception) {
  PyObject* old = thread->exc_info->exc_value;
  thread->exc_info->exc_value = exception;
  Py_XDECREF(old);
}

// The frame is linked and its current index set.
inline void add_traceback(PyThreadState* thread) {
  PyFrameObject* object = PyThreadState_GetFrame(thread);
  if (!object) return;
  PyTraceBack_Here(object);
  Py_DECREF(object);
}

// PyCodeObject::co_extra points to this in every version; checked against the API by the self-test.
struct ExtraSlots {
  Py_ssize_t count;
  void* values[1];
};
inline void* extra_get(PyCodeObject* code, Py_ssize_t index) {
  auto* slots = static_cast<ExtraSlots*>(code->co_extra);
  return slots && index < slots->count ? slots->values[index] : nullptr;
}

// make_function bits: 1 defaults, 2 keyword-only defaults, 4 annotations, 8 closure. The function is fresh: nobody has
// seen it yet.
inline void new_function_attribute(PyObject* function, int bit, PyObject* attribute) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function);
  PyObject*& field = bit == 1   ? f->func_defaults
                     : bit == 2 ? f->func_kwdefaults
                     : bit == 4 ? f->func_annotations
                                : f->func_closure;
  PyObject* old = field;
  field = attribute;
  Py_XDECREF(old);
}

}  // namespace framejit::frame_hook::pyver
