// inductor/schedule/kept_nests.cpp — the table of reasons.
#include "inductor/schedule/kept_nests.h"

namespace framejit::inductor {
namespace {

struct Row {
  const char *name, *text;
};
constexpr Row kRows[] = {
#define KEPT_NESTS(name, text) {#name, text},
#include "inductor/schedule/kept_nests.def"
#undef KEPT_NESTS
};

}  // namespace

const char* name_of(KeptNests reason) { return kRows[static_cast<size_t>(reason)].name; }
const char* text_of(KeptNests reason) { return kRows[static_cast<size_t>(reason)].text; }

void note(KeptNestPairs* notes, const std::string& first, const std::string& second, KeptNests reason) {
  if (notes == nullptr) return;
  notes->push_back({first, second, reason});
}

}  // namespace framejit::inductor
