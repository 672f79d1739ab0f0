// inductor/cpu/nest_masks.h — masks, and loads that read only where one holds.
#pragma once

#include "inductor/cpu/nest_indices.h"

namespace framejit::inductor {

class Masks : NestPart {
 public:
  Masks(NestState& state, Indices& indices) : NestPart(state), indices_(indices) {}

  Value* border(InstId i);
  // `loaded` reads the lanes of a mask (null: all).
  Value* load(InstId i, llvm::function_ref<Value*(Value* mask)> loaded);

 private:
  struct Lanes {  // of a mask: whether none or all lanes are on, if that is known before the mask is computed
    Value *any = nullptr, *all = nullptr;
  };
  Lanes lanes_of(InstId i);
  Value* position_of_first_lane(InstId i);
  Value* lanes_before(Value* first, Value* place);
  Value* distance_of_place(InstId i);
  Value* value(InstId i);
  Value* either(Value* condition, llvm::function_ref<Value*()> yes, llvm::function_ref<Value*()> no);

  Indices& indices_;
};

}  // namespace framejit::inductor
