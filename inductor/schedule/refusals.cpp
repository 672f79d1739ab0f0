// inductor/schedule/refusals.cpp — the table of reasons.
#include "inductor/schedule/refusals.h"

namespace framejit::inductor {
namespace {

struct Row {
  const char *name, *text;
};
constexpr Row kRows[] = {
#define REFUSAL(name, text) {#name, text},
#include "inductor/schedule/refusals.def"
#undef REFUSAL
};

}  // namespace

const char* name_of(Refusal refusal) { return kRows[static_cast<size_t>(refusal)].name; }
const char* text_of(Refusal refusal) { return kRows[static_cast<size_t>(refusal)].text; }

void note(RefusalNotes* notes, const std::string& first, const std::string& second, Refusal reason) {
  if (notes == nullptr) return;
  notes->push_back({first, second, reason});
}

}  // namespace framejit::inductor
