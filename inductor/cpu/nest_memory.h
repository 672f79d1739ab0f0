// inductor/cpu/nest_memory.h — loads and stores.
#pragma once

#include "inductor/cpu/nest_masks.h"
#include "inductor/cpu/nest_tiles.h"

namespace framejit::inductor {

class Memory : NestPart {
 public:
  Memory(NestState& state, Indices& indices, Prefetches& prefetches, Masks& masks, Tiles& tiles)
      : NestPart(state), indices_(indices), prefetches_(prefetches), masks_(masks), tiles_(tiles) {}

  void load(InstId i);
  void store(InstId i);

 private:
  Value* loaded(InstId i, Value* mask);
  // Lanes that are not side by side in registers (plan/lane_order.cpp).
  Value* load_split(const LoopInst& inst, Value* address);
  void store_split(const LoopInst& inst, Value* address, Value* value, Bf16Rounding rounding);
  Value* all_lanes();

  Indices& indices_;
  Prefetches& prefetches_;
  Masks& masks_;
  Tiles& tiles_;
};

}  // namespace framejit::inductor
