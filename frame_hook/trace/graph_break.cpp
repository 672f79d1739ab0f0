// frame_hook/trace/graph_break.cpp — the table of break reasons.
#include "frame_hook/trace/graph_break.h"

namespace framejit::frame_hook {

namespace {

const BreakRow kRows[] = {
#define BREAK(name, what, hint) {#name, what, hint},
#include "frame_hook/trace/break_reasons.def"
#undef BREAK
};

}  // namespace

const BreakRow& row_of(BreakReason reason) { return kRows[static_cast<size_t>(reason)]; }

std::string describe_break(BreakReason reason, std::string_view detail) {
  std::string text = row_of(reason).what;
  return text.replace(text.find("{0}"), 3, detail);
}

bool find_break_reason(const std::string& name, BreakReason* reason) {
  for (size_t i = 0; i < sizeof(kRows) / sizeof(kRows[0]); ++i) {
    if (name != kRows[i].name) continue;
    *reason = static_cast<BreakReason>(i);
    return true;
  }
  return false;
}

}  // namespace framejit::frame_hook
