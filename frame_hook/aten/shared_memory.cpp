// frame_hook/aten/shared_memory.cpp — compares all pairs of a few tensors, but only neighbours in memory order of many.
#include "frame_hook/aten/shared_memory.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace framejit::frame_hook {
namespace {

// The bytes that a tensor may touch; empty for one without elements.
std::pair<const char*, const char*> extent(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {nullptr, nullptr};
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size())};
}

const void* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Whether two neighbours have the same storage, and one of them is written.
bool share_storage(std::vector<std::pair<const void*, bool>> storages) {
  const std::less<> before;
  std::sort(storages.begin(), storages.end(), [&](const auto& a, const auto& b) {
    return a.first == b.first ? a.second > b.second : before(a.first, b.first);
  });
  for (size_t i = 1; i < storages.size(); ++i)
    // written ones come first
    if (storages[i - 1].first == storages[i].first && storages[i - 1].second) return true;
  return false;
}

struct Bytes {
  const char *begin, *end;
  bool is_written;
};

bool overlap(std::vector<Bytes> parts) {
  const std::less<> before;
  std::sort(parts.begin(), parts.end(), [&](const Bytes& a, const Bytes& b) { return before(a.begin, b.begin); });
  const char *end = nullptr, *written_end = nullptr;  // of the tensors so far
  for (const Bytes& part : parts) {
    if (before(part.begin, part.is_written ? end : written_end)) return true;
    end = std::max(end, part.end, before);
    if (part.is_written) written_end = std::max(written_end, part.end, before);
  }
  return false;
}

}  // namespace

bool may_share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (storage_of(a) == storage_of(b)) return true;
  const auto x = extent(a), y = extent(b);
  return x.first < y.second && y.first < x.second;
}

bool may_share_written(std::span<const at::Tensor* const> tensors, size_t written) {
  constexpr size_t kFewPairs = 64;
  if (written * tensors.size() <= kFewPairs) {
    for (size_t w = 0; w < written; ++w)
      for (size_t i = w + 1; i < tensors.size(); ++i)
        if (may_share_memory(*tensors[w], *tensors[i])) return true;
    return false;
  }
  std::vector<std::pair<const void*, bool>> storages;
  std::vector<Bytes> parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    storages.emplace_back(storage_of(*tensors[i]), i < written);
    if (const auto [begin, end] = extent(*tensors[i]); begin != end) parts.push_back({begin, end, i < written});
  }
  return share_storage(std::move(storages)) || overlap(std::move(parts));
}

}  // namespace framejit::frame_hook
