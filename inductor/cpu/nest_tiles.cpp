// inductor/cpu/nest_tiles.cpp — loads that are strided along the lanes, read in the other direction.
//
// A kernel in tiles takes several points (plan/tiles.cpp) of its last outer dimension at once, inside the loop over the
// lanes: enough points to fill a cache line. Such a load is contiguous along the outer dimension. So blocks that are as
// wide as a register in both directions are loaded by rows, transposed in registers, and stored on the stack, with the
// lanes of one outer point side by side. Half precision is widened first, so that all types except 64-bit types and
// bytes use the same shuffles.
#include "inductor/cpu/nest_tiles.h"

#include <utility>

#include "inductor/cpu/accumulators.h"
#include "inductor/loop/index_expr.h"

namespace framejit::inductor {

using llvm::Value;

void Tiles::fill() {
  for (size_t i = 0; i < nest_.body.size(); ++i)
    if (plan_.insts[i].access == Access::kTile) fill_one(static_cast<InstId>(i));
}

Tiles::Load Tiles::tiled_load(InstId i) {
  const LoopInst& inst = nest_.body[i];
  SymExpr coefficient, rest;
  split_linear(inst.index[0], symbols_.dim(plan_.lanes.dim), coefficient, rest);
  return {inst, indices_.shared(coefficient),
          mask_ == nullptr ? nullptr
                           : b_.CreateSub(indices_.shared(nest_.extent(plan_.lanes.dim)),
                                          b_.CreateAdd(dims_[plan_.lanes.dim], b_.getInt64(1)))};
}

// What `read` returns for each lane of a register from `first_lane` on, at the address of `point`. Lanes that are off
// read what the last lane that is on reads: CPUs have no masked loads of less than 32 bits.
std::vector<Value*> Tiles::of_each_lane(const Load& load, Value* point, unsigned first_lane,
                                        llvm::function_ref<Value*(Value* address)> read) {
  const size_t tile = kernel_.outer.size() - 1;
  Value* const first_point = std::exchange(dims_[tile], point);
  const KernelBuffer& buffer = kernel_.buffers[load.inst.buffer];
  llvm::Type* element = ops_.memory_type(buffer.dtype, 0);
  Value* const first = b_.CreateGEP(element, s_.buffers[load.inst.buffer], indices_.shared(load.inst.index[0]));
  std::vector<Value*> values;
  for (unsigned k = 0; k < width(); ++k) {
    Value* lane = b_.getInt64(first_lane + k);
    if (load.last_lane != nullptr) lane = s_.least(lane, load.last_lane);
    values.push_back(read(b_.CreateGEP(element, first, b_.CreateMul(load.row_step, lane))));
  }
  dims_[tile] = first_point;
  return values;
}

// The lanes of as many points as a register has lanes.
std::vector<Value*> Tiles::block_of(const Load& load, Value* point, unsigned first_lane) {
  const DType dtype = kernel_.buffers[load.inst.buffer].dtype;
  const uint64_t bytes = static_cast<uint64_t>(row_of(dtype).bytes);
  const bool is_far = s_.plan.tiles.lanes_ahead != 0;
  return ops_.transposed(of_each_lane(
      load, point, first_lane, [&, ahead = static_cast<unsigned>(s_.plan.tiles.lanes_ahead) * lanes_](Value* address) {
        if (is_far)
          prefetches_.bytes(
              b_.CreateGEP(ops_.memory_type(dtype, 0), address, b_.CreateMul(load.row_step, b_.getInt64(ahead))),
              width() * bytes);
        return ops_.load_stored(dtype, address, width());
      }));
}

// The lanes of one point.
Value* Tiles::column_of(const Load& load, Value* point, unsigned first_lane) {
  const DType dtype = kernel_.buffers[load.inst.buffer].dtype;
  const std::vector<Value*> elements =
      of_each_lane(load, point, first_lane, [&](Value* address) { return ops_.load_stored(dtype, address, 0); });
  Value* values = llvm::PoisonValue::get(ops_.stored_type(dtype, width()));
  for (unsigned k = 0; k < width(); ++k) values = b_.CreateInsertElement(values, elements[k], k);
  return values;
}

// Blocks, and then the points that are too few for a block.
void Tiles::each_block(llvm::function_ref<void(Value* point)> block, llvm::function_ref<void(Value* point)> single) {
  Value* const first = s_.outer.back();
  Value* const whole = b_.CreateAdd(
      first, b_.CreateAnd(b_.CreateSub(s_.tile_end, first), b_.getInt64(~static_cast<uint64_t>(width() - 1))));
  emit_carrying(s_, first, whole, b_.getInt64(width()), {}, block);
  emit_carrying(s_, whole, s_.tile_end, b_.getInt64(1), {}, single);
}

void Tiles::fill_one(InstId i) {
  if (tiles_[i] == nullptr) {  // one block for the main loop and the tail
    llvm::BasicBlock& entry = s_.function->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.begin());
    const DType dtype = kernel_.buffers[nest_.body[i].buffer].dtype;
    tiles_[i] = at_entry.CreateAlloca(ops_.stored_type(dtype, plan_.lanes.wide()),
                                      at_entry.getInt64(static_cast<uint64_t>(s_.plan.tiles.points)));
  }
  const Load load = tiled_load(i);
  for (unsigned first_lane = 0; first_lane < lanes_; first_lane += width()) {
    const auto block = [&](Value* point) {
      const std::vector<Value*> rows = block_of(load, point, first_lane);
      for (unsigned k = 0; k < width(); ++k)
        b_.CreateStore(rows[k], address(i, b_.CreateAdd(point, b_.getInt64(k)), first_lane));
    };
    each_block(block, [&](Value* point) {
      b_.CreateStore(column_of(load, point, first_lane), address(i, point, first_lane));
    });
  }
}

void Tiles::each_in_registers(llvm::function_ref<void()> body) {
  const size_t tile = kernel_.outer.size() - 1;
  const Load load = tiled_load(*plan_.register_tile);
  const auto emit_point = [&](Value* point, Value* lanes) {
    dims_[tile] = point;
    in_register_ = lanes;
    body();
  };
  const auto block = [&](Value* point) {
    const std::vector<Value*> rows = block_of(load, point, 0);
    for (unsigned k = 0; k < width(); ++k) emit_point(b_.CreateAdd(point, b_.getInt64(k)), rows[k]);
  };
  each_block(block, [&](Value* point) { emit_point(point, column_of(load, point, 0)); });
  in_register_ = nullptr;
}

// The address in the block of a tiled load.
Value* Tiles::address(InstId i, Value* point, unsigned lane) {
  const DType dtype = kernel_.buffers[nest_.body[i].buffer].dtype;
  Value* row =
      b_.CreateGEP(ops_.stored_type(dtype, plan_.lanes.wide()), tiles_[i], b_.CreateSub(point, s_.outer.back()));
  return b_.CreateConstGEP1_64(ops_.stored_type(dtype, 0), row, lane);
}

Value* Tiles::row(InstId i) {
  const DType dtype = kernel_.buffers[nest_.body[i].buffer].dtype;
  Value* stored = in_register_ != nullptr
                      ? in_register_
                      : b_.CreateLoad(ops_.stored_type(dtype, lanes_), address(i, dims_[kernel_.outer.size() - 1], 0));
  return ops_.from_stored(dtype, stored);
}

}  // namespace framejit::inductor
