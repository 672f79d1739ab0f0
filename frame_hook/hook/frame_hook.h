// frame_hook/hook/frame_hook.h — takes over Python frames: armed calls, calls into an inlined callee, the standing
// hook.
//
// In: calls of a compiled callable (armed), or every frame of the interpreter (standing). Out: a LiveFrame for the
// handler, which the driver implements. Chaining rules: an untouched frame goes to the evaluator that was installed
// before ours; a touched frame goes only to the interpreter itself. An armed call puts a one-shot hook into
// interp->eval_frame and restores the previous value before the frame runs. So it nests with any other hook, and the
// rest of the process stays inlined and specialised.
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
  // Runs a frame to its end (see LiveFrame). `options` is what the call was armed with (borrowed), null under the
  // standing hook.
  virtual PyObject* on_frame(LiveFrame& frame, PyObject* options) = 0;
  // An armed call of this code runs plainly because the C stack is low.
  virtual void on_stack_end(PyCodeObject*) {}
};

class FrameFiller {
 public:
  virtual ~FrameFiller() = default;
  // Gets the fresh frame of a function that call_into called; its locals hold dummies. Fills it and runs it to its end.
  virtual PyObject* fill(LiveFrame& frame) = 0;
};

// Proves, once, that the running CPython has the frame layout of this build. After an error nothing can be armed and
// calls run plainly; the error says why.
Result<void> initialise_hook();
// Why a probe of the layout failed, for messages; empty if it did not.
const std::string& hook_refusal();
// Probes again, for tests of the probe. Its result counts until the next probe.
const std::string& repeat_self_test(SelfTestFault fault);

void set_frame_handler(FrameHandler* handler);  // for armed calls; null: frames pass through. Not owned

// Calls a Python function (or a bound method) and hands its frame to the handler. If the C stack is low, the call is
// plain; if no stack is left, it raises RecursionError.
PyObject* call_armed(PyObject* function, PyObject* const* arguments, size_t count_and_flag, PyObject* keyword_names,
                     PyObject* options);

// Pushes a fresh frame of `function` through the interpreter, as a call from the thread's current frame, and gives it
// to `filler`.
// The arguments are dummies (None, empty containers). Not for generator or coroutine functions.
PyObject* call_into(PyObject* function, FrameFiller& filler);

// A callable that makes armed calls. It binds like a method and has a __dict__ (for functools.update_wrapper), weak
// references, and read-only `function` and `options`. TypeError unless `function` is a Python function or a bound
// method of one.
PyObject* make_armed_call(PyObject* function, PyObject* options);
PyTypeObject* armed_call_type();

// The standing hook: every frame whose code is not marked CodeState::skip goes to `handler`, but none while the thread
// is observed. Calling it again puts the hook back on top. False: not usable.
bool install_standing_hook(FrameHandler& handler);
// For tests. Programs never take it off.
void remove_standing_hook();  // if another hook sits on top, ours stays in its chain and passes everything on
bool standing_hook_is_on_top();  // for tests

}  // namespace framejit::frame_hook
