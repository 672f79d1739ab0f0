// inductor/cpu/nest_positions.h — positions of extrema: how they are carried and compared.
#pragma once

#include "inductor/cpu/accumulators.h"
#include "inductor/cpu/nest_indices.h"

namespace framejit::inductor {

class Positions : NestPart {
 public:
  Positions(NestState& state, Indices& indices) : NestPart(state), indices_(indices) {}

  Value* zero();
  Value* here();                       // linear index of the current point among the reduced ones, in the form in which
                                       // it is carried
  Value* whole(const Accumulator& a);  // the carried positions in full
  void pick(const LoopInst& inst, Accumulator& a, Value* x, Value* position, Value* active);
  Value* best(const LoopInst& inst, const Accumulator& main, const Accumulator& tail);

 private:
  Indices& indices_;
};

}  // namespace framejit::inductor
