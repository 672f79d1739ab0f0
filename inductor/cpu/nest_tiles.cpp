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
    block->setAlignment(llvm::Align(64));
    tiles_[i] = block;
  }
  const size_t tile = kernel_.outer.size() - 1, lane_dim = n_.vector_dim;
  Value* first_point = dims_[tile];
  const unsigned lanes = std::exchange(lanes_, 0);  // addresses are scalars here
  llvm::Type* element = ops_.memory_type(buffer.dtype, 0);
  SymExpr coefficient, rest;
  split_linear(inst.index[0], symbols_.dim(lane_dim), coefficient, rest);
  Value* row_step = eval(coefficient);
  emit_loop(s_.outer.back(), s_.tile_end, b_.getInt64(lanes), {}, [&](Value* point) {
    dims_[tile] = point;
    Value* inside = ops_.first_lanes(b_.CreateSub(s_.tile_end, point), lanes);
    std::vector<Value*> rows;
    Value* const first = b_.CreateGEP(element, s_.buffers[inst.buffer], eval(inst.index[0]));
    for (unsigned k = 0; k < lanes; ++k) {
      Value* active = inside;
      if (mask_ != nullptr) active = b_.CreateAnd(inside, b_.CreateVectorSplat(lanes, b_.CreateExtractElement(mask_, k)));
      rows.push_back(ops_.load_stored(buffer.dtype, b_.CreateGEP(element, first, b_.CreateMul(row_step, b_.getInt64(k))), lanes, active));
    }
    rows = ops_.transposed(std::move(rows));
    Value* at = b_.CreateSub(point, s_.outer.back());
    for (unsigned k = 0; k < lanes; ++k)
      b_.CreateStore(rows[k], b_.CreateGEP(row, tiles_[i], b_.CreateAdd(at, b_.getInt64(k))));
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
