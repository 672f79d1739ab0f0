// runtime/arena.h — memory of running plans: blocks that calls borrow and give back, shared by all plans of the
// process.
//
// A call takes one block for its scratch memory, or blocks for parts of it (inductor/schedule/arena_blocks.h). Large
// tensors that a plan makes are blocks too (runtime/aten/result_memory.h), because the system takes as long to hand out
// new pages as a step of training takes to fill them. Blocks are 64-byte aligned, never initialised, and kept for later
// calls, up to a number and a total size; trim() returns idle blocks to the system. Thread-safe; a block belongs to one
// owner at a time.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace framejit::runtime {

inline constexpr int64_t kArenaAlignment = 64;  // bytes; of a block, and of what lies in it

class ArenaPool {
 public:
  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;
  };

  static ArenaPool& cpu();  // a fork waits until nobody changes it

  // At least `bytes` bytes. Throws std::bad_alloc if the system has none left and no block is idle.
  Block take(int64_t bytes);
  void give(Block block) noexcept;
  void trim() noexcept;
  int64_t idle_bytes() const;  // for tests

  ArenaPool();  // keeps a sixteenth of the machine's memory, but at least a gigabyte
  explicit ArenaPool(int64_t most_idle_bytes);
  ~ArenaPool() { trim(); }
  ArenaPool(const ArenaPool&) = delete;
  ArenaPool& operator=(const ArenaPool&) = delete;

 private:
  struct Idle {
    Block block;
    uint64_t since;  // the value of given_ when it was given
  };
  static constexpr size_t kMostIdle = 1024;  // blocks; the one that has been idle longest is freed first
  const int64_t most_idle_bytes_;  // in all; a larger block is not kept
  mutable std::mutex mutex_;
  std::vector<Idle> idle_;  // smallest first
  int64_t idle_bytes_ = 0;
  uint64_t given_ = 0;
};

}  // namespace framejit::runtime
