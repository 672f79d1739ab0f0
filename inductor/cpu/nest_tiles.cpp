// inductor/cpu/nest_tiles.cpp — loads that are strided along the lanes, read in the other direction.
//
// A kernel in tiles takes several points (plan/tiles.cpp) of its last outer dimension at once, inside the loop over the
// lanes, of which there are as many as fill a cache line too. There such a load is contiguous along the outer
// dimension: blocks as wide as a register in both directions are loaded by rows, transposed in registers, and laid on
// the stack, the lanes of one outer point side by side. Half precision is widened first, so that all but 64-bit types
// and bytes take the same shuffles.
#include <utility>

#include "inductor/cpu/nest_emitter.h"
#include "inductor/loop/index_expr.h"

namespace framejit::inductor {

using llvm::Value;

void NestEmitter::fill_tiles() {
  for (size_t i = 0; i < nest_.body.size(); ++i)
    if (plan_.insts[i].access == Access::kTile) fill_tile(static_cast<InstId>(i));
}

NestEmitter::TiledLoad NestEmitter::tiled_load(InstId i) {
  const LoopInst& inst = nest_.body[i];
  SymExpr coefficient, rest;
  split_linear(inst.index[0], symbols_.dim(n_.vector_dim), coefficient, rest);
  const unsigned lanes = std::exchange(lanes_, 0);  // sizes are scalars
  TiledLoad load{inst, eval(coefficient),
                 mask_ == nullptr
                     ? nullptr
                     : b_.CreateSub(extent(n_.vector_dim), b_.CreateAdd(dims_[n_.vector_dim], b_.getInt64(1)))};
  lanes_ = lanes;
  return load;
}

// What `read` answers with for each of a register's lanes from `first_lane` on, at the address of `point`. Lanes that
// are off read what the last one that is on reads: masked loads of less than 32 bits are not what CPUs have.
std::vector<Value*> NestEmitter::of_each_lane(const TiledLoad& load, Value* point, unsigned first_lane,
                                              llvm::function_ref<Value*(Value* address)> read) {
  const size_t tile = kernel_.outer.size() - 1;
  Value* const first_point = std::exchange(dims_[tile], point);
  const unsigned lanes = std::exchange(lanes_, 0);  // addresses are scalars
  const KernelBuffer& buffer = kernel_.buffers[load.inst.buffer];
  llvm::Type* element = ops_.memory_type(buffer.dtype, 0);
  Value* const first = b_.CreateGEP(element, s_.buffers[load.inst.buffer], eval(load.inst.index[0]));
  std::vector<Value*> values;
  for (unsigned k = 0; k < width_; ++k) {
    Value* lane = b_.getInt64(first_lane + k);
    if (load.last_lane != nullptr) lane = s_.least(lane, load.last_lane);
    values.push_back(read(b_.CreateGEP(element, first, b_.CreateMul(load.row_step, lane))));
  }
  lanes_ = lanes;
  dims_[tile] = first_point;
  return values;
}

// The lanes of as many points as a register has lanes.
std::vector<Value*> NestEmitter::tile_block(const TiledLoad& load, Value* point, unsigned first_lane) {
  const DType dtype = kernel_.buffers[load.inst.buffer].dtype;
  const uint64_t bytes = static_cast<uint64_t>(row_of(dtype).bytes);
  const bool is_far = s_.plan.tiles.lanes_ahead != 0;
  return ops_.transposed(of_each_lane(
      load, point, first_lane, [&, ahead = static_cast<unsigned>(s_.plan.tiles.lanes_ahead) * lanes_](Value* address) {
        if (is_far)
          prefetch(b_.CreateGEP(ops_.memory_type(dtype, 0), address, b_.CreateMul(load.row_step, b_.getInt64(ahead))),
                   width_ * bytes);
        return ops_.load_stored(dtype, address, width_);
      }));
}

// The lanes of one point.
Value* NestEmitter::tile_column(const TiledLoad& load, Value* point, unsigned first_lane) {
  const DType dtype = kernel_.buffers[load.inst.buffer].dtype;
  const std::vector<Value*> elements =
      of_each_lane(load, point, first_lane, [&](Value* address) { return ops_.load_stored(dtype, address, 0); });
  Value* values = llvm::PoisonValue::get(ops_.stored_type(dtype, width_));
  for (unsigned k = 0; k < width_; ++k) values = b_.CreateInsertElement(values, elements[k], k);
  return values;
}

// Blocks, and then the points that are too few for one.
void NestEmitter::each_tile_block(llvm::function_ref<void(Value* point)> block,
                                  llvm::function_ref<void(Value* point)> single) {
  Value* const first = s_.outer.back();
  Value* const whole = b_.CreateAdd(
      first, b_.CreateAnd(b_.CreateSub(s_.tile_end, first), b_.getInt64(~static_cast<uint64_t>(width_ - 1))));
  emit_loop(first, whole, b_.getInt64(width_), {}, block);
  emit_loop(whole, s_.tile_end, b_.getInt64(1), {}, single);
}

void NestEmitter::fill_tile(InstId i) {
  if (tiles_[i] == nullptr) {  // one for the main loop and the tail
    llvm::BasicBlock& entry = s_.function->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.begin());
    const DType dtype = kernel_.buffers[nest_.body[i].buffer].dtype;
    tiles_[i] = at_entry.CreateAlloca(ops_.stored_type(dtype, plan_.lanes.wide()),
                                      at_entry.getInt64(static_cast<uint64_t>(s_.plan.tiles.points)));
  }
  const TiledLoad load = tiled_load(i);
  for (unsigned first_lane = 0; first_lane < lanes_; first_lane += width_) {
    const auto block = [&](Value* point) {
      const std::vector<Value*> rows = tile_block(load, point, first_lane);
      for (unsigned k = 0; k < width_; ++k)
        b_.CreateStore(rows[k], tile_address(i, b_.CreateAdd(point, b_.getInt64(k)), first_lane));
    };
    each_tile_block(block, [&](Value* point) {
      b_.CreateStore(tile_column(load, point, first_lane), tile_address(i, point, first_lane));
    });
  }
}

