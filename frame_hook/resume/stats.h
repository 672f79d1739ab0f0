// frame_hook/resume/stats.h — totals since import or reset, as framejit.stats() shows them, and what is reported about
// them. Touched with the GIL held.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "runtime/base/reasons.h"

namespace framejit::frame_hook {

// An upper limit on the number of reasons, which are bytes.
constexpr size_t kReasons = 256;

struct Stats {
  uint64_t graphs = 0, graph_breaks = 0, recompiles = 0, fallbacks = 0, ops = 0, kernels = 0, frames = 0;
  uint64_t hits = 0, plain_hits = 0;  // entries that fitted when they were looked up: with a graph, without tensor work
  std::array<uint64_t, kReasons> breaks_of_plain_hits{};  // of those that end at a break: by its reason
  uint64_t left_alone = 0;  // instructions and functions that were logged, once, as compiled no more
  double compile_seconds = 0, trace_seconds = 0;
  uint64_t traced_instructions = 0, inlined_calls = 0;
  uint64_t segment_instructions = 0;  // instructions that segments stood for when they ran
  std::map<std::string, uint64_t> break_reasons, fallback_reasons;
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

// Counts a plain run and logs it. detail: if "", the text of the reason's row is used.
void count_fallback(Reason reason, const std::string& where, const std::string& detail = "");

// The same for one that is an error: stderr does not say that it runs plainly.
void count_raised(Reason reason, const std::string& where, const std::string& detail);

// The same for a failure that was counted before: it is logged, but not reported again.
void count_again(Reason reason, const std::string& where);

}  // namespace framejit::frame_hook
