// inductor/cpu/nest_tiles.cpp — loads that are strided along the lanes, read in the other direction.
//
// A kernel in tiles takes up to tile_points() points of its last outer dimension at once, inside the loop over the lanes. There such a
// load is contiguous along the outer dimension: blocks of lanes x lanes elements are loaded by rows, transposed in registers, and
// laid on the stack, one vector for each outer point. Half precision is widened first, so that all but 64-bit types and bytes
// take the same shuffles.
#include <algorithm>

#include "inductor/cpu/nest_emitter.h"
#include "inductor/kernel/loop_shape.h"

namespace framejit::inductor {

using llvm::Value;

int64_t tile_points(const Kernel& kernel) {
  constexpr int64_t kCacheLine = 64, kLeast = 16;
  int64_t bytes = kCacheLine / kLeast;
  for (const LoopInst& inst : kernel.nests[0].nest.body)
    if (is_tiled_load(inst, NestSymbols(kernel.symbol_count), kernel.outer.size() - 1, kernel.nests[0].vector_dim))
      bytes = std::min<int64_t>(bytes, row_of(kernel.buffers[inst.buffer].dtype).bytes);
  return kCacheLine / bytes;
}

bool NestEmitter::is_tiled(const LoopInst& inst) const {
  return kernel_.in_tiles && is_tiled_load(inst, symbols_, kernel_.outer.size() - 1, n_.vector_dim);
}

void NestEmitter::fill_tiles() {
  for (size_t i = 0; i < nest_.body.size(); ++i)
    if (is_tiled(nest_.body[i])) fill_tile(static_cast<InstId>(i));
}

void NestEmitter::fill_tile(InstId i) {
  const LoopInst& inst = nest_.body[i];
  const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
  llvm::Type* row = ops_.stored_type(buffer.dtype, lanes_);
  if (tiles_[i] == nullptr) {  // one for the main loop and the tail
    llvm::BasicBlock& entry = s_.function->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.begin());
    auto* block = at_entry.CreateAlloca(row, at_entry.getInt64(static_cast<uint64_t>(tile_points(kernel_))));
    tiles_[i] = block;
  }
  const size_t tile = kernel_.outer.size() - 1, lane_dim = n_.vector_dim;
  Value* first_point = dims_[tile];
  const unsigned lanes = std::exchange(lanes_, 0);  // addresses are scalars here
  llvm::Type* element = ops_.memory_type(buffer.dtype, 0);
  SymExpr coefficient, rest;
  split_linear(inst.index[0], symbols_.dim(lane_dim), coefficient, rest);
  Value* const row_step = eval(coefficient);
  Value* const last_lane = mask_ == nullptr ? nullptr : b_.CreateSub(extent(lane_dim), b_.CreateAdd(dims_[lane_dim], b_.getInt64(1)));
  // Lanes that are off read what the last one that is on reads: masked loads of less than 32 bits are not what CPUs have.
  const auto each_lane = [&](Value* point, llvm::function_ref<void(unsigned k, Value* address)> body) {
    dims_[tile] = point;
    Value* const first = b_.CreateGEP(element, s_.buffers[inst.buffer], eval(inst.index[0]));
    for (unsigned k = 0; k < lanes; ++k) {
      Value* lane = b_.getInt64(k);
      if (last_lane != nullptr) lane = least(lane, last_lane);
      body(k, b_.CreateGEP(element, first, b_.CreateMul(row_step, lane)));
    }
  };
  const auto keep = [&](Value* point, unsigned k, Value* values) {
    Value* at = b_.CreateAdd(b_.CreateSub(point, s_.outer.back()), b_.getInt64(k));
    b_.CreateStore(values, b_.CreateGEP(row, tiles_[i], at));
  };
  Value* const count = b_.CreateSub(s_.tile_end, s_.outer.back());
  Value* const whole = b_.CreateAdd(s_.outer.back(), b_.CreateAnd(count, b_.getInt64(~static_cast<uint64_t>(lanes - 1))));
  emit_loop(s_.outer.back(), whole, b_.getInt64(lanes), {}, [&](Value* point) {
    std::vector<Value*> rows;
    each_lane(point, [&](unsigned, Value* address) { rows.push_back(ops_.load_stored(buffer.dtype, address, lanes)); });
    rows = ops_.transposed(std::move(rows));
    for (unsigned k = 0; k < lanes; ++k) keep(point, k, rows[k]);
  });
  emit_loop(whole, s_.tile_end, b_.getInt64(1), {}, [&](Value* point) {  // too few for a block
    Value* values = llvm::PoisonValue::get(row);
    each_lane(point, [&](unsigned k, Value* address) { values = b_.CreateInsertElement(values, ops_.load_stored(buffer.dtype, address, 0), k); });
    keep(point, 0, values);
  });
  lanes_ = lanes;
  dims_[tile] = first_point;
}

Value* NestEmitter::tile_row(InstId i) {
  const DType dtype = kernel_.buffers[nest_.body[i].buffer].dtype;
  llvm::Type* row = ops_.stored_type(dtype, lanes_);
  Value* at = b_.CreateSub(dims_[kernel_.outer.size() - 1], s_.outer.back());
  return ops_.from_stored(dtype, b_.CreateLoad(row, b_.CreateGEP(row, tiles_[i], at)));
}

}  // namespace framejit::inductor
