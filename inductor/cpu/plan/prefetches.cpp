// inductor/cpu/plan/prefetches.cpp — what to prefetch.
#include <algorithm>

#include "inductor/cpu/plan/planning.h"
#include "inductor/loop/index_expr.h"

namespace framejit::inductor {
namespace {

// Sizes from which prefetching beats the hardware's own, in units of the second-level cache.
constexpr int64_t kStreamCaches = 2;  // streams of at least this size are prefetched
constexpr int64_t kRowsCaches = 8;    // rows of at least this size together are prefetched
constexpr int64_t kPartOfRow = 16;    // if each is at most this part of the cache

// A reduction that reads its data once, row after row, and does little work on it. The hardware follows such a stream
// only to the end of a page. Sums of float32 are left out: they keep pace with memory anyway.
bool reads_a_stream(const Planning& p, DType dtype) {
  constexpr int64_t kHalf = 2;
  if (!p.plan.is_light || p.plan.lanes.main == MainLoop::kNone || p.kernel.nests.size() != 1 ||
      !p.lanes_are_reduced() || (row_of(dtype).bytes > kHalf && p.plan.lanes.main != MainLoop::kSearch))
    return false;
  return !p.has_at_most(p.target.caches.second * kStreamCaches / kHalf);
}

bool is_over_the_row_of(const Planning& p, const KernelNest& other) {
  return other.vector_dim == p.n.vector_dim && other.nest.extent(other.vector_dim) == p.nest.extent(p.n.vector_dim);
}

// A kernel over rows reads the row in its first nest and only computes in the later ones, which leaves memory idle. So
// the second nest over the row prefetches the next row.
bool is_second_over_the_row(const Planning& p) {
  const std::vector<KernelNest>& nests = p.kernel.nests;
  if (!p.has_lanes() || p.kernel.outer.empty() || p.kernel.lanes_outer || p.plan.loops.size() != 1) return false;
  if (nests[0].order.size() != 1 || !is_over_the_row_of(p, nests[0])) return false;
  const auto second = std::find_if(nests.begin() + 1, nests.end(),
                                   [&](const KernelNest& other) { return is_over_the_row_of(p, other); });
  return second != nests.end() && &*second == &p.n;
}

// How many elements after this load of the first nest the next row begins; nothing: it is not prefetched.
std::optional<SymExpr> next_row(const Planning& p, const LoopInst& inst) {
  const int64_t beyond_caches = p.target.caches.second * kRowsCaches,
                most_of_a_row = p.target.caches.second / kPartOfRow;
  const auto row = p.lane_count(), rows = p.kernel.outer.back().as_constant();
  if (!row || !rows || inst.op != LoopOp::kLoad || inst.is_masked() || mentions_values(inst.index[0], p.symbols) ||
      p.kernel.buffers[inst.buffer].is_local)
    return std::nullopt;
  const int64_t bytes = *row * row_of(p.kernel.buffers[inst.buffer].dtype).bytes;
  SymExpr step, along_lanes, rest;
  if (bytes > most_of_a_row || bytes * *rows < beyond_caches ||
      !split_linear(inst.index[0], p.symbols.dim(p.kernel.outer.size() - 1), step, rest) ||
      step.as_constant().value_or(0) < *row)
    return std::nullopt;
  const bool is_contiguous =
      split_linear(inst.index[0], p.symbols.dim(p.n.vector_dim), along_lanes, rest) && along_lanes == SymExpr(1);
  return is_contiguous ? std::optional(step) : std::nullopt;
}

}  // namespace

void plan_prefetches(Planning& p) {
  for (size_t i = 0; i < p.nest.body.size(); ++i) {
    const LoopInst& inst = p.nest.body[i];
    if (inst.op != LoopOp::kLoad || p.plan.insts[i].access != Access::kContiguous) continue;
    const DType dtype = p.kernel.buffers[inst.buffer].dtype;
    if (reads_a_stream(p, dtype)) p.plan.insts[i].elements_ahead = p.costs.prefetch_ahead / row_of(dtype).bytes;
  }
  if (p.plan.lanes.main != MainLoop::kTurns || !is_second_over_the_row(p)) return;
  const std::vector<LoopInst>& loads = p.kernel.nests[0].nest.body;
  for (InstId i = 0; i < loads.size(); ++i)
    if (const auto elements = next_row(p, loads[i])) p.plan.rows_ahead.push_back({i, *elements});
}

}  // namespace framejit::inductor
