// runtime/huge_pages.h — large blocks that are about to be written: in pages of 2 MiB where the system lends them on
// request.
#pragma once

#include <cstdint>

namespace framejit::runtime {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kLeastInHugePages = 2 * kHugePage;  // bytes of a block: smaller ones stay as they are

// Memory that the system hands out is zeroed page by page, at the first write to each: of 64 MiB in pages of 4 KiB that
// takes several times as long as to write them. A request only: where the system has none to give, or the block is
// small, nothing changes.
void prefer_huge_pages(void* data, int64_t bytes) noexcept;

}  // namespace framejit::runtime