void NestEmitter::emit_points_in_registers(InstId i, size_t level, Accumulators& main, Accumulators& tail) {
  const size_t tile = kernel_.outer.size() - 1;
  const TiledLoad load = tiled_load(i);
  const auto emit_point = [&](Value* point, Value* lanes) {
    dims_[tile] = point;
    tile_value_ = lanes;
    emit_level(level + 1, main, tail);
  };
  const auto block = [&](Value* point) {
    const std::vector<Value*> rows = tile_block(load, point, 0);
    for (unsigned k = 0; k < width_; ++k) emit_point(b_.CreateAdd(point, b_.getInt64(k)), rows[k]);
  };
  each_tile_block(block, [&](Value* point) { emit_point(point, tile_column(load, point, 0)); });
  tile_value_ = nullptr;
}

// In the block of a tiled load.
Value* NestEmitter::tile_address(InstId i, Value* point, unsigned lane) {
  const DType dtype = kernel_.buffers[nest_.body[i].buffer].dtype;
  Value* row =
      b_.CreateGEP(ops_.stored_type(dtype, plan_.lanes.wide()), tiles_[i], b_.CreateSub(point, s_.outer.back()));
  return b_.CreateConstGEP1_64(ops_.stored_type(dtype, 0), row, lane);
}

Value* NestEmitter::tile_row(InstId i) {
  const DType dtype = kernel_.buffers[nest_.body[i].buffer].dtype;
  Value* stored = tile_value_ != nullptr ? tile_value_
                                         : b_.CreateLoad(ops_.stored_type(dtype, lanes_),
                                                         tile_address(i, dims_[kernel_.outer.size() - 1], 0));
  return ops_.from_stored(dtype, stored);
}

}  // namespace framejit::inductor
