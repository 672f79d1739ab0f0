// guards/guard.cpp — the set of guards of one trace; equal ones are merged as they come.
#include "guards/guard.h"

#include "guards/checks.h"

namespace framejit::guards {
namespace {

size_t hash_of(const Guard& g) {
  return (static_cast<size_t>(g.kind) * 31 + g.source) * 0x9E3779B97F4A7C15ull + static_cast<size_t>(g.number) * 131 + g.other;
}

bool equal(const Guard& a, const Guard& b) {
  return a.kind == b.kind && a.source == b.source && a.number == b.number && a.other == b.other && a.facts == b.facts &&
         (a.object.get() == b.object.get() || (a.object && b.object && same_value(a.object.get(), b.object.get())));
}

}  // namespace

void GuardSet::add(Guard guard) {
  const size_t hash = hash_of(guard);
  auto [first, last] = index_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (equal(guards_[it->second], guard)) return;
  index_.emplace(hash, guards_.size());
  guards_.push_back(std::move(guard));
}

void GuardSet::rollback(size_t mark) {
  while (guards_.size() > mark) {
    const size_t last = guards_.size() - 1;
    auto [it, end] = index_.equal_range(hash_of(guards_.back()));
    while (it != end && it->second != last) ++it;
    if (it != end) index_.erase(it);
    guards_.pop_back();
  }
}

}  // namespace framejit::guards
