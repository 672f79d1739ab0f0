// inductor/cpu/nest_indices.h — index expressions and addresses.
#pragma once

#include "inductor/cpu/nest_state.h"

namespace framejit::inductor {

class Indices : NestPart {
 public:
  explicit Indices(NestState& state) : NestPart(state) {}

  // The value of an index expression: a vector of i64 if it depends on the lane.
  Value* eval(const SymExpr& e);
  Value* shared(const SymExpr& e);  // the value for the first lane
  Value* extent(size_t d) { return eval(nest_.extent(d)); }
  Value* iota(unsigned lanes, bool is_split);

  struct Address {
    Value* base = nullptr;     // scalar address
    Value* offsets = nullptr;  // relative to it, for each lane, if each lane has its own address
  };
  Address address(const LoopInst& inst, Access access);

 private:
  Value* eval_symbol(graph::SymbolId id);
};

}  // namespace framejit::inductor
