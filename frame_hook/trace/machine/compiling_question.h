// frame_hook/trace/machine/compiling_question.h — what torch.compiler.is_compiling() answers in each attempt.
//
// If the answer is yes, a program may take a path that eager never takes, and fail there. As long as nothing of the
// trace is committed, framejit traces again with the answer of plain Python. A failure after a commit cannot be undone.
// So in a trace that ends in a break the answer is yes only if the trace gets further that way. It is also no if the
// break lies in the handling of an exception that does not occur with the answer no.
#pragma once

#include "frame_hook/trace/machine/frame_trace.h"

namespace framejit::frame_hook {

// What a break depends on. The next attempt stops before the break, so it does not see this.
struct BreakFacts {
  std::vector<std::shared_ptr<const guards::ModeFacts>> modes;
  std::optional<guards::Guard> guard;
  std::vector<guards::Source> path;  // to the object of the guard, outermost first

  void take_guard(const GraphBreak& b, const guards::SourceTable& sources);
  void add_to(guards::GuardSet& guards) const;  // the guard only if the trace has reached its object
};

struct NotedBreak {
  std::vector<std::pair<const PyCodeObject*, size_t>> frames;  // each at its instruction, outermost first
  uint64_t step;
  Reason reason;
  std::string detail, where;
  BreakPlace place;
  BreakFacts facts;
  size_t handled;  // how many exceptions are being handled
};

class CompilingQuestion {
 public:
  enum class Next : uint8_t {
    same_answer,  // the attempt stops where it broke
    other_answer,  // from the beginning, with no stop
    first_answer,  // stops at break_of_yes()
  };

  explicit CompilingQuestion(const TraceHints& hints)
      : answer_(hints.answers_compiling ? CompilingAnswer::yes : CompilingAnswer::no_as_before) {}
  void begin_attempt() { was_asked_ = false; }
  bool ask() { return was_asked_ = true, answer_ == CompilingAnswer::yes; }
  CompilingAnswer answer() const { return was_asked_ ? answer_ : CompilingAnswer::nothing; }

  Next after_error();
  Next after_break(NotedBreak& b, bool is_first);  // is_first: the attempt had no stop; may take b
  NotedBreak take_break_of_yes();

 private:
  CompilingAnswer answer_;  // in this attempt
  bool was_asked_ = false;  // in this attempt
  std::optional<NotedBreak> broke_at_yes_;  // set during the attempt that is answered no
};

}  // namespace framejit::frame_hook
