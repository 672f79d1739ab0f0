// runtime/arena.h — scratch memory of running plans: blocks that calls borrow and give back, shared by all plans of the
// process.
//
// A call takes one block for its whole run, or blocks for parts of it (inductor/schedule/arena_blocks.h). Blocks are
// 64-byte aligned, never initialised, and kept for later calls, up to a number and a total size; trim() returns idle
// blocks to the system. Thread-safe; a block belongs to one call at a time.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace framejit::runtime {

class ArenaPool {
 public:
  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;
  };

  static ArenaPool& cpu();

  // At least `bytes` bytes. Throws std::bad_alloc if the system has none left and no block is idle.
  Block take(int64_t bytes);
  void give(Block block) noexcept;
  void trim() noexcept;
  int64_t idle_bytes() const;

  ArenaPool() { idle_.reserve(kMostIdle + 1); }  // give() must not throw
  ~ArenaPool() { trim(); }
  ArenaPool(const ArenaPool&) = delete;
  ArenaPool& operator=(const ArenaPool&) = delete;

 private:
  static constexpr size_t kMostIdle = 8;                          // blocks; the smallest one is freed first
  static constexpr int64_t kMostIdleBytes = int64_t{1} << 30;     // total; a larger block is not kept
  mutable std::mutex mutex_;
  std::vector<Block> idle_;  // smallest first
  int64_t idle_bytes_ = 0;
};

}  // namespace framejit::runtime
