// frame_hook/hook/pyver.h — the version layer: everything that depends on the layout of CPython's frames and thread
// states.
//
// Only pyver_*.h may name a CPython-internal struct or include an internal header; only .cpp files of hook/ include
// this one.
// One header per version, each defining the same functions in namespace pyver (inline; the GIL is held); what two
// versions share is in pyver_until_312.h and pyver_since_312.h. "Index" is a code unit.
//
//   code function globals builtins locals        fields of a frame; locals: co_nlocalsplus slots, then the value stack
//   locals_mapping                               f_locals of class bodies and exec, else null
//   next_index set_next                          where a frame that is not running continues
//   current_index set_current                    the instruction that is executing: lines, f_lasti, tracebacks
//   stack_base stack_top set_stack_top           the value stack; the top must be written before other code can see
//                                                the frame
//   is_generator_frame is_incomplete             owned by a generator; before its RESUME (gets no traceback entry)
//   FrameStack, and Link over it                 makes the frame the thread's current one while native code runs on it
//   enter_recursion leave_recursion              what the interpreter counts per call; false: RecursionError set
//   stack_is_low                                 the interpreter's own C recursion limit is near
//   end_frame                                    clears an unlinked frame and pops it, or leaves that to the caller,
//                                                depending on the version
//   suspend_generator                            a native yield: unlinked generator frame, next instruction after the
//                                                yield
//   is_observed                                  tracing, profiling or monitoring is on: step aside
//   breaker_is_set poll                          signals, GIL drop, async exceptions, GC
//   take_exception give_exception                the raised exception as one normalised object (new reference; steals)
//   handled set_handled                          exc_info of the frame, NULL for none (borrowed; steals)
//   interpret                                    the interpreter, on an unlinked frame
//   hook_slot                                    interp->eval_frame, NULL for the interpreter itself
//   extra_*                                      the per-code slot (co_extra)
//   new_function_attribute                       writes of MAKE_FUNCTION / SET_FUNCTION_ATTRIBUTE (steals)
#pragma once

#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "the hook knows CPython 3.11, 3.12 and 3.13"
#elif PY_VERSION_HEX < 0x030C0000
#include "frame_hook/hook/pyver_311.h"
#elif PY_VERSION_HEX < 0x030D0000
#include "frame_hook/hook/pyver_312.h"
#else
#include "frame_hook/hook/pyver_313.h"
#endif

namespace framejit::frame_hook::pyver {

// The frame is the thread's current one from enter() to leave().
class Link {
 public:
  Link(PyThreadState* thread, Frame* frame) : thread_(thread), frame_(frame) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { leave(); }
  bool is_on() const { return on_; }
  void enter() {
    stack_.push(thread_, frame_);
    on_ = true;
  }
  void leave() {
    if (!on_) return;
    stack_.pop(thread_, frame_);
    on_ = false;
  }

 private:
  PyThreadState* thread_;
  Frame* frame_;
  FrameStack stack_;
  bool on_ = false;
};

}  // namespace framejit::frame_hook::pyver
