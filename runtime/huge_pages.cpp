// runtime/huge_pages.cpp — madvise over the small pages that a block touches.
#include "runtime/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace framejit::runtime {

// Rounds to whole small pages around the block: an allocator keeps some bytes in front of it, which would otherwise
// cost the first huge page.
void prefer_huge_pages(void* data, int64_t bytes) noexcept {
  if (bytes < kLeastInHugePages) return;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data) & ~(page - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes) + page - 1) & ~(page - 1);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace framejit::runtime
