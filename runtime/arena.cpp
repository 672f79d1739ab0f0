// runtime/arena.cpp — best fit over a short sorted list of idle blocks.
#include "runtime/arena.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "runtime/huge_pages.h"

namespace framejit::runtime {
namespace {

constexpr int64_t kAlignment = 64, kPage = 4096;

// Sizes are rounded up by at most a quarter, so that a slightly larger batch finds the block of the last one.
int64_t rounded(int64_t bytes) {
  int64_t step = kPage;
  while (step * 8 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

ArenaPool::Block make_block(int64_t bytes) {
  const int64_t size = rounded(bytes);
  const int64_t alignment = size >= kLeastInHugePages ? kHugePage : kAlignment;
  void* data = nullptr;
  if (posix_memalign(&data, static_cast<size_t>(alignment), static_cast<size_t>(size)) != 0) throw std::bad_alloc();
  prefer_huge_pages(data, size);
  return {data, size};
}

}  // namespace

ArenaPool& ArenaPool::cpu() {
  static ArenaPool* const pool = new ArenaPool;  // outlives every thread that may still run a plan
  return *pool;
}

ArenaPool::Block ArenaPool::take(int64_t bytes) {
  if (bytes <= 0) return {};
  {
    const std::lock_guard lock(mutex_);
    auto fit = std::lower_bound(idle_.begin(), idle_.end(), bytes,
                                [](const Block& block, int64_t wanted) { return block.bytes < wanted; });
    if (fit != idle_.end()) {
      const Block block = *fit;
      idle_.erase(fit);
      idle_bytes_ -= block.bytes;
      return block;
    }
  }
  try {
    return make_block(bytes);
  } catch (const std::bad_alloc&) {
    trim();
    return make_block(bytes);
  }
}

void ArenaPool::give(Block block) noexcept {
  if (!block.data) return;
  if (block.bytes > kMostIdleBytes) return std::free(block.data);
  Block surplus[kMostIdle];
  size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    auto place = std::lower_bound(idle_.begin(), idle_.end(), block.bytes,
                                  [](const Block& known, int64_t wanted) { return known.bytes < wanted; });
    idle_.insert(place, block);
    idle_bytes_ += block.bytes;
    while (idle_.size() > kMostIdle || idle_bytes_ > kMostIdleBytes) {
      surplus[count++] = idle_.front();
      idle_bytes_ -= idle_.front().bytes;
      idle_.erase(idle_.begin());
    }
  }
  for (size_t i = 0; i < count; ++i) std::free(surplus[i].data);
}

void ArenaPool::trim() noexcept {
  const std::lock_guard lock(mutex_);
  for (const Block& block : idle_) std::free(block.data);
  idle_.clear();
  idle_bytes_ = 0;
}

int64_t ArenaPool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

}  // namespace framejit::runtime
