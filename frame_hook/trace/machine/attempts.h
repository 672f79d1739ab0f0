// frame_hook/trace/machine/attempts.h — attempts at one trace: the instruction that each of them stops before.
//
// A graph break happens in the middle of an instruction, when values have been written and ops recorded. To get the
// state before the instruction, tracing starts again from the beginning and stops there. Tracing is deterministic, so
// step n is the same instruction. If the frames at the exit cannot be rebuilt, the stop moves outwards.
#pragma once

#include "frame_hook/trace/machine/call_stack.h"
#include "frame_hook/trace/machine/compiling_question.h"

namespace framejit::frame_hook {

struct StopTracing {};  // thrown at an instruction boundary, when the exit is set

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

  // ---- locks, each with the step to stop before while it is held
  void hold(Value* lock) { held_locks_.emplace_back(lock, resumable_step()); }
  bool release(Value* lock);  // the one taken last; false: it is not held
  const std::vector<std::pair<Value*, uint64_t>>& held_locks() const { return held_locks_; }

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

  CompilingQuestion& compiling() { return compiling_; }

 private:

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
  std::vector<std::pair<const PyCodeObject*, size_t>> break_frames_;  // as in NotedBreak; set with break_step_
  size_t break_handled_ = 0;  // as in NotedBreak; set with break_step_
  std::unordered_map<const Value*, RaisePoint> raised_at_;
  std::vector<std::pair<Value*, uint64_t>> held_locks_;
  CompilingQuestion compiling_;

  bool starts_over(CompilingQuestion::Next next);  // false: this attempt decides where the next one stops
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
