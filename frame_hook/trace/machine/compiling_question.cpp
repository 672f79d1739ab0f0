#include "frame_hook/trace/machine/compiling_question.h"

namespace framejit::frame_hook {

CompilingQuestion::Next CompilingQuestion::after_error() {
  if (broke_at_yes_) return Next::first_answer;
  if (!was_asked_ || answer_ != CompilingAnswer::yes) return Next::same_answer;
  answer_ = CompilingAnswer::no_after_error;
  return Next::other_answer;
}

CompilingQuestion::Next CompilingQuestion::after_break(NotedBreak& b, bool is_first) {
  if (b.reason == Reason::exception_raised) return after_error();
  if (broke_at_yes_) {
    const bool no_error = b.handled < broke_at_yes_->handled;
    if (!no_error && b.frames != broke_at_yes_->frames) return Next::first_answer;
    broke_at_yes_.reset();
    return Next::same_answer;
  }
  if (!was_asked_ || answer_ != CompilingAnswer::yes || !is_first) return Next::same_answer;
  broke_at_yes_ = std::move(b);
  answer_ = CompilingAnswer::no;
  return Next::other_answer;
}

NotedBreak CompilingQuestion::take_break_of_yes() {
  answer_ = CompilingAnswer::yes;
  NotedBreak taken = std::move(*broke_at_yes_);
  broke_at_yes_.reset();
  return taken;
}

}  // namespace framejit::frame_hook
