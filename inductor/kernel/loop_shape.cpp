// inductor/kernel/loop_shape.cpp — rewrites dimensions; each rewrite substitutes expressions for dimensions.
#include "inductor/kernel/loop_shape.h"

#include <algorithm>
#include <utility>

#include "inductor/schedule/body_copy.h"

namespace framejit::inductor {

using graph::SymbolId;
using graph::SymOp;

Nest with_dims(const Nest& nest, uint32_t symbol_count, SymSizes ranges, SymSizes reduced, std::vector<SymExpr> dims) {
  NestBuilder b(symbol_count, nest.name, std::move(ranges), std::move(reduced));
  BodyCopy copy(b, nest, std::move(dims));
  copy.run();
  return b.build();
}

namespace {

// Finds a dimension d >= fixed and a constant c that divides its extent, such that d // c or d % c occurs.
bool find_divided(const SymExpr& e, const NestSymbols& symbols, const Nest& nest, size_t fixed, size_t& dim,
                  int64_t& divisor) {
  if (e.is_constant()) return false;
  const SymExpr::Node& n = *e.node();
  if (n.op == SymOp::kFloorDiv || n.op == SymOp::kMod) {
    SymbolId id = 0;
    if (n.operands[0].is_symbol(&id) && symbols.is_dim(id) && symbols.dim_of(id) >= fixed &&
        n.operands[1].is_constant()) {
      dim = symbols.dim_of(id);
      divisor = n.operands[1].constant();
      const SymExpr& extent = nest.extent(dim);
      if (divisor > 1 && SymExpr::mod(extent, divisor) == SymExpr(0) && !(extent == SymExpr(divisor))) return true;
    }
  }
  return std::any_of(n.operands.begin(), n.operands.end(),
                     [&](const SymExpr& x) { return find_divided(x, symbols, nest, fixed, dim, divisor); });
}

Nest split_dim(const Nest& nest, uint32_t symbol_count, size_t dim, int64_t divisor) {
  const NestSymbols symbols(symbol_count);
  SymSizes ranges, reduced;
  std::vector<SymExpr> dims;
  size_t next = 0;
  for (size_t d = 0; d < nest.dim_count(); ++d) {
    SymSizes& into = d < nest.ranges.size() ? ranges : reduced;
    if (d != dim) {
      into.push_back(nest.extent(d));
      dims.push_back(symbols.dim(next++));
      continue;
    }
    into.push_back(SymExpr::floor_div(nest.extent(d), divisor));
    into.push_back(divisor);
    dims.push_back(symbols.dim(next) * SymExpr(divisor) + symbols.dim(next + 1));
    next += 2;
  }
  return with_dims(nest, symbol_count, std::move(ranges), std::move(reduced), std::move(dims));
}

}  // namespace

Nest split_divided_dims(Nest nest, uint32_t symbol_count, size_t fixed) {
  const NestSymbols symbols(symbol_count);
  for (int round = 0; round < 6 && nest.dim_count() < 10; ++round) {
    size_t dim = 0;
    int64_t divisor = 0;
    bool found = false;
    for (const LoopInst& inst : nest.body)
      for (const SymExpr& e : inst.index)
        if (!found) found = find_divided(e, symbols, nest, fixed, dim, divisor);
    if (!found) break;
    nest = split_dim(nest, symbol_count, dim, divisor);
  }
  return nest;
}

Nest drop_unit_dims(Nest nest, uint32_t symbol_count, size_t fixed) {
  const NestSymbols symbols(symbol_count);
  SymSizes ranges, reduced;
  std::vector<SymExpr> dims;
  size_t next = 0;
  for (size_t d = 0; d < nest.dim_count(); ++d) {
    const bool is_reduced = d >= nest.ranges.size();
    const bool is_last_reduced = is_reduced && d + 1 == nest.dim_count() && reduced.empty();
    if (d >= fixed && nest.extent(d) == SymExpr(1) && !is_last_reduced) {
      dims.push_back(0);
      continue;
    }
    (is_reduced ? reduced : ranges).push_back(nest.extent(d));
    dims.push_back(symbols.dim(next++));
  }
  if (next == nest.dim_count()) return nest;
  return with_dims(nest, symbol_count, std::move(ranges), std::move(reduced), std::move(dims));
}

bool can_merge(const Nest& nest, uint32_t symbol_count, size_t d) {
  const NestSymbols symbols(symbol_count);
  for (const LoopInst& inst : nest.body) {
    for (const SymExpr& e : inst.index) {
      SymExpr first, second, rest;
      if (!split_linear(e, symbols.dim(d), first, rest) || !split_linear(e, symbols.dim(d + 1), second, rest))
        return false;
      if (!(first == second * nest.extent(d + 1))) return false;
    }
  }
  return true;
}

Nest merge_two(const Nest& nest, uint32_t symbol_count, size_t d) {
  const NestSymbols symbols(symbol_count);
  SymSizes ranges, reduced;
  std::vector<SymExpr> dims;
  size_t next = 0;
  for (size_t k = 0; k < nest.dim_count(); ++k) {
    if (k == d) {
      dims.push_back(0);
      continue;
    }
    (k < nest.ranges.size() ? ranges : reduced)
        .push_back(k == d + 1 ? nest.extent(d) * nest.extent(d + 1) : nest.extent(k));
    dims.push_back(symbols.dim(next++));
  }
  return with_dims(nest, symbol_count, std::move(ranges), std::move(reduced), std::move(dims));
}

Nest merge_dims(Nest nest, uint32_t symbol_count, size_t fixed) {
  for (size_t d = fixed; d + 1 < nest.dim_count();) {
    const bool same_kind = (d < nest.ranges.size()) == (d + 1 < nest.ranges.size());
    if (same_kind && can_merge(nest, symbol_count, d)) {
      nest = merge_two(nest, symbol_count, d);
    } else {
      ++d;
    }
  }
  return nest;
}

bool is_tiled_load(const LoopInst& inst, const NestSymbols& symbols, size_t tile, size_t lanes) {
  if (inst.op != LoopOp::kLoad || inst.is_masked() || mentions_values(inst.index[0], symbols)) return false;
  SymExpr along_tile, along_lanes, rest;
  return split_linear(inst.index[0], symbols.dim(tile), along_tile, rest) && along_tile == SymExpr(1) &&
         split_linear(inst.index[0], symbols.dim(lanes), along_lanes, rest) && !(along_lanes == SymExpr(0)) &&
         !(along_lanes == SymExpr(1));
}

int vector_score(const Nest& nest, uint32_t symbol_count, size_t d, int64_t extent) {
  const NestSymbols symbols(symbol_count);
  int score = extent >= 16 ? 3 : extent >= 8 ? 0 : -4;
  bool has_stored = false;
  const bool reduces =
      std::any_of(nest.body.begin(), nest.body.end(), [](const LoopInst& inst) { return inst.op == LoopOp::kReduce; });
  const std::vector<bool> inner = inner_insts(nest, symbols);
  for (InstId i = 0; i < nest.body.size(); ++i) {
    const LoopInst& inst = nest.body[i];
    if (!is_address(inst)) continue;
    // A reduction reads many values per stored one. So several results weigh no more than one, and a load that runs
    // once per result weighs nothing.
    if (inst.op == LoopOp::kLoad && reduces && !inner[i]) continue;
    if (inst.op == LoopOp::kStore && nest.is_reduction() && std::exchange(has_stored, true)) continue;
    const int weight = inst.op == LoopOp::kStore ? 6 : 4;
    SymExpr coefficient, rest;
    if (!split_linear(inst.index[0], symbols.dim(d), coefficient, rest)) {
      score -= weight;
    } else if (coefficient == SymExpr(1)) {
      score += weight;
    } else if (!(coefficient == SymExpr(0))) {
      score -= weight;
    } else if (inst.op == LoopOp::kStore && d < nest.ranges.size()) {
      score -= weight;
    }
  }
  return score;
}

size_t choose_vector_dim(const Nest& nest, uint32_t symbol_count, const std::vector<size_t>& candidates,
                         const std::vector<int64_t>& extents) {
  size_t best = SIZE_MAX;
  int best_score = INT32_MIN;
  for (size_t d : candidates) {
    const int score = vector_score(nest, symbol_count, d, extents[d]);
    if (score < best_score) continue;  // a tie goes to the innermost
    best_score = score;
    best = d;
  }
  return best;
}

}  // namespace framejit::inductor
