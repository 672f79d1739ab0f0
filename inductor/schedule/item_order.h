// inductor/schedule/item_order.h — which items of a program may become one, whatever lies between them.
//
// Two items conflict if one writes what the other touches. Conflicting items stay in order, and so do calls (random
// numbers). Two items may be joined unless a third one needs the first and the second needs the third. The graph of
// conflicts decides this, not the distance: each item keeps the earlier items that it conflicts with. Looking back from
// an item walks what it needs, latest first, as far as necessary.
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
  // Items that have not been joined into others, in a correct order.
  std::vector<size_t> order() const;

  // Makes `from` the current item. It comes after all items that the questions are about.
  void look_back(size_t from);
  // Whether the current item needs an item that lies between the two and needs `earlier`.
  bool is_parted(size_t earlier);
  // The current item becomes a part of `earlier`, which moves after everything that both need. Not allowed if they are
  // parted.
  void join(size_t earlier);

 private:
  void need(size_t item, bool through_another);

  std::vector<ItemAccess> access_;
  std::vector<std::vector<size_t>> needs_;  // earlier items that each conflicts with, in the original numbering
  std::vector<size_t> position_, at_;       // of items, and the item at each position
  mutable std::vector<size_t> into_;
  // For the current item, by position: what it needs, and what it needs through another item.
  size_t from_ = 0, walked_ = 0, lowest_ = 0;
  std::vector<uint64_t> needed_, parted_;
};

}  // namespace framejit::inductor
