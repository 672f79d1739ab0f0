// inductor/cpu/nest_prefetch.h — prefetches memory (plan/prefetches.cpp decides what and when).
#pragma once

#include "inductor/cpu/nest_indices.h"

namespace framejit::inductor {

class Prefetches : NestPart {
 public:
  Prefetches(NestState& state, Indices& indices) : NestPart(state), indices_(indices) {}

  void bytes(Value* address, uint64_t count);
  void ahead(InstId i, Value* address);  // for a load whose lanes are side by side
  void next_row();

 private:
  void lanes(DType dtype, Value* address, const SymExpr& elements);

  Indices& indices_;
};

}  // namespace framejit::inductor
