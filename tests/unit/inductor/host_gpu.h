// tests/unit/inductor/host_gpu.h — enough of a GPU to run a generated kernel on the CPU: placed before prelude and
// kernel.
//
// The threads of a block are fibers that run one after the other up to the next barrier or exchange of words. All
// threads of a block reach both together, as the emitter promises, and so do all blocks that meet. While another block
// runs, a copy holds what a block shares. WAVE comes from the command line.
#define __HIP_PLATFORM_AMD__ 1
#define __device__
#define __global__
#define __shared__ static __attribute__((section("shared_by_block")))
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define CLUSTER(blocks)
#define BLOCKS_MEET 1
#define __builtin_nontemporal_load(address) (*(address))

#include <math.h>
#include <ucontext.h>

#include <vector>

extern char __start_shared_by_block[] __attribute__((weak, visibility("hidden")));
extern char __stop_shared_by_block[] __attribute__((weak, visibility("hidden")));

namespace host_gpu {

struct Index {
  unsigned x;
};
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  bool done;
};
struct Block {
  std::vector<Fiber> fibers = std::vector<Fiber>(1024);
  std::vector<char> shared;
  unsigned words[1024];
};
inline std::vector<Block> blocks(8);  // that meet
inline size_t current;
inline ucontext_t scheduler;
inline void (*body)();

}  // namespace host_gpu

static host_gpu::Index threadIdx, blockIdx, blockDim;

namespace host_gpu {

inline void pause() {
  const unsigned own = threadIdx.x;
  swapcontext(&blocks[current].fibers[own].context, &scheduler);
  threadIdx.x = own;
}
inline void enter() {
  body();
  blocks[current].fibers[threadIdx.x].done = true;
}
inline void begin(Block& block) {
  block.shared.assign(__start_shared_by_block, __stop_shared_by_block);
  for (unsigned t = 0; t < blockDim.x; ++t) {
    Fiber& f = block.fibers[t];
    f.stack.resize(32768);
    f.done = false;
    getcontext(&f.context);
    f.context.uc_stack = {f.stack.data(), 0, f.stack.size()};
    f.context.uc_link = &scheduler;
    makecontext(&f.context, enter, 0);
  }
}
// From one barrier to the next. False if the block has ended.
inline bool run_round(Block& block) {
  bool more = false;
  __builtin_memcpy(__start_shared_by_block, block.shared.data(), block.shared.size());
  for (unsigned t = 0; t < blockDim.x; ++t) {
    Fiber& f = block.fibers[t];
    if (f.done) continue;
    threadIdx.x = t;
    swapcontext(&scheduler, &f.context);
    more = more || !f.done;
  }
  __builtin_memcpy(block.shared.data(), __start_shared_by_block, block.shared.size());
  return more;
}
// Adjacent blocks that meet, in rounds from barrier to barrier.
inline void run_blocks(unsigned first, unsigned count) {
  for (unsigned k = 0; k < count; ++k) begin(blocks[k]);
  for (bool more = true; more;) {
    more = false;
    for (current = 0; current < count; ++current) {
      blockIdx.x = first + (unsigned)current;
      more = run_round(blocks[current]) || more;
    }
  }
}

}  // namespace host_gpu

inline float rsqrtf(float a) { return 1 / sqrtf(a); }
inline void __syncthreads() { host_gpu::pause(); }
inline void blocks_meet() { host_gpu::pause(); }
inline unsigned word_of_block(const unsigned* shared, unsigned block) {
  unsigned word = *shared;
  if (block != host_gpu::current)
    __builtin_memcpy(&word, host_gpu::blocks[block].shared.data() + ((const char*)shared - __start_shared_by_block),
                     sizeof word);
  return word;
}
inline unsigned __builtin_amdgcn_mbcnt_lo(unsigned, unsigned) { return 0; }
inline int __builtin_amdgcn_mbcnt_hi(unsigned, unsigned) { return (int)(threadIdx.x % WAVE); }
inline int __builtin_amdgcn_ds_bpermute(int address, int word) {
  unsigned* const words = host_gpu::blocks[host_gpu::current].words;
  words[threadIdx.x] = (unsigned)word;
  host_gpu::pause();
  const unsigned other = words[threadIdx.x / WAVE * WAVE + (unsigned)(address >> 2)];
  host_gpu::pause();
  return (int)other;
}
