// runtime/base/pointer_map.h — a map from pointers to values in order of insertion; entries are never removed one by one.
#pragma once

#include <utility>
#include <vector>

#include "runtime/base/hash_index.h"

namespace framejit {

template <class Key, class T>
class PointerMap {
 public:
  // Null when absent; good until the next insertion.
  T* find(const Key* key) {
    if (entries_.size() <= kFew) {
      for (auto& [known, value] : entries_)
        if (known == key) return &value;
      return nullptr;
    }
    const uint32_t at = index_.find(hash_of(key), [&](uint32_t i) { return entries_[i].first == key; });
    return at == HashIndex::kNone ? nullptr : &entries_[at].second;
  }
  // The value under `key`, and whether it is new.
  std::pair<T*, bool> try_emplace(Key* key, T value) {
    if (T* known = find(key)) return {known, false};
    entries_.emplace_back(key, std::move(value));
    if (entries_.size() == kFew + 1)
      for (uint32_t i = 0; i < kFew; ++i) index_.insert(hash_of(entries_[i].first), i);
    if (entries_.size() > kFew) index_.insert(hash_of(key), static_cast<uint32_t>(entries_.size() - 1));
    return {&entries_.back().second, true};
  }
  T& operator[](Key* key) { return *try_emplace(key, T()).first; }
  void clear() {
    entries_.clear();
    index_.clear();
  }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  static constexpr size_t kFew = 8;  // so many are looked through one by one, without an index
  static size_t hash_of(const Key* key) { return reinterpret_cast<size_t>(key) >> 4; }

  std::vector<std::pair<Key*, T>> entries_;
  HashIndex index_;
};

}  // namespace framejit
