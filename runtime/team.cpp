// runtime/team.cpp — jobs in a few slots that are never freed, so that late threads may still look at them.
//
// A job's range is cut into parts, and the parts are grouped into regions, one for each thread. A thread first takes
// the parts of its own region, so that it meets the same memory in the next kernel, and then what the others have left.
// A region is one word: the job's number, its next part and the end of its parts. It changes by compare-and-swap, so a
// thread that read the word for an older job takes nothing.
#include "runtime/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#include "runtime/pause.h"

namespace framejit::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using Word = std::atomic<uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);

constexpr int kSlots = 8, kRegions = 64, kPartsOfThread = 4;
// number of the job, end of the parts, next part
constexpr uint64_t kPartBits = 12, kPartMask = (1u << kPartBits) - 1;
static_assert(kRegions * kPartsOfThread <= static_cast<int>(kPartMask));
constexpr std::chrono::microseconds kLookOut{100}, kLookOutInVain{20}, kWaitAwake{50};
constexpr int64_t kFewGrains = 16;  // a job of a few microseconds

void wait_on(Word& word, uint32_t value) { syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0); }
void wake(Word& word, int count) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0); }

// Spins until ready() is true, or the time is over. Reads the clock only now and then.
template <class Ready>
bool look_for(Clock::duration time, Ready ready) {
  if (time <= Clock::duration::zero()) return ready();
  const Clock::time_point end = Clock::now() + time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause_thread();
    }
  } while (Clock::now() < end);
  return ready();
}

struct alignas(64) RegionWord {
  std::atomic<uint64_t> word{0};
};

struct Job {
  std::atomic<bool> is_taken{false};
  std::atomic<int> threads{0}, regions{0};
  std::atomic<int64_t> begin{0}, end{0}, parts{0};
  std::atomic<Team::Body> body{nullptr};
  std::atomic<void*> state{nullptr};
  uint64_t number = 0;               // of the job that has the slot
  alignas(64) Word done{0};          // parts that workers have done
  std::atomic<bool> is_awaited{false};
  std::array<RegionWord, kRegions> region;

  int64_t part_begin(int64_t part) const {
    const int64_t first = begin.load(std::memory_order_relaxed), count = parts.load(std::memory_order_relaxed);
    const int64_t size = end.load(std::memory_order_relaxed) - first;
    return first + size / count * part + std::min(part, size % count);
  }

  // Takes and runs parts, first those of the thread's own region. Returns how many.
  uint32_t help(int thread) {
    uint32_t taken = 0;
    const int count = regions.load(std::memory_order_relaxed);
    for (int i = 0; i < count; ++i) {
      std::atomic<uint64_t>& word = region[static_cast<size_t>((thread + i) % count)].word;
      uint64_t seen = word.load(std::memory_order_acquire);
      while ((seen & kPartMask) < ((seen >> kPartBits) & kPartMask)) {
        const auto part = static_cast<int64_t>(seen & kPartMask);
        const int64_t from = part_begin(part), to = part_begin(part + 1);
        const Team::Body run = body.load(std::memory_order_relaxed);
        void* const with = state.load(std::memory_order_relaxed);
        if (!word.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
        run(with, from, to);
        ++taken;
        seen = word.load(std::memory_order_acquire);
      }
    }
    return taken;
  }
};

thread_local bool t_is_inside = false;  // this thread runs a body

struct Workers {
  std::array<Job, kSlots> jobs;
  alignas(64) Word epoch{0};               // changes with each job
  alignas(64) std::atomic<uint32_t> sleeping{0};
  std::atomic<int> count{0};
  // missed: small jobs in a row for which a worker was woken in vain; skipped: jobs since then that woke nobody
  std::atomic<uint32_t> missed{0}, skipped{0};
  std::mutex making;
  std::atomic<Clock::rep> look_out{0};  // how long a worker spins

  void grow(int wanted);
  static void* start(void* number);

  // A worker must not keep a core that others wait for.
  void decide_look_out(int threads) {
    const char* policy = std::getenv("OMP_WAIT_POLICY");
    cpu_set_t cores;
    const bool are_few = sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) < threads;
    const bool is_passive = policy != nullptr && strcasecmp(policy, "passive") == 0;
    look_out.store(are_few || is_passive ? 0 : Clock::duration(kLookOut).count(), std::memory_order_relaxed);
  }

  void work(int thread) {
    bool has_slept = true;
    for (;;) {
      const uint32_t seen = epoch.load(std::memory_order_acquire);
      bool has_helped = false;
      for (Job& job : jobs) {
        if (thread >= job.threads.load(std::memory_order_relaxed)) continue;
        const uint32_t taken = job.help(thread);
        if (taken == 0) continue;
        has_helped = true;
        job.done.fetch_add(taken);
        if (job.is_awaited.load()) wake(job.done, 1);
      }
      if (has_helped) {
        has_slept = false;
        continue;
      }
      // A worker that came too late spins for a shorter time: others may want the core.
      const Clock::duration longest(look_out.load(std::memory_order_relaxed));
      const bool is_more = look_for(has_slept ? std::min<Clock::duration>(longest, kLookOutInVain) : longest,
                                    [&] { return epoch.load(std::memory_order_relaxed) != seen; });
      if (is_more) continue;
      sleeping.fetch_add(1);
      wait_on(epoch, seen);
      sleeping.fetch_sub(1);
      has_slept = true;
    }
  }

