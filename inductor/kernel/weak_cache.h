// inductor/kernel/weak_cache.h — what a target has built, kept as long as some plan uses it.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "runtime/kernel_code.h"

namespace framejit::inductor {

template <class Code>
class WeakCache {
 public:
  std::shared_ptr<Code> find(const runtime::KernelId& key) const {
    const auto at = entries_.find(key);
    return at == entries_.end() ? nullptr : at->second.lock();
  }
  void insert(const runtime::KernelId& key, const std::shared_ptr<Code>& code) {
    if (entries_.size() >= sweep_at_) {
      std::erase_if(entries_, [](const auto& entry) { return entry.second.expired(); });
      sweep_at_ = 2 * entries_.size() + 64;
    }
    entries_[key] = code;
  }
  size_t size() const { return entries_.size(); }

 private:
  std::unordered_map<runtime::KernelId, std::weak_ptr<Code>> entries_;
  size_t sweep_at_ = 64;
};

}  // namespace framejit::inductor
