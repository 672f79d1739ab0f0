// inductor/cpu/nest_instructions.h — one instruction of a nest, except what loops carry.
#pragma once

#include "inductor/cpu/nest_memory.h"

namespace framejit::inductor {

class Instructions : NestPart {
 public:
  Instructions(NestState& state, Indices& indices, Masks& masks, Memory& memory)
      : NestPart(state), indices_(indices), masks_(masks), memory_(memory) {}

  void emit(InstId i);

 private:
  void check(InstId i);
  Value* scalar(const LoopInst& inst);

  Indices& indices_;
  Masks& masks_;
  Memory& memory_;
};

}  // namespace framejit::inductor
