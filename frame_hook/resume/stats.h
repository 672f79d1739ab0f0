// frame_hook/resume/stats.h — totals since import or reset, as framejit.stats() shows them, and what is reported about
// them. Touched with the GIL held.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "runtime/base/reasons.h"

namespace framejit::frame_hook {

class LiveFrame;

// An upper limit on the number of reasons, which are bytes.
constexpr size_t kReasons = 256;

struct Stats {
#define COUNT(name, text) uint64_t name = 0;
#define SECONDS(name, text) double name = 0;
#define REASONS(name, text) std::map<std::string, uint64_t> name;
#define COUNTED(name, value, text)
#include "frame_hook/resume/totals.def"
#undef COUNTED
#undef REASONS
#undef SECONDS
#undef COUNT
  std::array<uint64_t, kReasons> breaks_of_plain_hits{};  // those that end at a break, by its reason
  uint64_t segment_instructions = 0;                      // instructions that segments stood for when they ran
};

Stats& stats();

// By reason; those that end without a break: "no_tensor_work".
std::map<std::string, uint64_t> plain_hit_reasons();

// A defect of ours, or something that this build or machine refused; nothing in the program asks for it. Under
// FRAMEJIT_STRICT it is an error.
bool is_failure(Reason reason);

// Counts a break and logs it. caret: source lines with carets, or "". raises: it is an error, and nothing runs plainly.
void count_break(Reason reason, const std::string& detail, const std::string& where, const std::string& caret,
                 bool raises = false);

// A compile that a signal ended. what: of the sentence of Reason::interrupted.
void count_interrupted(const std::string& what, const std::string& where);

// Counts a plain run and logs it. detail: if "", the text of the reason's row is used.
void count_fallback(Reason reason, const std::string& where, const std::string& detail = "");

// The same for a failure that is raised: stderr does not say that anything runs plainly.
void count_raised(Reason reason, const std::string& where, const std::string& detail);

// The same for a failure that was counted before: it is logged, but not reported again. Each plain call comes here.
void count_again(Reason reason, const LiveFrame& frame);

}  // namespace framejit::frame_hook
