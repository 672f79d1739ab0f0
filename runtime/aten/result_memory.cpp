#include "runtime/aten/result_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <mutex>
#include <new>
#include <unordered_map>

#include "runtime/arena.h"

namespace framejit::runtime {
namespace {

constexpr int64_t kLeastPooled = int64_t{1} << 20;  // bytes; torch's allocator has smaller blocks at hand

class ResultMemory final : public c10::Allocator {
 public:
  static ResultMemory& shared() {
    static ResultMemory* const memory = [] {
      pthread_atfork([] { shared().mutex_.lock(); }, [] { shared().mutex_.unlock(); },
                     [] { shared().mutex_.unlock(); });
      return new ResultMemory;  // outlives every tensor
    }();
    return *memory;
  }

  c10::DataPtr allocate(size_t bytes) override {
    const auto wanted = static_cast<int64_t>(bytes);
    if (wanted < kLeastPooled) return c10::GetDefaultCPUAllocator()->allocate(bytes);  // a storage was resized
    void* data = nullptr;
    try {
      data = take(wanted);
    } catch (const std::bad_alloc&) { return c10::GetDefaultCPUAllocator()->allocate(bytes); }
    report_to_profilers(data, wanted);
    return {data, data, &give, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  struct Held {
    ArenaPool::Block block;
    int64_t bytes;  // that were asked for
  };

  void* take(int64_t bytes) {
    const ArenaPool::Block block = ArenaPool::cpu().take(bytes);
    try {
      const std::lock_guard lock(mutex_);
      held_.emplace(block.data, Held{block, bytes});
    } catch (...) {
      ArenaPool::cpu().give(block);
      throw;
    }
    return block.data;
  }
  static void give(void* data) {
    ResultMemory& memory = shared();
    Held held;
    {
      const std::lock_guard lock(memory.mutex_);
      const auto found = memory.held_.find(data);
      held = found->second;
      memory.held_.erase(found);
    }
    report_to_profilers(data, -held.bytes);
    ArenaPool::cpu().give(held.block);
  }

  std::mutex mutex_;
  std::unordered_map<void*, Held> held_;
};

}  // namespace

void report_to_profilers(void* data, int64_t bytes) noexcept {
  if (c10::memoryProfilingEnabled()) [[unlikely]]
    c10::reportMemoryUsageToProfiler(data, bytes, 0, 0, c10::Device(c10::kCPU));
}

at::Tensor new_result(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  if (static_cast<int64_t>(bytes) < kLeastPooled)
    return at::Tensor(at::detail::empty_strided_cpu(sizes, strides, dtype));
  return at::Tensor(at::detail::empty_strided_generic(sizes, strides, &ResultMemory::shared(),
                                                      c10::DispatchKeySet(c10::DispatchKey::CPU), dtype));
}

}  // namespace framejit::runtime
