// frame_hook/trace/machine/attempts.h — attempts at one trace: the instruction that each of them stops before, and what
// torch.compiler.is_compiling() answers in it.
//
// A graph break happens in the middle of an instruction, when values have been written and ops recorded. To get the
// state before the instruction, tracing starts again from the beginning and stops there. Tracing is deterministic, so
// step n is the same instruction. If the frames at the exit cannot be rebuilt, the stop moves outwards.
#pragma once

#include "frame_hook/trace/machine/call_stack.h"
#include "frame_hook/trace/machine/frame_trace.h"

namespace framejit::frame_hook {

struct StopTracing {};  // thrown at an instruction boundary, when the exit is set

// What a break depends on. The next attempt stops before the break, so it does not see this.
struct BreakFacts {
  std::vector<std::shared_ptr<const guards::ModeFacts>> modes;
  std::optional<guards::Guard> guard;
  std::vector<guards::Source> path;  // to the object of the guard, outermost first

  void take_guard(const GraphBreak& b, const guards::SourceTable& sources);
  void add_to(guards::GuardSet& guards) const;  // the guard only if the trace has reached its object
};

class Attempts {
 public:
  struct RaisePoint {
    uint64_t step;
    std::string where;
  };

  Attempts(FrameTrace& trace, CallStack& stack, const TraceOptions& options);
  void begin_trace();
  void reset();  // a new attempt begins
  bool is_first() const { return stop_at_step_ == UINT64_MAX; }

  // ---- steps
  uint64_t step() const { return step_; }
  void begin_instruction(SymbolicFrame& f);  // throws StopTracing where this attempt stops
  uint64_t resumable_step() const;  // the innermost instruction before which tracing can stop
  std::vector<std::pair<Value*, uint64_t>> held_locks;  // each with the step to stop before while it is held

  // ---- where the next attempt stops
  void stop_before(uint64_t step, Reason reason, std::string detail, std::string where);
  void hand_over_stop();  // gives the trace the reason and the place of this attempt's stop
  void note_break();  // called by each frame that a GraphBreak passes
  void move_break(
      uint64_t step);  // the break that is about to be thrown: to an earlier step, as it ends the graph there
  void after_break(const GraphBreak& b);
  void after_raise(Value* exception);  // one that no frame caught
  void note_raise(Value* exception);
  const RaisePoint* find_raise(const Value* exception) const;  // the instruction to stop at if nobody catches it
  // Until forget_reliance(), a break relies on these facts too: it is right only in this state of the process.
  void rely_until_break(std::shared_ptr<const guards::ModeFacts> facts) {
    break_facts_.modes.push_back(std::move(facts));
  }
  void forget_reliance() { break_facts_.modes.pop_back(); }

  // ---- answers of program code that ran while tracing
  bool answer_compiling() { return compiling_was_asked_ = true, answer_ == CompilingAnswer::yes; }
  CompilingAnswer compiling_answer() const { return compiling_was_asked_ ? answer_ : CompilingAnswer::nothing; }
  // The result of a function that ran while tracing; one for all attempts. Null: it has not run.
  PyRef& assumed_constant(const std::string& call) { return assumed_constants_[call]; }

 private:
  struct Break {
    std::vector<std::pair<const PyCodeObject*, size_t>> frames;  // each at its instruction, outermost first
    uint64_t step;
    Reason reason;
    std::string detail, where;
    BreakPlace place;
    BreakFacts facts;
    size_t handled;  // how many exceptions are being handled
  };

  FrameTrace& trace_;
  CallStack& stack_;
  const TraceOptions& options_;
  uint64_t step_ = 0, stop_at_step_ = UINT64_MAX;
  uint64_t next_poll_ = 0;  // step at which poll() looks
  Reason stop_reason_{};
  std::string stop_detail_, stop_where_;
  BreakPlace stop_place_;
  BreakFacts break_facts_, stop_facts_;  // of calls in progress; of the break
  std::optional<uint64_t> break_step_;  // set by the innermost frame that a GraphBreak passes
  std::vector<std::pair<const PyCodeObject*, size_t>> break_frames_;  // as in Break; set with break_step_
  size_t break_handled_ = 0;  // as in Break; set with break_step_
  std::unordered_map<const Value*, RaisePoint> raised_at_;
  std::unordered_map<std::string, PyRef> assumed_constants_;
  CompilingAnswer answer_;  // the answer to is_compiling() in this attempt
  bool compiling_was_asked_ = false;  // in this attempt
  std::optional<Break> break_answered_yes_;  // of the attempt that was answered yes; set during the attempt that is
                                             // answered no

  // True if the trace starts over with the other answer (compiling_answer.cpp).
  bool changes_answer_after_error();
  bool changes_answer_at_break(const GraphBreak& b);
  bool returns_to_yes();
  void poll();  // stop step, limits, signals
  [[noreturn]] void stop_here();
  void take_place();  // sets stop_where_ and stop_place_
};

inline void Attempts::begin_instruction(SymbolicFrame& f) {
  f.step_at_instruction = ++step_;
  f.on_return = OnReturn::not_resumable;
  if (step_ >= next_poll_) [[unlikely]]
    poll();
}

}  // namespace framejit::frame_hook
