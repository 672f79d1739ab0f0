// frame_hook/resume/stats.h — totals since import or reset, as framejit.stats() shows them. Touched with the GIL held.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "frame_hook/trace/graph_break.h"

namespace framejit::frame_hook {

struct Stats {
  uint64_t graphs = 0, graph_breaks = 0, recompiles = 0, fallbacks = 0, ops = 0, kernels = 0, hits = 0, frames = 0;
  double compile_seconds = 0, trace_seconds = 0;
  uint64_t traced_instructions = 0, inlined_calls = 0;
  std::map<std::string, uint64_t> break_reasons;
};

Stats& stats();

// Counts a break and logs it. caret: source lines with carets, or "".
void count_break(BreakReason reason, const std::string& detail, const std::string& where, const std::string& caret);

}  // namespace framejit::frame_hook
