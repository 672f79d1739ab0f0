// inductor/cpu/nest_prefetch.cpp — what is asked of memory before it is needed (plan/prefetches.cpp).
#include "inductor/cpu/nest_emitter.h"

namespace framejit::inductor {

using llvm::Value;

void NestEmitter::prefetch(Value* address, uint64_t bytes) {
  constexpr unsigned kForReading = 0, kAllCaches = 3, kData = 1;
  for (uint64_t byte = 0; byte < bytes; byte += static_cast<uint64_t>(target_.caches.line))
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                       {b_.CreateConstGEP1_64(b_.getInt8Ty(), address, byte), b_.getInt32(kForReading),
                        b_.getInt32(kAllCaches), b_.getInt32(kData)});
}

// Of the lanes that are so many elements behind the address.
void NestEmitter::prefetch(DType dtype, Value* address, const SymExpr& elements) {
  prefetch(b_.CreateGEP(ops_.memory_type(dtype, 0), address, eval(elements)),
           lanes_ * static_cast<uint64_t>(row_of(dtype).bytes));
}

// Of a load whose lanes are side by side.
void NestEmitter::prefetch_ahead(InstId i, Value* address) {
  const DType dtype = kernel_.buffers[nest_.body[i].buffer].dtype;
  if (plan_.insts[i].elements_ahead != 0 && !in_tail_) prefetch(dtype, address, plan_.insts[i].elements_ahead);
  if (s_.plan.tiles.lanes_ahead != 0)
    prefetch(dtype, address, SymExpr(s_.plan.tiles.lanes_ahead * static_cast<int64_t>(lanes_)));
}

void NestEmitter::prefetch_next_row() {
  for (const RowAhead& row : plan_.rows_ahead) {
    const LoopInst& load = kernel_.nests[0].nest.body[row.load];
    prefetch(kernel_.buffers[load.buffer].dtype, address_of(load, Access::kContiguous).base, row.elements);
  }
}

}  // namespace framejit::inductor
