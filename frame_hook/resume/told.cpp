// frame_hook/resume/told.cpp — see told.h.
#include "frame_hook/resume/told.h"

#include "frame_hook/resume/entries.h"
#include "runtime/base/log.h"

namespace framejit::frame_hook {

bool ToldInCall::tells_yes(CodeState& state) const { return !only_no_ && note_of(state).hints.tells_compiling; }

bool ToldInCall::fits(const Segment& segment, CodeState& state) const {
  if (segment.told == Told::yes) return tells_yes(state);
  return segment.told != Told::no_as_before || !tells_yes(state);
}

void ToldInCall::runs(const Segment& segment, PyCodeObject* code) {
  if (segment.told == Told::no_after_error) only_no_ = true;
  const bool ends_call = segment.exit == ExitKind::returned && callees_ == 0;
  if (segment.told == Told::yes && !ends_call) told_yes_.push_back(PyRef::borrow(reinterpret_cast<PyObject*>(code)));
}

PyObject* ToldInCall::leaves(PyObject* result) {
  if (!result && !told_yes_.empty() && PyErr_ExceptionMatches(PyExc_Exception)) learn_from_error();
  return result;
}

void ToldInCall::learn_from_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  std::vector<std::unique_ptr<EntryBase>> taken;
  for (const PyRef& code : told_yes_) {
    CodeState* state = CodeState::find(reinterpret_cast<PyCodeObject*>(code.get()));
    if (!state || !std::exchange(note_of(*state).hints.tells_compiling, false)) continue;
    state->take_entries(
        [](const EntryBase& entry) { return static_cast<const SegmentEntry&>(entry).segment->told == Told::yes; },
        taken);
    if (log::enabled(log::Kind::ToldYes)) {
      const std::string error = reinterpret_cast<PyTypeObject*>(type)->tp_name,
                        function = place_of(state->code(), state->code()->co_firstlineno);
      log::emit(log::Kind::ToldYes, "", {{"error", error}, {"function", function}});
    }
  }
  taken.clear();
  PyErr_Restore(type, value, traceback);
}

}  // namespace framejit::frame_hook
