// inductor/cpu/nest_reductions.h — accumulators: how they start, step, combine and end.
#pragma once

#include "inductor/cpu/nest_positions.h"

namespace framejit::inductor {

class Reductions : NestPart {
 public:
  Reductions(NestState& state, Positions& positions) : NestPart(state), positions_(positions) {}

  Accumulators neutral(unsigned lanes);
  void accumulate(Accumulators& set);
  Accumulators restarted(const Accumulators& set);
  Accumulators joined(const Accumulators& total, const Accumulators& block);
  void fold_lanes(Accumulators& main, Accumulators& tail);

 private:
  void for_each_carried(const Accumulators& set, llvm::function_ref<void(size_t k, const LoopInst& inst)> body);
  Value* with_lost(const Accumulator& a);
  Value* rounded(InstId i, Value* value);

  Positions& positions_;
};

}  // namespace framejit::inductor
