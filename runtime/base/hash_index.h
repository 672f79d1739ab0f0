// runtime/base/hash_index.h — an open-addressing table from hashes to ids. The objects of the ids live elsewhere, and
// the caller compares them, so one allocation serves the whole table, however large. A few entries are searched one by
// one, without a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framejit {

// The hash of two values.
inline uint64_t mix(uint64_t h, uint64_t v) {
  return (h ^ (v + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2))) * 0xff51afd7ed558ccdULL;
}

class HashIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The first id under `hash` for which same(id) is true, or kNone.
  template <class Same>
  uint32_t find(size_t hash, Same&& same) const {
    const uint32_t tag = tag_of(hash);
    if (slots_.empty()) {
      for (size_t at = 0; at < count_; ++at)
        if (few_[at].tag == tag && same(few_[at].id)) return few_[at].id;
      return kNone;
    }
    for (size_t at = tag & mask();; at = (at + 1) & mask()) {
      const Slot& slot = slots_[at];
      if (slot.id == kNone) return kNone;
      if (slot.tag == tag && same(slot.id)) return slot.id;
    }
  }

  void insert(size_t hash, uint32_t id) {
    const Slot slot{tag_of(hash), id};
    if (slots_.empty() && count_ < kFew) {
      few_[count_++] = slot;
      return;
    }
    if (count_ * 2 >= slots_.size()) grow();
    place(slot);
    ++count_;
  }

  void clear() {
    slots_.clear();
    count_ = 0;
  }

 private:
  struct Slot { uint32_t tag = 0, id = kNone; };

  static uint32_t tag_of(size_t hash) { return static_cast<uint32_t>((hash * 0x9E3779B97F4A7C15ull) >> 32); }
  size_t mask() const { return slots_.size() - 1; }
  void place(Slot slot) {
    size_t at = slot.tag & mask();
    while (slots_[at].id != kNone) at = (at + 1) & mask();
    slots_[at] = slot;
  }
  void grow() {
    const bool first = slots_.empty();
    std::vector<Slot> old(first ? 4 * kFew : slots_.size() * 2);
    old.swap(slots_);
    if (first)
      for (const Slot& slot : few_) place(slot);
    for (const Slot& slot : old)
      if (slot.id != kNone) place(slot);
  }

  static constexpr size_t kFew = 8;

  Slot few_[kFew];
  std::vector<Slot> slots_;  // empty: all entries are the first count_ of few_
  size_t count_ = 0;
};

}  // namespace framejit
