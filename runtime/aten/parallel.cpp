// runtime/aten/parallel.cpp — a team of GNU OpenMP threads, entered as compiled `#pragma omp parallel` enters it.
#include "runtime/aten/parallel.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>

namespace framejit::runtime {
namespace {

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
  bool usable() const { return parallel && thread && threads; }
};

const OpenMp& openmp() {
  static const OpenMp found;
  return found;
}

struct Range {
  int64_t begin, end, grain;
  void (*body)(void*, int64_t, int64_t);
  void* state;
};

// As at::parallel_for cuts: equal chunks, no more threads than grains.
void run_chunk(void* data) {
  const Range& range = *static_cast<const Range*>(data);
  const int64_t n = range.end - range.begin, grains = (n + range.grain - 1) / range.grain;
  const int64_t threads = std::min<int64_t>(openmp().threads(), grains), chunk = (n + threads - 1) / threads;
  const int64_t begin = range.begin + openmp().thread() * chunk;
  if (begin < range.end) range.body(range.state, begin, std::min(range.end, begin + chunk));
}

}  // namespace

void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* state) {
  if (begin >= end) return;
  grain = std::max<int64_t>(grain, 1);
  const bool parallel = end - begin > grain && !at::in_parallel_region() && at::get_num_threads() > 1 && openmp().usable();
  if (!parallel) return body(state, begin, end);
  Range range{begin, end, grain, body, state};
  openmp().parallel(run_chunk, &range, 0, 0);
}

}  // namespace framejit::runtime
