// inductor/cpu/nest_searches.h — positions of extrema, found by blocks.
#pragma once

#include "inductor/cpu/nest_positions.h"

namespace framejit::inductor {

class Search : NestPart {
 public:
  // `body` emits the computation of the lanes.
  Search(NestState& state, Positions& positions, llvm::function_ref<void()> body)
      : NestPart(state), positions_(positions), body_(body) {}

  void emit(Value* from, Value* to, Accumulator& found);

 private:
  void look_at(ReduceOp better, DType dtype, Value* x, Value* index, Accumulator& best);

  Positions& positions_;
  const llvm::function_ref<void()> body_;
};

}  // namespace framejit::inductor
