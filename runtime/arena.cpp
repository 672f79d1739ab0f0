// runtime/arena.cpp — best fit over a sorted list of idle blocks.
#include "runtime/arena.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "runtime/huge_pages.h"

namespace framejit::runtime {
namespace {

constexpr int64_t kAlignment = kArenaAlignment, kPage = 4096;
constexpr int64_t kMostBytes = int64_t{1} << 60;  // more than any machine has; can still be rounded up

// Sizes are rounded up by at most a quarter, so that a slightly larger batch finds the block of the last one.
int64_t rounded(int64_t bytes) {
  if (bytes > kMostBytes) throw std::bad_alloc();
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

// A training step of a medium-sized model holds a gigabyte.
int64_t most_idle_on_this_machine() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return std::max(int64_t{1} << 30, pages > 0 ? pages / 16 * page : 0);
}

// Much larger blocks are left for callers that need them.
constexpr int64_t kAnyoneMayHave = int64_t{1} << 16;
bool fits(int64_t block, int64_t wanted) { return block <= std::max(2 * wanted, kAnyoneMayHave); }

}  // namespace

ArenaPool::ArenaPool() : ArenaPool(most_idle_on_this_machine()) {}
ArenaPool::ArenaPool(int64_t most_idle_bytes) : most_idle_bytes_(most_idle_bytes) {
  idle_.reserve(kMostIdle + 1);  // give() must not throw
}

ArenaPool& ArenaPool::cpu() {
  static ArenaPool* const pool = [] {
    pthread_atfork([] { cpu().mutex_.lock(); }, [] { cpu().mutex_.unlock(); }, [] { cpu().mutex_.unlock(); });
    return new ArenaPool;  // outlives every thread that may still run a plan
  }();
  return *pool;
}

ArenaPool::Block ArenaPool::take(int64_t bytes) {
  if (bytes <= 0) return {};
  {
    const std::lock_guard lock(mutex_);
    const auto fit = std::lower_bound(idle_.begin(), idle_.end(), bytes,
                                      [](const Idle& idle, int64_t wanted) { return idle.block.bytes < wanted; });
    if (fit != idle_.end() && fits(fit->block.bytes, bytes)) {
      const Block block = fit->block;
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
  if (block.bytes > most_idle_bytes_) return std::free(block.data);
  const std::lock_guard lock(mutex_);
  const auto place = std::lower_bound(idle_.begin(), idle_.end(), block.bytes,
                                      [](const Idle& idle, int64_t given) { return idle.block.bytes < given; });
  idle_.insert(place, {block, given_++});
  idle_bytes_ += block.bytes;
  while (idle_.size() > kMostIdle || idle_bytes_ > most_idle_bytes_) {
    const auto oldest =
        std::min_element(idle_.begin(), idle_.end(), [](const Idle& a, const Idle& b) { return a.since < b.since; });
    idle_bytes_ -= oldest->block.bytes;
    std::free(oldest->block.data);
    idle_.erase(oldest);
  }
}

void ArenaPool::trim() noexcept {
  const std::lock_guard lock(mutex_);
  for (const Idle& idle : idle_) std::free(idle.block.data);
  idle_.clear();
  idle_bytes_ = 0;
}

int64_t ArenaPool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

}  // namespace framejit::runtime
