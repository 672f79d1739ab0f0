// inductor/loop/empty_nest.cpp — instructions become constants in place, so that positions keep their meaning.
#include "inductor/loop/empty_nest.h"

#include <algorithm>

namespace framejit::inductor {
namespace {

bool has_zero(const SymSizes& sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](const SymExpr& size) { return size == SymExpr(0); });
}

void make_constant(LoopInst& inst) {
  LoopInst constant;
  constant.dtype = inst.dtype;
  inst = std::move(constant);
}

// Stores of a constant, at indices that depend on the one remaining loop.
void keep_stores(Nest& nest, const NestSymbols& symbols) {
  nest.ranges = {SymExpr(0)};
  nest.reduced.clear();
  for (LoopInst& inst : nest.body) {
    if (inst.op != LoopOp::kStore) {
      make_constant(inst);
      continue;
    }
    inst.mode = StoreMode::kPlain;
    std::fill(inst.index.begin(), inst.index.end(), symbols.dim(0));
  }
}

// Removes what only reductions need.
void keep_results(Nest& nest, const NestSymbols& symbols) {
  std::vector<bool> is_needed(nest.body.size());
  for (size_t i = nest.body.size(); i-- > 0;) {
    const LoopInst& inst = nest.body[i];
    is_needed[i] = is_needed[i] || inst.op == LoopOp::kStore;
    if (!is_needed[i] || inst.op == LoopOp::kReduce) continue;
    std::vector<InstId> uses;
    collect_uses(inst, symbols, uses);
    for (const InstId use : uses) is_needed[use] = true;
  }
  for (size_t i = 0; i < nest.body.size(); ++i)
    if (!is_needed[i]) make_constant(nest.body[i]);
}

}  // namespace

Nest without_empty_loops(Nest nest, uint32_t symbol_count) {
  const NestSymbols symbols(symbol_count);
  if (has_zero(nest.ranges) || (has_zero(nest.reduced) && is_ordered(nest))) keep_stores(nest, symbols);
  else if (has_zero(nest.reduced)) keep_results(nest, symbols);
  return nest;
}

}  // namespace framejit::inductor
