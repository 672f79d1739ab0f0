// runtime/base/reasons.h — why something was not done: rows of reasons.def, which all folders share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace framejit {

enum class ReasonKind : uint8_t { break_, interruption, fallback, refusal, limit, defect };

enum class Reason : uint8_t {
#define REASON(kind, name, what, hint) name,
#include "runtime/base/reasons.def"
#undef REASON
};

struct ReasonRow {
  ReasonKind kind;
  const char* name;
  const char* what;
  const char* hint;
};
const ReasonRow& row_of(Reason reason);
inline const char* name_of(Reason reason) { return row_of(reason).name; }
std::string sentence(Reason reason, std::string_view detail);  // the row's sentence, with the detail
std::optional<Reason> find_reason(std::string_view name);

}  // namespace framejit
