// inductor/cpu/plan/levels.cpp — the loops of a nest, and how many of them contain each instruction.
#include <algorithm>

#include "inductor/cpu/plan/planning.h"

namespace framejit::inductor {
namespace {

size_t level_of_dim(const NestPlan& plan, size_t d) {
  for (size_t k = 0; k < plan.loops.size(); ++k)
    if (plan.loops[k].dim == d) return k + 1;
  return 0;
}

size_t level_of(const Planning& p, const LoopInst& inst) {
  size_t level = 0;
  for (size_t d = p.nest.ranges.size(); is_ordered(inst) && d < p.nest.dim_count(); ++d)
    level = std::max(level, level_of_dim(p.plan, d));
  for (const SymExpr& e : inst.index) {
    std::vector<graph::SymbolId> ids;
    e.collect_symbols(ids);
    for (graph::SymbolId id : ids)
      if (p.symbols.is_dim(id)) level = std::max(level, level_of_dim(p.plan, p.symbols.dim_of(id)));
  }
  std::vector<InstId> uses;
  collect_uses(inst, p.symbols, uses);
  for (InstId use : uses) level = std::max(level, p.plan.insts[use].level);
  return level;
}

}  // namespace

bool Planning::has_at_most(int64_t points, size_t first_dim) const {
  int64_t count = 1;
  for (size_t d = first_dim; d < nest.dim_count() && count <= points; ++d)
    count *= nest.extent(d).as_constant().value_or(points + 1);
  return count <= points;
}

bool NestPlan::is_inside_lanes(size_t level) const {
  return has_outer_lanes || std::any_of(loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(level),
                                        [&](const LoopPlan& loop) { return loop.dim == lanes.dim; });
}

void plan_levels(Planning& p) {
  NestPlan& plan = p.plan;
  for (size_t d : p.n.order) plan.loops.push_back({d});
  if (p.kernel.in_tiles) plan.loops.push_back({p.kernel.outer.size() - 1});
  while (plan.range_levels < plan.loops.size() && plan.loops[plan.range_levels].dim < p.nest.ranges.size())
    ++plan.range_levels;
  plan.has_outer_lanes = p.kernel.lanes_outer;
  const std::vector<bool> after = after_reduction(p.nest, p.symbols);
  for (size_t i = 0; i < p.nest.body.size(); ++i) {
    plan.insts.emplace_back().is_after = after[i];
    plan.insts[i].level = after[i] ? plan.range_levels : level_of(p, p.nest.body[i]);
  }
}

}  // namespace framejit::inductor
