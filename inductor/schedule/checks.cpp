#include "inductor/schedule/checks.h"

#include <algorithm>

#include "inductor/schedule/body_copy.h"

namespace framejit::inductor {

bool has_checks(const Nest& nest) {
  return std::any_of(nest.body.begin(), nest.body.end(),
                     [](const LoopInst& inst) { return inst.op == LoopOp::kCheck; });
}

std::vector<bool> feeding_checks(const Nest& nest, const NestSymbols& symbols) {
  std::vector<bool> feeds(nest.body.size(), false);
  for (size_t i = nest.body.size(); i-- > 0;) {
    feeds[i] = feeds[i] || nest.body[i].op == LoopOp::kCheck;
    if (!feeds[i]) continue;
    std::vector<InstId> uses;
    collect_uses(nest.body[i], symbols, uses);
    for (InstId use : uses) feeds[use] = true;
  }
  return feeds;
}

std::vector<bool> dims_of_checks(const Nest& nest, const NestSymbols& symbols, const std::vector<bool>& feeds) {
  std::vector<bool> is_used(nest.dim_count(), false);
  for (size_t i = 0; i < nest.body.size(); ++i) {
    std::vector<graph::SymbolId> ids;
    if (feeds[i])
      for (const SymExpr& e : nest.body[i].index) e.collect_symbols(ids);
    for (graph::SymbolId id : ids)
      if (symbols.is_dim(id)) is_used[symbols.dim_of(id)] = true;
  }
  return is_used;
}

ChecksCopy copy_checks(const Nest& nest, uint32_t symbol_count, std::string name) {
  const NestSymbols symbols(symbol_count);
  const std::vector<bool> feeds = feeding_checks(nest, symbols), is_used = dims_of_checks(nest, symbols, feeds);
  SymSizes ranges;
  std::vector<SymExpr> dims, own;  // those of the nest in terms of the copy's, and of the copy in terms of the nest's
  for (size_t d = 0; d < nest.dim_count(); ++d) {
    const bool stays = is_used[d] || nest.extent(d) == SymExpr(0);  // nothing is checked if there are no points
    dims.push_back(stays ? symbols.dim(ranges.size()) : SymExpr(0));
    if (!stays) continue;
    own.push_back(symbols.dim(d));
    ranges.push_back(nest.extent(d));
  }
  NestBuilder builder(symbol_count, std::move(name), std::move(ranges));
  BodyCopy copy(builder, nest, std::move(dims));
  copy.leave_out = [&](InstId i) { return !feeds[i]; };
  copy.run();
  return {std::move(builder), std::move(own), copy.map()};
}

Nest checks_of(const Nest& nest, uint32_t symbol_count) {
  return copy_checks(nest, symbol_count, nest.name).builder.build();
}

}  // namespace framejit::inductor
