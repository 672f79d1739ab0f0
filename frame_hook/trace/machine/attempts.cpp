// frame_hook/trace/machine/attempts.cpp — where an attempt at a trace stops, and where the next one does.
#include "frame_hook/trace/machine/attempts.h"

#include <algorithm>

#include "frame_hook/trace/values/library_files.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/running_compile.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

namespace {

constexpr uint64_t kPollInterval = 1024;

}  // namespace

void BreakFacts::take_guard(const GraphBreak& b, const guards::SourceTable& sources) {
  guard = b.guard;
  path.clear();
  for (guards::SourceId id = guard ? guard->source : guards::kNoSource; id != guards::kNoSource; id = sources[id].base)
    path.insert(path.begin(), sources[id]);
}

void BreakFacts::add_to(guards::GuardSet& guards) const {
  guards.modes.insert(guards.modes.end(), modes.begin(), modes.end());
  if (!guard) return;
  guards::Guard added = *guard;
  added.source = guards::kNoSource;
  for (const guards::Source& s : path) {
    const size_t known = guards.sources.size();
    added.source = guards.sources.add(s.kind, added.source, s.index, s.key.get());
    // What leads to an object that the trace has not reached is not guarded. The frame itself needs no guard.
    if (guards.sources.size() > known && s.base != guards::kNoSource) return;
  }
  guards.add(std::move(added));
}

Attempts::Attempts(FrameTrace& trace, CallStack& stack, const TraceOptions& options)
    : trace_(trace), stack_(stack), options_(options), compiling_(options.hints) {}

void Attempts::begin_trace() {
  stop_at_step_ = UINT64_MAX;
  stop_facts_ = {};
}

void Attempts::reset() {
  held_locks_.clear();
  raised_at_.clear();
  compiling_.begin_attempt();
  break_step_.reset();
  break_facts_ = {};
  step_ = 0;
  next_poll_ = std::min(stop_at_step_, kPollInterval);
}

// ---- steps

uint64_t Attempts::resumable_step() const {
  uint64_t step = 1;
  for (const auto& frame : stack_.frames()) {
    if (frame->generator) break;
    step = frame->step_at_instruction;
    if (frame->on_return == OnReturn::not_resumable) break;
  }
  return held_locks_.empty() ? step : std::min(step, held_locks_.front().second);
}

void Attempts::stop_here() {
  for (const auto& frame : stack_.frames()) trace_.exit.push_back({frame});
  throw StopTracing{};
}

bool Attempts::release(Value* lock) {
  const auto last =
      std::find_if(held_locks_.rbegin(), held_locks_.rend(), [&](const auto& held) { return held.first == lock; });
  if (last == held_locks_.rend()) return false;
  held_locks_.erase(std::next(last).base());
  return true;
}

void Attempts::poll() {
  if (step_ == stop_at_step_) stop_here();
  next_poll_ = std::min(stop_at_step_, step_ + kPollInterval);
  if (interrupt_is_kept()) throw Interrupted{};
  Reason reason{};
  std::string detail;
  if (step_ >= options_.max_steps) {
    reason = Reason::trace_too_long;
    detail = std::to_string(options_.max_steps);
  } else if (ctrl_c_is_pending()) {
    reason = Reason::interrupted;
    detail = "a signal";
  } else {
    return;
  }
  if (resumable_step() != stack_.frames().back()->step_at_instruction) {
    next_poll_ = step_ + 1;  // soon
    return;
  }
  stop_reason_ = reason;
  stop_detail_ = detail;
  take_place();
  stop_here();
}

// ---- where the next attempt stops

void Attempts::take_place() {
  stop_where_ = stack_.here();
  if (stack_.frames().empty()) return;
  const SymbolicFrame& f = *stack_.frames().back();
  stop_place_ = {PyRef::borrow(f.code->code->co_filename), f.code->span(f.code->instructions[f.position])};
}

void Attempts::stop_before(uint64_t step, Reason reason, std::string detail, std::string where) {
  FJ_ASSERT(step < stop_at_step_, "a second trace of a frame took different steps");
  stop_at_step_ = step;
  stop_reason_ = reason;
  stop_detail_ = std::move(detail);
  stop_where_ = std::move(where);
}

void Attempts::hand_over_stop() {
  stop_facts_.add_to(trace_.guards);
  trace_.reason = stop_reason_;
  trace_.detail = stop_detail_;
  if (!stop_where_.empty()) trace_.where = stop_where_;
  trace_.place = stop_place_;
}

void Attempts::note_break() {
  if (break_step_) return;
  break_step_ = resumable_step();
  break_frames_.clear();
  break_handled_ = 0;
  for (const auto& frame : stack_.frames()) {
    break_frames_.emplace_back(frame->code->code, frame->position);
    break_handled_ += frame->handled.size() - std::ranges::count(frame->handled, nullptr);
  }
  take_place();
}

void Attempts::move_break(uint64_t step) {
  note_break();
  break_step_ = step;
}

bool Attempts::starts_over(CompilingQuestion::Next next) {
  if (next == CompilingQuestion::Next::same_answer) return false;
  if (next == CompilingQuestion::Next::other_answer) return stop_at_step_ = UINT64_MAX, true;
  NotedBreak broke = compiling_.take_break_of_yes();
  stop_facts_ = std::move(broke.facts);
  stop_place_ = std::move(broke.place);
  stop_before(broke.step, broke.reason, std::move(broke.detail), std::move(broke.where));
  return true;
}

void Attempts::after_break(const GraphBreak& b) {
  break_facts_.take_guard(b, trace_.guards.sources);
  NotedBreak broke{break_frames_, break_step_.value_or(1),         b.reason,      b.detail, stop_where_,
                   stop_place_,   std::exchange(break_facts_, {}), break_handled_};
  if (starts_over(compiling_.after_break(broke, is_first()))) return;
  stop_facts_ = std::move(broke.facts);
  stop_before(broke.step, b.reason, b.detail, stop_where_);
}

void Attempts::after_raise(Value* exception) {
  if (starts_over(compiling_.after_error())) return;
  const RaisePoint& point = raised_at_.at(exception);
  stop_before(point.step, Reason::exception_raised,
              std::string(exception->type->tp_name) + ", which the traced code does not catch,", point.where);
}

void Attempts::note_raise(Value* exception) {
  if (!raised_at_.contains(exception)) raised_at_.emplace(exception, RaisePoint{resumable_step(), stack_.here()});
}

const Attempts::RaisePoint* Attempts::find_raise(const Value* exception) const {
  const auto found = raised_at_.find(exception);
  return found == raised_at_.end() ? nullptr : &found->second;
}

}  // namespace framejit::frame_hook
