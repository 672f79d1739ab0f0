// inductor/schedule/item_order.h — which items of a program may become one, whatever stands between them.
//
// Two items conflict when one writes what the other touches; they stay in order, and so do calls (random numbers).
// Joining two is right unless a third needs the first and is needed by the second. That is asked of the graph of
// conflicts, not of the distance: each item keeps those before it that it conflicts with, and looking back from an item
// walks what it needs, latest first, as far as is asked.
#pragma once

#include "inductor/schedule/fusion.h"

namespace framejit::inductor {

class ItemOrder {
 public:
  explicit ItemOrder(const std::vector<std::variant<Nest, ExternCall>>& items);

  const ItemAccess& access(size_t item) const { return access_[item]; }
  size_t position(size_t item) const { return position_[item]; }
  // The item that it was joined into, or itself.
  size_t found(size_t item) const;
  // Items that still are their own, in an order that is right.
  std::vector<size_t> order() const;

  // Asks about earlier items begin here; the last to ask about comes latest.
  void look_back(size_t from);
  // Whether an item between the two needs `earlier` and is needed by the one that is looked back from.
  bool is_parted(size_t earlier);
  // The one that is looked back from becomes a part of `earlier`, which moves behind all that both need. Not when they
  // are parted.
  void join(size_t earlier);

 private:
  void need(size_t item, bool through_another);

  std::vector<ItemAccess> access_;
  std::vector<std::vector<size_t>> needs_;  // items before it that it conflicts with, as they were first
  std::vector<size_t> position_, at_;       // of items, and the item at each position
  mutable std::vector<size_t> into_;
  // Of the item that is looked back from, by position: what it needs, and what it needs through another item.
  size_t from_ = 0, walked_ = 0, lowest_ = 0;
  std::vector<uint64_t> needed_, parted_;
};

}  // namespace framejit::inductor
