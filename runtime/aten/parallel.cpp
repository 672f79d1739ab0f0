// runtime/aten/parallel.cpp — which threads share a range. GNU OpenMP is entered as compiled `#pragma omp parallel`
// enters it.
//
// It is looked up in the process instead of linked, so that there is never a second one: its file name differs
// between wheels.
#include "runtime/aten/parallel.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <strings.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "runtime/team.h"

namespace framejit::runtime {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLibraryLooksOut{5};  // GNU OpenMP's default, or so: 300,000 looks
// A region ends when the last of its threads does. Where another process has a core, that is after milliseconds: not
// for less than this many grains. From it on OpenMP's threads are the faster ones: eager ops have left them looking out, on
// the cores that ours would need (benchmarks/kernels.py on two threads: ours took 1.2 to 3.4 times as long).
constexpr int64_t kWorthARegion = 8;

struct OpenMp {
  void (*parallel)(void (*)(void*), void*, unsigned threads, unsigned flags) = nullptr;
  int (*thread)() = nullptr;
  int (*threads)() = nullptr;
  bool looks_out = true;  // its threads do, when they have nothing to do

  OpenMp() {
    void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);  // its dependencies are searched too
    const auto find = [&](const char* name) {
      void* symbol = torch ? dlsym(torch, name) : nullptr;
      return symbol ? symbol : dlsym(RTLD_DEFAULT, name);
    };
    parallel = reinterpret_cast<decltype(parallel)>(find("GOMP_parallel"));
    thread = reinterpret_cast<decltype(thread)>(find("omp_get_thread_num"));
    threads = reinterpret_cast<decltype(threads)>(find("omp_get_num_threads"));
    const char* policy = std::getenv("OMP_WAIT_POLICY");
    looks_out = policy == nullptr || strcasecmp(policy, "passive") != 0;
  }
  bool usable() const { return parallel && thread && threads; }
};

const OpenMp& openmp() {
  static const OpenMp found;
  return found;
}

thread_local Clock::time_point t_library{};  // when this thread entered one last

struct Range {
  int64_t begin, end, grains;
  void (*body)(void*, int64_t, int64_t);
  void* state;
};

// As at::parallel_for cuts: equal chunks, no more threads than grains.
void run_chunk(void* data) {
  const Range& range = *static_cast<const Range*>(data);
  const int64_t threads = std::min<int64_t>(openmp().threads(), range.grains);
  const int64_t chunk = (range.end - range.begin + threads - 1) / threads;
  const int64_t begin = range.begin + openmp().thread() * chunk;
  if (begin < range.end) range.body(range.state, begin, std::min(range.end, begin + chunk));
}

}  // namespace

void enter_library() {
  if (!openmp().looks_out) return;
  Team::shared().rest();
  t_library = Clock::now();
}

void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* state) {
  if (begin >= end) return;
  const int64_t grains = (end - begin) / std::max<int64_t>(grain, 1);
  const int threads = grains < 2 || at::in_parallel_region() ? 1 : at::get_num_threads();
  if (threads < 2) return body(state, begin, end);
  const bool is_region = grains >= kWorthARegion && openmp().usable() && !Team::is_inside();
  const bool is_after_library = t_library != Clock::time_point{} && Clock::now() - t_library < kLibraryLooksOut;
  if (!is_region && is_after_library && openmp().usable() && !Team::is_inside()) return body(state, begin, end);
  if (!is_region) return Team::shared().run(threads, begin, end, grain, body, state);
  Range range{begin, end, grains, body, state};
  openmp().parallel(run_chunk, &range, 0, 0);
  t_library = Clock::now();
}

}  // namespace framejit::runtime
