// inductor/cpu/nest_tiles.cpp — loads that are strided along the lanes, read in the other direction.
//
// A kernel in tiles takes up to tile_points() points of its last outer dimension at once, inside the loop over the lanes, of which there
// are as many as fill a cache line too. There such a load is contiguous along the outer dimension: blocks as wide as a register in both
// directions are loaded by rows, transposed in registers, and laid on the stack, the lanes of one outer point side by side. Half
// precision is widened first, so that all but 64-bit types and bytes take the same shuffles.
#include <algorithm>

#include "inductor/cpu/nest_emitter.h"
#include "inductor/kernel/loop_shape.h"

namespace framejit::inductor {

using llvm::Value;

// Of the first nest, as all are that have loads in tiles.
static bool is_tiled(const Kernel& kernel, const LoopInst& inst) {
  return kernel.in_tiles && is_tiled_load(inst, NestSymbols(kernel.symbol_count), kernel.outer.size() - 1, kernel.nests[0].vector_dim);
}

int64_t tile_line(const Kernel& kernel) {
  constexpr int64_t kCacheLine = 64, kLeast = 16;
  int64_t bytes = kCacheLine / kLeast;
  for (const LoopInst& inst : kernel.nests[0].nest.body)
    if (is_tiled(kernel, inst)) bytes = std::min<int64_t>(bytes, row_of(kernel.buffers[inst.buffer].dtype).bytes);
  return kCacheLine / bytes;
}

int64_t tile_points(const Kernel& kernel) {
  constexpr int64_t kLines = 4;
  return tile_line(kernel) * (has_tiles_beyond_caches(kernel) ? kLines : 1);
}

bool has_tiles_beyond_caches(const Kernel& kernel) {
  constexpr int64_t kCaches = 64 << 20;
  constexpr int kMostOnStack = 2;  // loads, of which each has 16 KiB at most
  const Nest& nest = kernel.nests[0].nest;
  int64_t bytes = 0;
  int tiled = 0;
  for (const LoopInst& inst : nest.body) {
    bytes += is_address(inst) ? row_of(kernel.buffers[inst.buffer].dtype).bytes : 0;
    tiled += is_tiled(kernel, inst);
  }
  for (size_t d = 0; d < nest.dim_count() && bytes < kCaches; ++d) bytes *= nest.extent(d).as_constant().value_or(1);
  return tiled > 0 && tiled <= kMostOnStack && bytes >= kCaches;
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
  if (tiles_[i] == nullptr) {  // one for the main loop and the tail
    llvm::BasicBlock& entry = s_.function->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.begin());
    tiles_[i] = at_entry.CreateAlloca(ops_.stored_type(buffer.dtype, width_ * unroll_), at_entry.getInt64(static_cast<uint64_t>(tile_points(kernel_))));
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
  const auto each_lane = [&](Value* point, unsigned first_lane, llvm::function_ref<void(unsigned k, Value* address)> body) {
    dims_[tile] = point;
    Value* const first = b_.CreateGEP(element, s_.buffers[inst.buffer], eval(inst.index[0]));
    for (unsigned k = 0; k < width_; ++k) {
      Value* lane = b_.getInt64(first_lane + k);
      if (last_lane != nullptr) lane = s_.least(lane, last_lane);
      body(k, b_.CreateGEP(element, first, b_.CreateMul(row_step, lane)));
    }
  };
  Value* const count = b_.CreateSub(s_.tile_end, s_.outer.back());
  Value* const whole = b_.CreateAdd(s_.outer.back(), b_.CreateAnd(count, b_.getInt64(~static_cast<uint64_t>(width_ - 1))));
  const uint64_t row_bytes = width_ * static_cast<uint64_t>(row_of(buffer.dtype).bytes);
  for (unsigned first_lane = 0; first_lane < lanes; first_lane += width_) {
    emit_loop(s_.outer.back(), whole, b_.getInt64(width_), {}, [&](Value* point) {
      std::vector<Value*> rows;
      each_lane(point, first_lane, [&](unsigned, Value* address) {
        if (has_tiles_beyond_caches(kernel_)) prefetch(b_.CreateGEP(element, address, b_.CreateMul(row_step, b_.getInt64(kTilesAhead * lanes))), row_bytes);
        rows.push_back(ops_.load_stored(buffer.dtype, address, width_));
      });
      rows = ops_.transposed(std::move(rows));
      for (unsigned k = 0; k < width_; ++k) b_.CreateStore(rows[k], tile_address(i, b_.CreateAdd(point, b_.getInt64(k)), first_lane));
    });
    emit_loop(whole, s_.tile_end, b_.getInt64(1), {}, [&](Value* point) {  // too few for a block
      Value* values = llvm::PoisonValue::get(ops_.stored_type(buffer.dtype, width_));
      each_lane(point, first_lane, [&](unsigned k, Value* address) { values = b_.CreateInsertElement(values, ops_.load_stored(buffer.dtype, address, 0), k); });
      b_.CreateStore(values, tile_address(i, point, first_lane));
    });
  }
  lanes_ = lanes;
  dims_[tile] = first_point;
}

// In the block of a tiled load.
Value* NestEmitter::tile_address(InstId i, Value* point, unsigned lane) {
  const DType dtype = kernel_.buffers[nest_.body[i].buffer].dtype;
  Value* row = b_.CreateGEP(ops_.stored_type(dtype, width_ * unroll_), tiles_[i], b_.CreateSub(point, s_.outer.back()));
  return b_.CreateConstGEP1_64(ops_.stored_type(dtype, 0), row, lane);
}

Value* NestEmitter::tile_row(InstId i) {
  const DType dtype = kernel_.buffers[nest_.body[i].buffer].dtype;
  return ops_.from_stored(dtype, b_.CreateLoad(ops_.stored_type(dtype, lanes_), tile_address(i, dims_[kernel_.outer.size() - 1], 0)));
}

}  // namespace framejit::inductor
