// runtime/base/pointer_map.h — a map from pointers to values in order of insertion; entries are never removed one by
// one.
#pragma once

#include <utility>
#include <vector>

#include "runtime/base/hash_index.h"

namespace framejit {

template <class Key, class T>
class PointerMap {
 public:
  // Null if absent; valid until the next insertion.
  T* find(const Key* key) {
    const uint32_t at = index_.find(hash_of(key), [&](uint32_t i) { return entries_[i].first == key; });
    return at == HashIndex::kNone ? nullptr : &entries_[at].second;
  }
  // The value under `key`, and whether it is new.
  std::pair<T*, bool> try_emplace(Key* key, T value) {
    if (T* known = find(key)) return {known, false};
    index_.insert(hash_of(key), static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back(key, std::move(value));
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
  static size_t hash_of(const Key* key) { return reinterpret_cast<size_t>(key) >> 4; }

  std::vector<std::pair<Key*, T>> entries_;
  HashIndex index_;
};

}  // namespace framejit
