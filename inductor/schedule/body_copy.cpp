// inductor/schedule/body_copy.cpp — translation of instructions between nests.
#include "inductor/schedule/body_copy.h"

namespace framejit::inductor {

LoopInst BodyCopy::translate(const LoopInst& inst) const {
  const NestSymbols& symbols = to_.symbols();
  LoopInst copy = inst;
  for (int k = 0; k < inst.operand_count(); ++k) copy.operands[k] = map_[inst.operands[k]];
  for (SymExpr& e : copy.index) {
    if (e.is_constant()) continue;
    e = simplify(substitute(e,
                            [&](graph::SymbolId id) -> SymExpr {
                              if (symbols.is_value(id)) return symbols.value(map_[symbols.inst_of(id)]);
                              if (symbols.is_dim(id)) return dims_[symbols.dim_of(id)];
                              return SymExpr::symbol(id);
                            }),
                 bounds_);
  }
  return copy;
}

void BodyCopy::add_condition(LoopInst& load) {
  if (load.is_masked()) {
    load.operands[0] = to_.scalar(ScalarOp::k_bit_and, {*condition, load.operands[0]});
  } else {
    load.operands = {*condition, to_.constant(0, load.dtype), kNoInst};
  }
}

void BodyCopy::run() {
  map_.assign(from_.body.size(), kNoInst);
  to_.add_origins(from_.origins);
  for (size_t i = 0; i < from_.body.size(); ++i) {
    if (leave_out && leave_out(static_cast<InstId>(i))) continue;
    if (from_.body[i].op == LoopOp::kReduce && replace_reduction) {
      map_[i] = replace_reduction(static_cast<InstId>(i));
      continue;
    }
    LoopInst inst = translate(from_.body[i]);
    if (inst.op == LoopOp::kLoad && condition) add_condition(inst);
    if (inst.op == LoopOp::kStore) {
      if (with_stores) to_.store(inst.buffer, inst.index, inst.operands[0], inst.mode, inst.reduce);
      continue;
    }
    if (inst.op == LoopOp::kLoad && replace_load) {
      if (const auto value = replace_load(inst)) {
        map_[i] =
            inst.is_masked() ? to_.scalar(ScalarOp::k_select, {inst.operands[0], *value, inst.operands[1]}) : *value;
        continue;
      }
    }
    // An index that became constant is made a constant, so that folding sees it.
    map_[i] = inst.op == LoopOp::kIndex ? to_.index(inst.index[0]) : to_.emit(inst);
  }
}

}  // namespace framejit::inductor
