// frame_hook/trace/machine/compiling_answer.cpp — what torch.compiler.is_compiling() answers in a trace.
//
// If the answer is yes, a program may take a path that eager never takes, and fail there. As long as nothing of the
// trace is committed, framejit traces again with the answer of plain Python. A failure after a commit cannot be undone.
// So in a trace that ends in a break the answer is yes only if the trace gets further that way. It is also no if the
// break lies in the handling of an exception that does not occur with the answer no.
#include "frame_hook/trace/machine/attempts.h"

namespace framejit::frame_hook {

bool Attempts::changes_answer_after_error() {
  if (returns_to_yes()) return true;
  if (!compiling_was_asked_ || answer_ != CompilingAnswer::yes) return false;
  answer_ = CompilingAnswer::no_after_error;
  stop_at_step_ = UINT64_MAX;
  return true;
}

bool Attempts::changes_answer_at_break(const GraphBreak& b) {
  if (b.reason == Reason::exception_raised) return changes_answer_after_error();
  if (break_answered_yes_) {
    const bool no_error = break_handled_ < break_answered_yes_->handled;
    return no_error || break_frames_ == break_answered_yes_->frames ? break_answered_yes_.reset(),
           false                                                    : returns_to_yes();
  }
  if (!compiling_was_asked_ || answer_ != CompilingAnswer::yes || stop_at_step_ != UINT64_MAX) return false;
  break_answered_yes_ = Break{break_frames_, break_step_.value_or(1),         b.reason,      b.detail, stop_where_,
                              stop_place_,   std::exchange(break_facts_, {}), break_handled_};
  answer_ = CompilingAnswer::no;
  return true;
}

bool Attempts::returns_to_yes() {
  if (!break_answered_yes_) return false;
  Break broke = std::move(*break_answered_yes_);
  break_answered_yes_.reset();
  answer_ = CompilingAnswer::yes;
  stop_facts_ = std::move(broke.facts);
  stop_place_ = std::move(broke.place);
  stop_before(broke.step, broke.reason, std::move(broke.detail), std::move(broke.where));
  return true;
}

}  // namespace framejit::frame_hook
