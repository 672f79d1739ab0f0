#include "inductor/cpu/nest_prefetch.h"

namespace framejit::inductor {

using llvm::Value;

void Prefetches::bytes(Value* address, uint64_t count) {
  constexpr unsigned kForReading = 0, kAllCaches = 3, kData = 1;
  for (uint64_t byte = 0; byte < count; byte += static_cast<uint64_t>(target_.caches.line))
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                       {b_.CreateConstGEP1_64(b_.getInt8Ty(), address, byte), b_.getInt32(kForReading),
                        b_.getInt32(kAllCaches), b_.getInt32(kData)});
}

// Prefetches the lanes that lie this many elements after the address.
void Prefetches::lanes(DType dtype, Value* address, const SymExpr& elements) {
  bytes(b_.CreateGEP(ops_.memory_type(dtype, 0), address, indices_.eval(elements)),
        lanes_ * static_cast<uint64_t>(row_of(dtype).bytes));
}

void Prefetches::ahead(InstId i, Value* address) {
  const DType dtype = kernel_.buffers[nest_.body[i].buffer].dtype;
  if (plan_.insts[i].elements_ahead != 0 && !in_tail_) lanes(dtype, address, plan_.insts[i].elements_ahead);
  if (s_.plan.tiles.lanes_ahead != 0)
    lanes(dtype, address, SymExpr(s_.plan.tiles.lanes_ahead * static_cast<int64_t>(lanes_)));
}

void Prefetches::next_row() {
  for (const RowAhead& row : plan_.rows_ahead) {
    const LoopInst& load = kernel_.nests[0].nest.body[row.load];
    lanes(kernel_.buffers[load.buffer].dtype, indices_.address(load, Access::kContiguous).base, row.elements);
  }
}

}  // namespace framejit::inductor
