// runtime/aten/totals.h — what framejit.stats() says of this process: derived values, backwards, graphs of GPUs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace framejit::runtime {

struct DerivedTotals {
  uint64_t values = 0, bytes = 0;  // that exist now; of packed ones, the bytes that the system has provided
  uint64_t made = 0, again = 0;    // so far; of these, in place of earlier ones
  uint64_t private_bytes = 0;      // of files: copies of this process, made so that writes to them are seen
};
DerivedTotals derived_totals();
void reset_derived_totals();  // the counts of what was made so far

struct BackwardTotals {
  std::atomic<uint64_t> graphs = 0, runs = 0, failed = 0;  // failed: plans without code, and runs that were stopped
};
BackwardTotals& backward_totals();
// Counts it, and says so once for each cause.
void count_failed_backward(const std::string& why, const std::string& where);

struct ReplayTotals {
  std::atomic<uint64_t> recorded{0}, replays{0};
  std::atomic<int64_t> bytes{0};  // of slots and outputs that exist now
};
ReplayTotals& replay_totals();
void reset_replay_totals();  // but for the bytes

}  // namespace framejit::runtime
