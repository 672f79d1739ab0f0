// inductor/cpu/nest_prefetch.cpp — what is asked of memory before it is needed.
#include <algorithm>

#include "inductor/cpu/nest_emitter.h"
#include "inductor/kernel/loop_shape.h"

namespace framejit::inductor {

using llvm::Value;

namespace {

// In second-level caches: what the hardware's own prefetching leaves to gain.
constexpr int64_t kStreamCaches = 2;  // a stream so large is asked for in advance
constexpr int64_t kRowsCaches = 8;    // rows that are so large together are
constexpr int64_t kPartOfRow = 16;    // of which each is no more than such a part of the cache

}  // namespace

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

// A reduction that does little with what it reads once, row after row: the hardware follows a stream to the end of a
// page only. Sums of float32 keep pace with memory as they are.
bool NestEmitter::reads_a_stream(DType dtype) const {
  constexpr int64_t kHalf = 2;
  if (!is_light_ || kernel_.nests.size() != 1 || !vector_is_reduced() || in_tail_ ||
      (row_of(dtype).bytes > kHalf && !is_search()))
    return false;
  return !has_at_most(target_.caches.second * kStreamCaches / kHalf);
}

// Of a load that is contiguous along the lanes.
void NestEmitter::prefetch_ahead(DType dtype, Value* address) {
  if (reads_a_stream(dtype)) prefetch(dtype, address, SymExpr(costs_.prefetch_ahead / row_of(dtype).bytes));
  if (has_tiles_beyond_caches(kernel_, target_))
    prefetch(dtype, address, SymExpr(costs_.tiles_ahead * static_cast<int64_t>(lanes_)));
}

// A kernel over rows reads the row in its first nest and computes in those behind it, while memory would have nothing
// to do: the second nest over the row asks for the next one.
void NestEmitter::prefetch_next_row() {
  const int64_t beyond_caches = target_.caches.second * kRowsCaches, most_of_a_row = target_.caches.second / kPartOfRow;
  if (kernel_.outer.empty() || kernel_.lanes_outer || order_.size() != 1) return;
  const KernelNest& first = kernel_.nests[0];
  const auto is_over_row = [&](const KernelNest& other) {
    return other.vector_dim == n_.vector_dim && other.nest.extent(other.vector_dim) == nest_.extent(n_.vector_dim);
  };
  const size_t second = static_cast<size_t>(std::find_if(kernel_.nests.begin() + 1, kernel_.nests.end(), is_over_row) -
                                            kernel_.nests.begin());
  if (first.order.size() != 1 || !is_over_row(first) || second == kernel_.nests.size() || &kernel_.nests[second] != &n_)
    return;
  const auto row = nest_.extent(n_.vector_dim).as_constant(), rows = kernel_.outer.back().as_constant();
  if (!row || !rows) return;
  for (const LoopInst& inst : first.nest.body) {
    if (inst.op != LoopOp::kLoad || inst.is_masked() || mentions_values(inst.index[0], symbols_) ||
        kernel_.buffers[inst.buffer].is_local)
      continue;
    const DType dtype = kernel_.buffers[inst.buffer].dtype;
    const int64_t bytes = *row * row_of(dtype).bytes;
    SymExpr step, rest;
    if (bytes > most_of_a_row || bytes * *rows < beyond_caches ||
        !split_linear(inst.index[0], symbols_.dim(kernel_.outer.size() - 1), step, rest))
      continue;
    if (step.as_constant().value_or(0) < *row) continue;
    const Address a = address_of(inst);
    if (a.has_lanes && a.offsets == nullptr) prefetch(dtype, a.base, step);
  }
}

}  // namespace framejit::inductor
