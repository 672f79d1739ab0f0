#include "inductor/schedule/arena_blocks.h"

#include <algorithm>

#include "runtime/call_plan.h"

namespace framejit::inductor {

using graph::SymExpr;

namespace {

constexpr int kRounds = 32;  // each places every request again

constexpr uint32_t kLight = 1, kHeavy = 2;
static_assert(kHeavy < runtime::kArenaBlocks);

ArenaBlocks one_block(const std::vector<ArenaRequest>& requests) {
  ArenaBlocks blocks;
  const ArenaPlan plan = plan_arena(requests);
  for (const SymExpr& offset : plan.offsets) blocks.places.push_back({0, offset});
  blocks.bytes = {plan.total};
  return blocks;
}

// The light block is held over the steps between two heavy ones.
std::vector<BlockSpan> spans_of(const std::vector<ArenaRequest>& requests,
                                const std::vector<ArenaBlocks::Place>& places, const std::vector<bool>& is_heavy) {
  std::vector<size_t> run_of;  // per step: how many heavy steps there are up to it
  size_t run = 0;
  for (const bool heavy : is_heavy) run_of.push_back(run += heavy ? 1 : 0);
  std::vector<BlockSpan> spans;
  for (size_t r = 0; r < requests.size(); ++r) {
    const BlockSpan own{places[r].block, requests[r].first_step, requests[r].last_step};
    const auto known = std::find_if(spans.begin(), spans.end(), [&](const BlockSpan& span) {
      return span.block == own.block && (own.block == kHeavy || run_of[span.first_step] == run_of[own.first_step]);
    });
    if (known == spans.end()) {
      spans.push_back(own);
      continue;
    }
    known->first_step = std::min(known->first_step, own.first_step);
    known->last_step = std::max(known->last_step, own.last_step);
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const BlockSpan& a, const BlockSpan& b) { return a.first_step < b.first_step; });
  return spans;
}

ArenaBlocks two_blocks(const std::vector<ArenaRequest>& requests, const std::vector<bool>& is_heavy) {
  ArenaBlocks blocks;
  std::vector<ArenaRequest> requests_of[kHeavy + 1];
  for (const ArenaRequest& r : requests) {
    const bool meets_heavy =
        std::any_of(is_heavy.begin() + static_cast<long>(r.first_step),
                    is_heavy.begin() + static_cast<long>(r.last_step) + 1, [](bool heavy) { return heavy; });
    blocks.places.push_back({meets_heavy ? kHeavy : kLight, {}});
    requests_of[blocks.places.back().block].push_back(r);
  }
  for (const auto& of_block : requests_of) {
    const ArenaPlan plan = plan_arena(of_block);
    const auto block = static_cast<uint32_t>(blocks.bytes.size());
    blocks.bytes.push_back(plan.total);
    auto offset = plan.offsets.begin();
    for (ArenaBlocks::Place& place : blocks.places)
      if (place.block == block) place.offset = *offset++;
  }
  blocks.spans = spans_of(requests, blocks.places, is_heavy);
  return blocks;
}

std::vector<int64_t> held_with(const ArenaBlocks& blocks, const std::vector<int64_t>& beside) {
  std::vector<int64_t> held = beside;
  for (int64_t& bytes : held) bytes += blocks.bytes[0].constant();
  for (const BlockSpan& span : blocks.spans)
    for (size_t s = span.first_step; s <= span.last_step; ++s) held[s] += blocks.bytes[span.block].constant();
  return held;
}

// A lower bound of the peak: what is live at each step.
int64_t least_peak(const std::vector<ArenaRequest>& requests, const std::vector<int64_t>& beside) {
  std::vector<int64_t> live = beside;
  for (const ArenaRequest& r : requests)
    for (size_t s = r.first_step; s <= r.last_step; ++s) live[s] += r.bytes.constant();
  return *std::max_element(live.begin(), live.end());
}

}  // namespace

ArenaBlocks plan_blocks(const std::vector<ArenaRequest>& requests, const std::vector<int64_t>& beside, int64_t saving) {
  ArenaBlocks current = one_block(requests);
  const bool is_known =
      std::all_of(requests.begin(), requests.end(), [](const ArenaRequest& r) { return r.bytes.is_constant(); });
  if (requests.empty() || beside.empty() || !is_known) return current;
  ArenaBlocks best = current;
  std::vector<bool> is_heavy(beside.size(), false);
  std::vector<int64_t> held = held_with(current, beside);
  auto worst = std::max_element(held.begin(), held.end());
  int64_t most = *worst - saving;  // a better division holds no more than this
  const int64_t least = least_peak(requests, beside);
  for (int round = 0; round < kRounds && most >= least && !is_heavy[static_cast<size_t>(worst - held.begin())];
       ++round) {
    is_heavy[static_cast<size_t>(worst - held.begin())] = true;
    current = two_blocks(requests, is_heavy);
    held = held_with(current, beside);
    worst = std::max_element(held.begin(), held.end());
    if (*worst > most) continue;
    most = *worst - 1;
    best = current;
  }
  return best;
}

}  // namespace framejit::inductor