  Job* take_slot() {
    for (Job& job : jobs)
      if (!job.is_taken.load(std::memory_order_relaxed))
        if (!job.is_taken.exchange(true, std::memory_order_acquire)) return &job;
    return nullptr;
  }

  // Whether waking sleepers is worth a system call. If small jobs were repeatedly done before the sleepers came, it is
  // not worth it for a while.
  bool should_wake(bool is_small) {
    const uint32_t in_vain = missed.load(std::memory_order_relaxed);
    if (!is_small || in_vain < 2) return true;
    if (skipped.fetch_add(1, std::memory_order_relaxed) < (1u << std::min(in_vain, 6u))) return false;
    skipped.store(0, std::memory_order_relaxed);
    return true;
  }

  void run(Job& job, int threads, int64_t begin, int64_t end, int64_t grains, Team::Body body, void* state) {
    const int regions = static_cast<int>(std::min<int64_t>({threads, kRegions, grains}));
    const int64_t parts = std::min<int64_t>(grains, static_cast<int64_t>(regions) * kPartsOfThread);
    job.threads.store(threads, std::memory_order_relaxed);
    job.regions.store(regions, std::memory_order_relaxed);
    job.begin.store(begin, std::memory_order_relaxed);
    job.end.store(end, std::memory_order_relaxed);
    job.parts.store(parts, std::memory_order_relaxed);
    job.body.store(body, std::memory_order_relaxed);
    job.state.store(state, std::memory_order_relaxed);
    job.done.store(0, std::memory_order_relaxed);
    ++job.number;
    for (int r = 0; r < regions; ++r) {
      const auto first = static_cast<uint64_t>(parts * r / regions),
                 last = static_cast<uint64_t>(parts * (r + 1) / regions);
      const uint64_t word = job.number << (2 * kPartBits) | last << kPartBits | first;
      job.region[static_cast<size_t>(r)].word.store(word, std::memory_order_release);
    }
    epoch.fetch_add(1);
    bool has_woken = false;
    if (sleeping.load() > 0 && should_wake(grains < kFewGrains)) {
      has_woken = true;
      wake(epoch, count.load(std::memory_order_relaxed) < threads ? threads - 1 : INT_MAX);
    }
    const uint32_t own = job.help(0), others = static_cast<uint32_t>(parts) - own;
    if (others > 0) await(job, others);
    if (others > 0) missed.store(0, std::memory_order_relaxed);
    else if (has_woken) missed.fetch_add(1, std::memory_order_relaxed);
  }

  // Threads that took parts are usually running and nearly done, so this thread spins first. Otherwise they may be
  // waiting for its core, so it sleeps.
  static void await(Job& job, uint32_t others) {
    if (look_for(kWaitAwake, [&] { return job.done.load(std::memory_order_acquire) == others; })) return;
    job.is_awaited.store(true);
    for (uint32_t done = job.done.load(); done != others; done = job.done.load()) wait_on(job.done, done);
    job.is_awaited.store(false, std::memory_order_relaxed);
  }
};

constinit Workers g_workers;

// A child has none of its parent's threads.
void begin_anew() { new (&g_workers) Workers; }

void Workers::grow(int wanted) {
  static bool is_known_to_fork = false;
  const std::lock_guard lock(making);
  if (!std::exchange(is_known_to_fork, true)) pthread_atfork(nullptr, nullptr, begin_anew);
  decide_look_out(wanted + 1);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's own threads
  for (int made = count.load(std::memory_order_relaxed); made < wanted; ++made) {
    pthread_t thread;
    void* const number = reinterpret_cast<void*>(static_cast<intptr_t>(made + 1));
    if (pthread_create(&thread, nullptr, &Workers::start, number) != 0) break;
    pthread_detach(thread);
    count.store(made + 1, std::memory_order_release);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void* Workers::start(void* number) {
  t_is_inside = true;
  g_workers.work(static_cast<int>(reinterpret_cast<intptr_t>(number)));
  return nullptr;
}

}  // namespace

Team& Team::shared() {
  static constinit Team team;
  return team;
}

void Team::run(int threads, int64_t begin, int64_t end, int64_t grain, Body body, void* state) {
  if (begin >= end) return;
  const int64_t grains = (end - begin) / std::max<int64_t>(grain, 1);
  Job* const job = grains < 2 || threads < 2 || t_is_inside ? nullptr : g_workers.take_slot();
  if (job == nullptr) return body(state, begin, end);
  if (g_workers.count.load(std::memory_order_acquire) < threads - 1) g_workers.grow(threads - 1);
  t_is_inside = true;
  g_workers.run(*job, threads, begin, end, grains, body, state);
  t_is_inside = false;
  job->is_taken.store(false, std::memory_order_release);
}

int Team::workers() const { return g_workers.count.load(); }

}  // namespace framejit::runtime
