// guards/guard.cpp — the set of guards of one trace; equal ones are merged as they are added.
#include "guards/guard.h"

#include "guards/guard_functions.h"

namespace framejit::guards {
namespace {

size_t hash_of(const Guard& g) {
  return (static_cast<size_t>(g.kind) * 31 + g.source) * 0x9E3779B97F4A7C15ull + static_cast<size_t>(g.number) * 131 +
         g.other;
}

bool equal(const Guard& a, const Guard& b) {
  return a.kind == b.kind && a.source == b.source && a.number == b.number && a.other == b.other && a.facts == b.facts &&
         (a.object.get() == b.object.get() || (a.object && b.object && same_value(a.object.get(), b.object.get())));
}

}  // namespace

std::string TensorFacts::mismatch(PyObject* tensor) const {
  const std::optional<TensorDifference> d = difference(tensor);
  return d ? d->what + " " + d->relation + " " + d->was + " but is " + d->now : "";
}

Guard* GuardSet::add(Guard guard) {
  const size_t hash = hash_of(guard);
  if (index_.find(hash, [&](uint32_t at) { return equal(guards_[at], guard); }) != HashIndex::kNone) return nullptr;
  index_.insert(hash, static_cast<uint32_t>(guards_.size()));
  return &guards_.emplace_back(std::move(guard));
}

LineId GuardSet::add_line(std::string text, bool is_of_torch) {
  lines_.push_back({std::move(text), is_of_torch});
  return static_cast<LineId>(lines_.size() - 1);
}

const std::string& GuardSet::line(LineId id) const {
  static const std::string none;
  return id == kNoLine ? none : lines_[id].text;
}

}  // namespace framejit::guards
