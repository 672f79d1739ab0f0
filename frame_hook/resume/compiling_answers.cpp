#include "frame_hook/resume/compiling_answers.h"

#include "frame_hook/resume/entries.h"
#include "runtime/base/log.h"

namespace framejit::frame_hook {

bool CompilingAnswers::answers_yes(CodeState& state) const {
  return !only_no_ && note_of(state).hints.answers_compiling;
}

bool CompilingAnswers::fits(const Segment& segment, CodeState& state) const {
  if (segment.answer == CompilingAnswer::yes) return answers_yes(state);
  return segment.answer != CompilingAnswer::no_as_before || !answers_yes(state);
}

void CompilingAnswers::runs(const Segment& segment, PyCodeObject* code) {
  if (segment.answer == CompilingAnswer::no_after_error) only_no_ = true;
  const bool ends_call = segment.exit == ExitKind::returned && callees_ == 0;
  if (segment.answer == CompilingAnswer::yes && !ends_call)
    answered_yes_.push_back(PyRef::borrow(reinterpret_cast<PyObject*>(code)));
}

PyObject* CompilingAnswers::leaves(PyObject* result) {
  if (!result && !answered_yes_.empty() && PyErr_ExceptionMatches(PyExc_Exception)) learn_from_error();
  return result;
}

void CompilingAnswers::learn_from_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  std::vector<std::unique_ptr<EntryBase>> taken;
  for (const PyRef& code : answered_yes_) {
    CodeState* state = CodeState::find(reinterpret_cast<PyCodeObject*>(code.get()));
    if (!state || !std::exchange(note_of(*state).hints.answers_compiling, false)) continue;
    state->take_entries(
        [](const EntryBase& entry) {
          return static_cast<const SegmentEntry&>(entry).segment->answer == CompilingAnswer::yes;
        },
        taken);
    if (log::enabled(log::Kind::AnsweredYes)) {
      const std::string error = reinterpret_cast<PyTypeObject*>(type)->tp_name,
                        function = place_of(state->code(), state->code()->co_firstlineno);
      log::emit(log::Kind::AnsweredYes, "", {{"error", error}, {"function", function}});
    }
  }
  taken.clear();
  PyErr_Restore(type, value, traceback);
}

}  // namespace framejit::frame_hook
