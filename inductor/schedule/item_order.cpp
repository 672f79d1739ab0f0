// inductor/schedule/item_order.cpp — the graph of conflicts, walked from late to early positions.
#include "inductor/schedule/item_order.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

namespace framejit::inductor {
namespace {

void sort_out(std::vector<size_t>& items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

void add_to(std::vector<LoopBufferId>& all, const std::vector<LoopBufferId>& more) {
  const auto middle = all.insert(all.end(), more.begin(), more.end());
  std::inplace_merge(all.begin(), middle, all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
}

bool has(const std::vector<uint64_t>& bits, size_t at) { return (bits[at / 64] >> (at % 64) & 1) != 0; }
void set(std::vector<uint64_t>& bits, size_t at) { bits[at / 64] |= uint64_t{1} << (at % 64); }

}  // namespace

ItemOrder::ItemOrder(const std::vector<std::variant<Nest, ExternCall>>& items)
    : needs_(items.size()), position_(items.size()), needed_(items.size() / 64 + 1), parted_(items.size() / 64 + 1) {
  std::iota(position_.begin(), position_.end(), 0);
  at_ = into_ = position_;
  std::vector<std::vector<size_t>> writers, readers;  // of each buffer, so far
  const auto of = [](std::vector<std::vector<size_t>>& lists, LoopBufferId b) -> std::vector<size_t>& {
    if (b >= lists.size()) lists.resize(b + 1);
    return lists[b];
  };
  std::optional<size_t> last_call;
  for (size_t i = 0; i < items.size(); ++i) {
    access_.push_back(access_of(items[i]));
    std::vector<size_t>& needs = needs_[i];
    const auto add = [&](const std::vector<size_t>& earlier) {
      needs.insert(needs.end(), earlier.begin(), earlier.end());
    };
    if (std::holds_alternative<ExternCall>(items[i])) {
      if (last_call) needs.push_back(*last_call);
      last_call = i;
    }
    for (LoopBufferId b : access_[i].reads) add(of(writers, b));
    for (LoopBufferId b : access_[i].writes) {
      add(of(writers, b));
      add(of(readers, b));
    }
    sort_out(needs);
    for (LoopBufferId b : access_[i].reads) of(readers, b).push_back(i);
    for (LoopBufferId b : access_[i].writes) of(writers, b).push_back(i);
  }
}

size_t ItemOrder::found(size_t item) const {
  while (into_[item] != item) item = into_[item] = into_[into_[item]];
  return item;
}

std::vector<size_t> ItemOrder::order() const {
  std::vector<size_t> items;
  for (size_t item : at_)
    if (into_[item] == item) items.push_back(item);
  return items;
}

void ItemOrder::need(size_t item, bool through_another) {
  const size_t at = position_[found(item)];
  set(needed_, at);
  if (through_another) set(parted_, at);
  lowest_ = std::min(lowest_, at);
}

void ItemOrder::look_back(size_t from) {
  for (size_t word = lowest_ / 64; word <= position_[from_] / 64; ++word) needed_[word] = parted_[word] = 0;
  from_ = from;
  walked_ = lowest_ = position_[from];
  for (size_t item : needs_[from]) need(item, false);
}

bool ItemOrder::is_parted(size_t earlier) {
  const size_t end = position_[earlier];
  while (walked_ > end + 1) {
    // The latest needed position in (end, walked_), if any.
    const size_t word = (walked_ - 1) / 64, above = walked_ - word * 64;
    const uint64_t bits = above == 64 ? needed_[word] : needed_[word] & ((uint64_t{1} << above) - 1);
    if (bits == 0) {
      walked_ = word * 64;
      if (walked_ <= end + 1) break;
      continue;
    }
    const size_t at = word * 64 + 63 - static_cast<size_t>(std::countl_zero(bits));
    if (at <= end) break;
    walked_ = at;
    for (size_t item : needs_[at_[at]])
      if (found(item) != at_[at]) need(item, true);
  }
  walked_ = std::min(walked_, end + 1);
  return has(parted_, end);
}

void ItemOrder::join(size_t earlier) {
  FJ_ASSERT(!is_parted(earlier), "items with a third between them were joined");
  const size_t begin = position_[earlier], end = position_[from_];
  std::vector<size_t> before, after;
  for (size_t at = begin + 1; at < end; ++at) (has(needed_, at) ? before : after).push_back(at_[at]);
  before.push_back(earlier);
  before.insert(before.end(), after.begin(), after.end());
  before.push_back(from_);
  // The marks of this walk use the old positions.
  for (size_t word = lowest_ / 64; word <= end / 64; ++word) needed_[word] = parted_[word] = 0;
  for (size_t k = 0; k < before.size(); ++k) {
    at_[begin + k] = before[k];
    position_[before[k]] = begin + k;
  }
  into_[from_] = earlier;
  for (size_t item : needs_[from_]) needs_[earlier].push_back(item);
  for (size_t& item : needs_[earlier]) item = found(item);
  sort_out(needs_[earlier]);
  std::erase(needs_[earlier], earlier);
  add_to(access_[earlier].reads, access_[from_].reads);
  add_to(access_[earlier].writes, access_[from_].writes);
}

}  // namespace framejit::inductor
