// Parts of a range on several threads: how many there really are, and that they share the range without gaps.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "runtime/aten/parallel.h"
#include "tests/unit/seen_range.h"

namespace framejit::runtime {
namespace {

class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

using testing::look;
using testing::Seen;
using Shared = std::pair<int, int>;

// How many threads ran parts, and how many parts there were.
Shared share(int64_t n, int64_t grain, int wanted = 1) {
  Seen seen(n, static_cast<size_t>(wanted));
  parallel_for(0, n, grain, look, &seen);
  EXPECT_TRUE(seen.each_once()) << n << " by " << grain;
  return {static_cast<int>(seen.thread_count()), seen.parts};
}

TEST(Parallel, AsManyThreadsAsTorchHas) {
  for (const int count : {2, 4}) {
    const Threads threads(count);
    EXPECT_EQ(share(1003, 10, count).first, count);
  }
  const Threads four(4);
  EXPECT_EQ(share(70, 10), Shared(1, 1)) << "too little to wait for others";
}

TEST(Parallel, OneThreadAndSmallRangesAreSerial) {
  {
    const Threads one(1);
    EXPECT_EQ(share(1000, 10), Shared(1, 1));
  }
  const Threads two(2);
  EXPECT_EQ(share(10, 10), Shared(1, 1));
  EXPECT_EQ(share(1001, 999), Shared(1, 1)) << "less than two grains";
  Seen none(1);
  parallel_for(3, 3, 1, look, &none);
  EXPECT_EQ(none.parts, 0);
}

TEST(Parallel, InsideOfAParallelRegionItIsSerial) {
  const Threads two(2);
  {
    struct Inner {
      std::mutex mutex;
      std::vector<Shared> shares;
    } inner;
    // A region like that of at::parallel_for, whose template would be serial here, because this file is compiled
    // without OpenMP.
    parallel_for(0, 128, 1, [](void* state, int64_t, int64_t) {
      const Shared shared = share(1000, 10);
      Inner& all = *static_cast<Inner*>(state);
      const std::lock_guard lock(all.mutex);
      all.shares.push_back(shared);
    }, &inner);
    EXPECT_EQ(inner.shares, std::vector<Shared>(inner.shares.size(), Shared(1, 1)));
    EXPECT_GE(inner.shares.size(), 2U);
  }
}

}  // namespace
}  // namespace framejit::runtime
