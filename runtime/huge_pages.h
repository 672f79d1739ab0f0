// runtime/huge_pages.h — asks the system for pages of 2 MiB for large blocks that are about to be written, if it gives
// them on request.
#pragma once

#include <cstdint>

namespace framejit::runtime {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kLeastInHugePages = 2 * kHugePage;  // bytes of a block; smaller ones stay as they are

// The system zeroes new memory page by page, at the first write to each page: for 64 MiB in pages of 4 KiB, that takes
// several times as long as writing them. This is only a request: if the system has no huge page left, or the block is
// small, nothing changes.
void prefer_huge_pages(void* data, int64_t bytes) noexcept;

}  // namespace framejit::runtime
