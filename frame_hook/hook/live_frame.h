// frame_hook/hook/live_frame.h — a frame that the hook owns: read it, write it, run it natively, and leave it in one of
// the legal ways.
//
// A handler gets a LiveFrame that is not entered: CPython does not count it, and the thread does not show it. The order
// of use is
//   pass_through(), or: enter(), then reads, writes and run() in any order, then exactly one of the leaving functions,
//   whose result the handler returns at once. return_value() and hand_over() may be called without enter() when nothing
//   ran in between.
// After a leaving function the frame may be gone: do not touch it. "Index" is a code unit (Instruction::index).
#pragma once

#include <Python.h>

#include <memory>
#include <span>

#include "frame_hook/bytecode/code.h"
#include "frame_hook/hook/code_state.h"
#include "guards/cpython/frame_access.h"

namespace framejit::frame_hook {

enum class EvalStop : uint8_t {
  returned,  // value: the result; the stack is empty
  raised,    // an error is set and this frame has no handler; the stack is empty
  yielded,   // value: the yielded value; index: of the yield's opcode; yield_arg: its argument
  reached,   // a stop unit, or the budget; index is the next instruction
  left,      // the evaluator lacks the instruction at index: hand over, or treat it otherwise
  observed,  // tracing was switched on meanwhile: hand over
};

struct EvalResult {
  EvalStop stop;
  PyObject* value = nullptr;  // new reference
  int index = -1;
  int yield_arg = 0;
};

struct EvalLimits {
  // A byte per code unit; nonzero stops before it, except at the instruction that run() starts with.
  const uint8_t* stop_units = nullptr;
  int64_t budget = -1;                  // instructions; negative: no limit
};

// Counted in every frame; only tests read it (tests/unit/frame_hook/hooktest_module.cpp).
struct HookStats {
  uint64_t frames = 0, instructions = 0, returns = 0, raises = 0, yields = 0, hand_overs = 0, unwinds = 0, polls = 0,
           passed = 0;
};
HookStats& hook_stats();

class LiveFrame {
 public:
  using EvalFunction = PyObject* (*)(PyThreadState*, struct _PyInterpreterFrame*, int);

  LiveFrame(PyThreadState* thread, struct _PyInterpreterFrame* frame, CodeState& state, EvalFunction below);
  ~LiveFrame();
  LiveFrame(const LiveFrame&) = delete;
  LiveFrame& operator=(const LiveFrame&) = delete;

  PyThreadState* thread() const { return thread_; }
  CodeState& state() const { return state_; }
  PyCodeObject* code() const { return state_.code(); }
  const std::shared_ptr<const Code>& decoded() const {
    return state_.decoded();
  }  // null with a Python error set: out of memory
  bool is_generator() const;                 // a generator's or coroutine's own frame: may yield
  bool is_fresh() const;                     // nothing of it has run
  PyCodeObject* caller_code() const;         // before enter(): code of the frame that calls it, borrowed; null if none
                                             // does
  bool is_observed() const;                  // tracing, profiling or monitoring is on: pass through

  // ---- state
  guards::FrameAccess access() const;        // valid until the frame runs or is written
  int next_index() const;
  void set_next(int index);
  int current_index() const;
  void set_current(int index);  // what tracebacks and f_lineno show while the caller works on the frame's behalf
  std::span<PyObject*> locals() const;       // the slots themselves, owned by the frame
  std::span<PyObject*> stack() const;        // entries themselves, bottom first
  void push(PyObject* value);                // steals
  // Swaps in all locals (co_nlocalsplus of them, null: unbound) and a whole stack, sets the next instruction, and only
  // then drops the old values. Steals the contents of `locals` and `stack`, which then hold only nulls.
  void replace(std::span<PyObject*> locals, std::span<PyObject*> stack, int next_index);
  bool is_held() const;  // something holds its frame object, which will show the contents after the end
  PyObject* handled() const;                 // exception being handled, borrowed; null or None: none
  void set_handled(PyObject* exception);     // steals; null: none

  // ---- running
  bool enter();                              // false: RecursionError is set and the frame is gone; return null
  bool is_entered() const { return entered_; }
  EvalResult run(const EvalLimits& limits = {});       // from next_index()
  EvalResult run_one() { return run({nullptr, 1}); }   // one instruction: a graph break
  // An error is set, raised on behalf of the instruction at current_index(): adds the traceback entry, goes to the
  // handler and continues there.
  EvalResult raise_and_run(const EvalLimits& limits = {});
  bool poll();                               // signals and the like; false: an error is set (raise_and_run it)

  // ---- leaving
  PyObject* pass_through(int throwing = 0);  // untouched frame: to the hook below, or to the interpreter
  PyObject* return_value(PyObject* value);   // steals
  PyObject* raise();                         // the error that is set leaves the frame (EvalStop::raised)
  PyObject* hand_over();                     // the interpreter continues at next_index()
  PyObject* conclude(const EvalResult& result);  // the leaving function that fits: return, raise, yield, or hand over

 private:
  void leave();
  PyObject* yield(const EvalResult& result);
  PyThreadState* thread_;
  struct _PyInterpreterFrame* frame_;
  CodeState& state_;
  EvalFunction below_;
  EntryUse use_;
  bool entered_ = false;
  // A pyver::Link, built in place by enter(). Only the version layer knows its type.
  alignas(8) unsigned char link_[64];
};

}  // namespace framejit::frame_hook
