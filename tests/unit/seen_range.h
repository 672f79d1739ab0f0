// tests/unit/seen_range.h — a body for a range that threads share, which records its parts and threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace framejit::runtime::testing {

struct Seen {
  explicit Seen(int64_t n, size_t wanted_threads = 1) : visits(static_cast<size_t>(n)), wanted(wanted_threads) {}

  std::vector<std::atomic<int>> visits;
  const size_t wanted;  // each part waits until this many threads have come
  std::mutex mutex;
  std::set<std::thread::id> threads;
  int64_t smallest = INT64_MAX;
  int parts = 0;

  size_t thread_count() {
    const std::lock_guard lock(mutex);
    return threads.size();
  }
  bool each_once() const {
    for (const auto& visit : visits)
      if (visit != 1) return false;
    return true;
  }
};

inline void look(void* state, int64_t begin, int64_t end) {
  Seen& seen = *static_cast<Seen*>(state);
  for (int64_t i = begin; i < end; ++i) ++seen.visits[static_cast<size_t>(i)];
  {
    const std::lock_guard lock(seen.mutex);
    seen.threads.insert(std::this_thread::get_id());
    seen.smallest = std::min(seen.smallest, end - begin);
    ++seen.parts;
  }
  for (int i = 0; i < 60000 && seen.thread_count() < seen.wanted; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace framejit::runtime::testing
