// inductor/cpu/nest_tiles.h — loads that are strided along the lanes, read in the other direction.
#pragma once

#include "inductor/cpu/nest_prefetch.h"

namespace framejit::inductor {

class Tiles : NestPart {
 public:
  Tiles(NestState& state, Indices& indices, Prefetches& prefetches)
      : NestPart(state), indices_(indices), prefetches_(prefetches), tiles_(nest_.body.size(), nullptr) {}

  void fill();            // the blocks on the stack
  Value* row(InstId i);   // the lanes of the point being emitted
  // All points of the tile; their blocks stay in registers. `body` emits one point.
  void each_in_registers(llvm::function_ref<void()> body);

 private:
  struct Load {
    const LoopInst& inst;
    Value *row_step, *last_lane;  // from lane to lane, in elements; the last lane that is on, null: all are
  };
  Load tiled_load(InstId i);
  std::vector<Value*> of_each_lane(const Load& load, Value* point, unsigned first_lane,
                                   llvm::function_ref<Value*(Value* address)> read);
  std::vector<Value*> block_of(const Load& load, Value* point, unsigned first_lane);
  Value* column_of(const Load& load, Value* point, unsigned first_lane);
  void each_block(llvm::function_ref<void(Value* point)> block, llvm::function_ref<void(Value* point)> single);
  void fill_one(InstId i);
  Value* address(InstId i, Value* point, unsigned lane);

  Indices& indices_;
  Prefetches& prefetches_;
  std::vector<Value*> tiles_;    // per instruction: the block of a tiled load, transposed
  Value* in_register_ = nullptr;  // the lanes of the point, for the load whose blocks stay in registers
};

}  // namespace framejit::inductor
