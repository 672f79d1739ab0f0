// inductor/cpu/nest_scans.h — running results, which step where their values are needed.
#pragma once

#include "inductor/cpu/nest_positions.h"

namespace framejit::inductor {

class Scans : NestPart {
 public:
  Scans(NestState& state, Positions& positions) : NestPart(state), positions_(positions) {}

  void scan(InstId i, Accumulators& set);

 private:
  void step(InstId i, Accumulators& set);
  void take(Value* takes, Accumulator& a, Value* x, Value* position);
  void take_if(Value* takes, Accumulator& a, Value* x, Value* position);

  Positions& positions_;
};

}  // namespace framejit::inductor
