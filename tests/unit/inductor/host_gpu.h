// tests/unit/inductor/host_gpu.h — enough of a GPU to run a generated kernel on the CPU: placed before prelude and
// kernel.
//
// The threads of a block are fibers that run one after the other up to the next barrier or exchange of words. All
// threads of a block reach both together, as the emitter promises. WAVE comes from the command line.
#define __HIP_PLATFORM_AMD__ 1
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __builtin_nontemporal_load(address) (*(address))

#include <math.h>
#include <ucontext.h>

#include <vector>

namespace host_gpu {

struct Index {
  unsigned x;
};
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  bool done;
};
inline std::vector<Fiber> fibers(1024);
inline ucontext_t scheduler;
inline unsigned words[1024];
inline void (*body)();

}  // namespace host_gpu

static host_gpu::Index threadIdx, blockIdx, blockDim;

namespace host_gpu {

inline void pause() {
  const unsigned own = threadIdx.x;
  swapcontext(&fibers[own].context, &scheduler);
  threadIdx.x = own;
}
inline void enter() {
  body();
  fibers[threadIdx.x].done = true;
}
// All threads of a block, in rounds from barrier to barrier.
inline void run_block() {
  for (unsigned t = 0; t < blockDim.x; ++t) {
    Fiber& f = fibers[t];
    f.stack.resize(32768);
    f.done = false;
    getcontext(&f.context);
    f.context.uc_stack = {f.stack.data(), 0, f.stack.size()};
    f.context.uc_link = &scheduler;
    makecontext(&f.context, enter, 0);
  }
  for (bool more = true; more;) {
    more = false;
    for (unsigned t = 0; t < blockDim.x; ++t) {
      if (fibers[t].done) continue;
      threadIdx.x = t;
      swapcontext(&scheduler, &fibers[t].context);
      more = more || !fibers[t].done;
    }
  }
}

}  // namespace host_gpu

inline float rsqrtf(float a) { return 1 / sqrtf(a); }
inline void __syncthreads() { host_gpu::pause(); }
inline unsigned __builtin_amdgcn_mbcnt_lo(unsigned, unsigned) { return 0; }
inline int __builtin_amdgcn_mbcnt_hi(unsigned, unsigned) { return (int)(threadIdx.x % WAVE); }
inline int __builtin_amdgcn_ds_bpermute(int address, int word) {
  host_gpu::words[threadIdx.x] = (unsigned)word;
  host_gpu::pause();
  const unsigned other = host_gpu::words[threadIdx.x / WAVE * WAVE + (unsigned)(address >> 2)];
  host_gpu::pause();
  return (int)other;
}
