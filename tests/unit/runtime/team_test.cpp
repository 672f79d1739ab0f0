// Ranges shared by a team: every element once, whichever threads come, and nobody waits for a thread that took nothing.
#include "runtime/team.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/unit/seen_range.h"

namespace framejit::runtime {
namespace {

using namespace std::chrono_literals;
using testing::look;
using testing::Seen;

void share(Seen& seen, int threads, int64_t grain) {
  Team::shared().run(threads, 0, static_cast<int64_t>(seen.visits.size()), grain, look, &seen);
}

TEST(Team, ThreadsReallyWork) {
  for (const size_t threads : {2U, 3U, 5U}) {
    Seen seen(1009, threads);
    share(seen, static_cast<int>(threads), 10);
    EXPECT_TRUE(seen.each_once());
    EXPECT_EQ(seen.thread_count(), threads);
    EXPECT_GE(seen.smallest, 10);
    EXPECT_GE(Team::shared().workers(), static_cast<int>(threads) - 1);
  }
}

TEST(Team, SmallRangesAreTheCallers) {
  for (const auto& [n, grain, threads] : {std::tuple{19, 10, 4}, {1000, 1000, 4}, {1000, 1, 1}, {5, 100, 2}}) {
    Seen seen(n);
    share(seen, threads, grain);
    EXPECT_TRUE(seen.each_once());
    EXPECT_EQ(seen.parts, 1);
    EXPECT_EQ(seen.thread_count(), 1U);
  }
  Seen none(1);
  Team::shared().run(4, 3, 3, 1, look, &none);
  EXPECT_EQ(none.parts, 0);
}

TEST(Team, EveryCutIsWhole) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    const auto n = static_cast<int64_t>(random() % 400 + 1);
    Seen seen(n);
    share(seen, static_cast<int>(random() % 7 + 1), static_cast<int64_t>(random() % 40));
    ASSERT_TRUE(seen.each_once()) << round;
  }
}

TEST(Team, MoreThreadsThanRegions) {
  Seen seen(5000);
  share(seen, 100, 1);
  EXPECT_TRUE(seen.each_once());
}

struct Held {
  std::atomic<bool> is_held{false}, may_go{false};
  std::thread::id caller;
};

TEST(Team, NobodyWaitsForAWorkerThatTookNothing) {
  Team& team = Team::shared();
  Held held;
  // Both threads of this job are held, so all workers that a job of two threads may have are busy.
  std::thread other([&] {
    team.run(2, 0, 2, 1, [](void* state, int64_t, int64_t) {
      Held& h = *static_cast<Held*>(state);
      h.is_held = true;
      while (!h.may_go) std::this_thread::sleep_for(1ms);
    }, &held);
  });
  while (!held.is_held) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);
  for (int round = 0; round < 100; ++round) {
    Seen seen(1000);
    share(seen, 2, 1);
    EXPECT_TRUE(seen.each_once());
  }
  held.may_go = true;
  other.join();
}

TEST(Team, InsideOfABodyItIsSerial) {
  struct Inner {
    std::atomic<int> parts{0}, right{0};
  } inner;
  Team::shared().run(3, 0, 6, 1, [](void* state, int64_t, int64_t) {
    Seen seen(100);
    share(seen, 3, 1);
    Inner& all = *static_cast<Inner*>(state);
    ++all.parts;
    all.right += seen.parts == 1 && seen.each_once();
  }, &inner);
  EXPECT_EQ(inner.parts, inner.right);
  EXPECT_GE(inner.parts, 2);
}

TEST(Team, SeveralCallersAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (unsigned c = 0; c < 12; ++c)
    callers.emplace_back([&wrong, c] {
      std::mt19937 random(c);
      for (int round = 0; round < 1500; ++round) {
        Seen seen(static_cast<int64_t>(random() % 300 + 1));
        share(seen, static_cast<int>(random() % 4 + 1), static_cast<int64_t>(random() % 9));
        wrong += !seen.each_once();
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Team, AChildMakesItsOwnThreads) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer ends a child that makes threads";
#endif
  {
    Seen seen(100, 2);
    share(seen, 2, 1);
  }
  for (int round = 0; round < 3; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      if (Team::shared().workers() != 0) _exit(2);
      Seen seen(1000, 3);
      share(seen, 3, 1);
      _exit(seen.each_once() && seen.thread_count() == 3 ? 0 : 3);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  Seen seen(100, 2);
  share(seen, 2, 1);
  EXPECT_TRUE(seen.each_once());
}

TEST(Team, SleepersWake) {
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(5ms);
    Seen seen(100, 2);
    share(seen, 2, 1);
    EXPECT_EQ(seen.thread_count(), 2U);
  }
}

}  // namespace
}  // namespace framejit::runtime
