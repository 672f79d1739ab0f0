// runtime/aten/parallel.cpp — which threads share a range. GNU OpenMP is entered the way compiled `#pragma omp
// parallel` enters it.
//
// It is looked up in the process, not linked, so that there is never a second copy: its file name differs between
// wheels.
#include "runtime/aten/parallel.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "runtime/team.h"

namespace framejit::runtime {
namespace {

// A region ends when its last thread ends, which takes long if another process has a core. So work of fewer than this
// many grains gets no region. Nobody would have to wait for threads of our own, but after eager ops OpenMP's threads
// spin on the cores that ours would need (benchmarks/results/decisions.md).
constexpr int64_t kWorthARegion = 8;

// In a forked child, GNU OpenMP waits for threads that do not exist there, if the parent used any.
std::atomic<bool> g_is_child{false};
[[maybe_unused]] const int g_looks_for_forks = pthread_atfork(nullptr, nullptr, [] { g_is_child = true; });

struct OpenMp {
  void (*parallel)(void (*)(void*), void*, unsigned threads, unsigned flags) = nullptr;
  int (*thread)() = nullptr;
  int (*threads)() = nullptr;

  OpenMp() {
    void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);  // its dependencies are searched too
    const auto find = [&](const char* name) {
      void* symbol = torch ? dlsym(torch, name) : nullptr;
      return symbol ? symbol : dlsym(RTLD_DEFAULT, name);
    };
    parallel = reinterpret_cast<decltype(parallel)>(find("GOMP_parallel"));
    thread = reinterpret_cast<decltype(thread)>(find("omp_get_thread_num"));
    threads = reinterpret_cast<decltype(threads)>(find("omp_get_num_threads"));
  }
  bool usable() const { return parallel && thread && threads && !g_is_child.load(std::memory_order_relaxed); }
};

const OpenMp& openmp() {
  static const OpenMp found;
  return found;
}

struct Range {
  int64_t begin, end, grains;
  void (*body)(void*, int64_t, int64_t);
  void* state;
};

// Cut like at::parallel_for: equal chunks, no more threads than grains.
void run_chunk(void* data) {
  const Range& range = *static_cast<const Range*>(data);
  const int64_t threads = std::min<int64_t>(openmp().threads(), range.grains);
  const int64_t chunk = (range.end - range.begin + threads - 1) / threads;
  const int64_t begin = range.begin + openmp().thread() * chunk;
  if (begin < range.end) range.body(range.state, begin, std::min(range.end, begin + chunk));
}

}  // namespace

void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* state) {
  if (begin >= end) return;
  const int64_t grains = (end - begin) / std::max<int64_t>(grain, 1);
  const int threads = grains < 2 || at::in_parallel_region() ? 1 : at::get_num_threads();
  if (threads < 2) return body(state, begin, end);
  if (!openmp().usable()) return Team::shared().run(threads, begin, end, grain, body, state);
  if (grains < kWorthARegion) return body(state, begin, end);
  Range range{begin, end, grains, body, state};
  openmp().parallel(run_chunk, &range, 0, 0);
}

}  // namespace framejit::runtime
