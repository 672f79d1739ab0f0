// frame_hook/hook/frame_hook.h — takes hold of Python frames: armed calls, calls into an inlined callee, the standing
// hook.
//
// In: calls of a compiled callable (armed), or every frame of the interpreter (standing). Out: a LiveFrame for the
// handler, which the driver implements. Chaining rules: an untouched frame goes to the evaluator that was there before
// us; a frame that was touched is only ever given to the interpreter itself. An armed call puts a one-shot hook into
// interp->eval_frame and restores what it found before the frame runs, so it nests with any other hook and leaves the
// rest of the process inlined and specialised.
// Everything here needs the GIL and the main interpreter. Handlers must not let C++ exceptions escape.
#pragma once

#include <Python.h>

#include "frame_hook/hook/live_frame.h"
#include "frame_hook/hook/self_test.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // Takes a frame to its end (see LiveFrame). `options` is what the call was armed with (borrowed), null under the
  // standing hook.
  virtual PyObject* on_frame(LiveFrame& frame, PyObject* options) = 0;
  // An armed call of this code is made plainly, since the C stack is low.
  virtual void on_stack_end(PyCodeObject*) {}
};

class FrameFiller {
 public:
  virtual ~FrameFiller() = default;
  // Given the fresh frame of a function that call_into called: its locals hold dummies. Fills it and takes it to its
  // end.
  virtual PyObject* fill(LiveFrame& frame) = 0;
};

// Proves, once, that the running CPython has the frame layout that we were built for. After an error nothing can be
// armed and calls run plainly; the error says why.
Result<void> initialise_hook();
// Why a probe of the layout failed, for messages; empty when it did not.
const std::string& hook_refusal();
// The probe again, for tests of it: what it says counts until the next one.
const std::string& repeat_self_test(SelfTestFault fault);

void set_frame_handler(FrameHandler* handler);  // for armed calls; null: frames pass through. Not owned

// Calls a Python function (or a bound method) with its frame handed to the handler. Where the C stack is low the call
// is a plain one, where it ends it raises RecursionError.
PyObject* call_armed(PyObject* function, PyObject* const* arguments, size_t count_and_flag, PyObject* keyword_names,
                     PyObject* options);

// Pushes a fresh frame of `function` through the interpreter, as a call from the thread's current frame, and gives it
// to `filler`.
// The function is bound to dummies (None, empty containers). Not for generator or coroutine functions.
PyObject* call_into(PyObject* function, FrameFiller& filler);

// A callable that makes armed calls: binds as a method does, has a __dict__ (for functools.update_wrapper), weak
// references, read-only `function` and `options`. TypeError unless `function` is a Python function or a bound method of
// one.
PyObject* make_armed_call(PyObject* function, PyObject* options);
PyTypeObject* armed_call_type();

// The standing hook: every frame that is not marked CodeState::skip goes to `handler`, none while the thread is
// observed. Asserts itself on top again when called anew. False: not usable.
bool install_standing_hook(FrameHandler& handler);
void remove_standing_hook();  // when another hook sits on top, ours stays in its chain and passes everything on
bool standing_hook_is_on_top();

}  // namespace framejit::frame_hook
