// Which items may become one, compared with a search of the whole graph of conflicts, for random programs and random
// joins.
#include "inductor/schedule/item_order.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/inductor/accesses.h"

namespace framejit::inductor::testing {
namespace {

using Items = std::vector<std::variant<Nest, ExternCall>>;

// The definition: the original items, and the sets that joins made of them.
class Model {
 public:
  explicit Model(const Items& items) : set_of_(items.size()) {
    for (size_t i = 0; i < items.size(); ++i) {
      access_.push_back(access_of(items[i]));
      is_call_.push_back(std::holds_alternative<ExternCall>(items[i]));
      set_of_[i] = i;
    }
  }
  // Whether set b needs set a directly.
  bool needs(size_t b, size_t a) const {
    for (size_t i = 0; i < set_of_.size(); ++i)
      for (size_t j = i + 1; j < set_of_.size(); ++j)
        if (set_of_[i] == a && set_of_[j] == b && keep_order(i, j)) return true;
    return false;
  }
  bool reaches(size_t a, size_t b) const {  // over any number of sets
    std::vector<size_t> open{a};
    std::vector<bool> seen(set_of_.size(), false);
    while (!open.empty()) {
      const size_t at = open.back();
      open.pop_back();
      for (size_t next : set_of_)
        if (next != at && !seen[next] && needs(next, at)) {
          if (next == b) return true;
          seen[next] = true;
          open.push_back(next);
        }
    }
    return false;
  }
  bool is_parted(size_t a, size_t b) const {
    for (size_t k : set_of_)
      if (k != a && k != b && reaches(a, k) && reaches(k, b)) return true;
    return false;
  }
  void join(size_t a, size_t b) {
    for (size_t& s : set_of_)
      if (s == b) s = a;
  }

 private:
  bool keep_order(size_t i, size_t j) const { return (is_call_[i] && is_call_[j]) || conflict(access_[i], access_[j]); }
  std::vector<ItemAccess> access_;
  std::vector<bool> is_call_;
  std::vector<size_t> set_of_;
};

TEST(ItemOrder, EqualsASearchOfTheWholeGraph) {
  size_t joined = 0, parted = 0;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](size_t n) { return static_cast<LoopBufferId>(random() % n); };
    Items items;
    const size_t count = 4 + pick(9);
    for (size_t i = 0; i < count; ++i) {
      std::vector<LoopBufferId> reads{pick(2 + i)};
      if (pick(2) == 0) reads.push_back(pick(2 + i));
      const std::vector<LoopBufferId> writes{pick(6) == 0 ? pick(2 + i) : static_cast<LoopBufferId>(2 + i)};
      if (pick(5) == 0) items.emplace_back(call_of(0, reads, writes));
      else items.emplace_back(nest_of(reads, writes));
    }
    ItemOrder order(items);
    Model model(items);
    for (int round = 0; round < 12; ++round) {
      const std::vector<size_t> now = order.order();
      if (now.size() < 2) break;
      for (size_t a = 0; a < now.size(); ++a)
        for (size_t b = a + 1; b < now.size(); ++b)
          ASSERT_FALSE(model.needs(now[a], now[b])) << "seed " << seed << ": " << now[b] << " comes after " << now[a];
      const size_t at = 1 + pick(now.size() - 1);
      order.look_back(now[at]);
      for (size_t k = at; k-- > 0;) {
        const bool expected = model.is_parted(now[k], now[at]);
        ASSERT_EQ(order.is_parted(now[k]), expected) << "seed " << seed << ": " << now[k] << " and " << now[at];
        (expected ? parted : joined) += 1;
        if (expected || pick(3) != 0) continue;
        order.join(now[k]);
        model.join(now[k], now[at]);
        EXPECT_EQ(order.found(now[at]), now[k]);
        break;
      }
    }
  }
  EXPECT_GT(joined, 500u);
  EXPECT_GT(parted, 200u);
}

TEST(ItemOrder, WhatStandsBetweenMovesAside) {
  // 0 -> 3 may join although 1 needs 0 and 3 needs 2.
  ItemOrder order({nest_of({0}, {1}), nest_of({1}, {2}), nest_of({0}, {3}), nest_of({1, 3}, {4})});
  order.look_back(3);
  EXPECT_FALSE(order.is_parted(0));
  order.join(0);
  EXPECT_EQ(order.order(), (std::vector<size_t>{2, 0, 1}));
  EXPECT_EQ(order.access(0).writes, (std::vector<LoopBufferId>{1, 4}));
}

TEST(ItemOrder, CallsStayInOrder) {
  ItemOrder order({nest_of({0}, {1}), call_of(0, {1}, {2}), call_of(0, {0}, {3}), nest_of({1, 3}, {4})});
  order.look_back(3);
  EXPECT_TRUE(order.is_parted(0)) << "the first call would run after the second";
}

}  // namespace
}  // namespace framejit::inductor::testing
