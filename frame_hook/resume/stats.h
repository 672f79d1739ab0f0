// frame_hook/resume/stats.h — totals since import or reset, as framejit.stats() shows them. Touched with the GIL held.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/base/reasons.h"

namespace framejit::frame_hook {

struct Stats {
  uint64_t graphs = 0, graph_breaks = 0, recompiles = 0, fallbacks = 0, ops = 0, kernels = 0, frames = 0;
  uint64_t hits = 0, plain_hits = 0;  // entries that fitted when they were asked for: with a graph, without tensor work
  uint64_t left_alone = 0;  // instructions and functions of which it was said once that they are compiled no more
  double compile_seconds = 0, trace_seconds = 0;
  uint64_t traced_instructions = 0, inlined_calls = 0;
  uint64_t segment_instructions = 0;  // that segments stood for when they ran
  std::map<std::string, uint64_t> break_reasons, fallback_reasons;
};

Stats& stats();

// Counts a break and logs it. caret: source lines with carets, or "".
void count_break(Reason reason, const std::string& detail, const std::string& where, const std::string& caret);

// Counts a plain run and logs it. detail: "" says what the reason's row says.
void count_fallback(Reason reason, const std::string& where, const std::string& detail = "");

}  // namespace framejit::frame_hook
