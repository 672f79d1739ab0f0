// inductor/schedule/memory_plan.cpp — interval packing.
//
// Constant sizes: the largest first, each at the lowest offset that is free during its life. Symbolic sizes cannot be
// compared, so they share slots only with requests of exactly the same size, after the constant part.
#include "inductor/schedule/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "runtime/arena.h"

namespace framejit::inductor {

using graph::SymExpr;

namespace {

constexpr int64_t kAlign = runtime::kArenaAlignment;  // offsets keep what the block has

bool meet(const ArenaRequest& a, const ArenaRequest& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

struct Placed {
  size_t request;
  int64_t begin, end;
};

int64_t lowest_offset(const std::vector<ArenaRequest>& requests, std::vector<Placed>& placed, size_t r, int64_t size) {
  int64_t at = 0;
  for (const Placed& p : placed)  // sorted by begin
    if (meet(requests[p.request], requests[r]) && p.begin < at + size && at < p.end) at = p.end;
  return at;
}

}  // namespace

ArenaPlan plan_arena(const std::vector<ArenaRequest>& requests) {
  ArenaPlan plan;
  plan.offsets.assign(requests.size(), SymExpr(0));
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto constant = [&](size_t r) { return requests[r].bytes.as_constant(); };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return constant(a).value_or(-1) > constant(b).value_or(-1); });
  std::vector<Placed> placed;
  int64_t end = 0;
  struct Slot {
    SymExpr bytes, offset;
    std::vector<size_t> users;
  };
  std::vector<Slot> slots;
  SymExpr symbolic_end = 0;
  for (size_t r : order) {
    if (const auto bytes = constant(r)) {
      const int64_t size = (*bytes + kAlign - 1) / kAlign * kAlign;
      const int64_t at = lowest_offset(requests, placed, r, size);
      plan.offsets[r] = at;
      const Placed entry{r, at, at + size};
      placed.insert(std::upper_bound(placed.begin(), placed.end(), entry,
                                     [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
                    entry);
      end = std::max(end, at + size);
      continue;
    }
    const SymExpr size = SymExpr::floor_div(requests[r].bytes + SymExpr(kAlign - 1), kAlign) * SymExpr(kAlign);
    auto slot = std::find_if(slots.begin(), slots.end(), [&](const Slot& s) {
      return s.bytes == size &&
             std::none_of(s.users.begin(), s.users.end(), [&](size_t u) { return meet(requests[u], requests[r]); });
    });
    if (slot == slots.end()) {
      slots.push_back({size, symbolic_end, {}});
      symbolic_end = symbolic_end + size;
      slot = slots.end() - 1;
    }
    slot->users.push_back(r);
    plan.offsets[r] = slot->offset;
  }
  for (size_t r = 0; r < requests.size(); ++r)
    if (!requests[r].bytes.is_constant()) plan.offsets[r] = plan.offsets[r] + SymExpr(end);
  plan.total = symbolic_end + SymExpr(end);
  return plan;
}

}  // namespace framejit::inductor
