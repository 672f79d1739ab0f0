#include "runtime/base/reasons.h"

#include <iterator>

namespace framejit {
namespace {

constexpr ReasonRow kReasons[] = {
#define REASON(kind, name, what, hint) {ReasonKind::kind, #name, what, hint},
#include "runtime/base/reasons.def"
#undef REASON
};

}  // namespace

const ReasonRow& row_of(Reason reason) { return kReasons[static_cast<size_t>(reason)]; }

std::string sentence(Reason reason, std::string_view detail) {
  std::string text = row_of(reason).what;
  const size_t at = text.find("{0}");
  return at == std::string::npos ? text : text.replace(at, 3, detail);
}

std::optional<Reason> find_reason(std::string_view name) {
  for (size_t i = 0; i < std::size(kReasons); ++i)
    if (name == kReasons[i].name) return static_cast<Reason>(i);
  return std::nullopt;
}

}  // namespace framejit
