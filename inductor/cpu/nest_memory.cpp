#include "inductor/cpu/nest_memory.h"

namespace framejit::inductor {

using llvm::Value;

// The value at the address, in the lanes of the mask (null: all).
Value* Memory::loaded(InstId i, Value* mask) {
  const LoopInst& inst = nest_.body[i];
  const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
  const Access access = plan_.insts[i].access;
  const Indices::Address a = indices_.address(inst, access);
  if (access == Access::kScattered)
    return ops_.gather(buffer.dtype, a.base, a.offsets, mask != nullptr ? mask : all_lanes());
  if (access == Access::kContiguous) prefetches_.ahead(i, a.base);
  if (access == Access::kContiguous && is_split()) return load_split(inst, a.base);
  return ops_.load(buffer.dtype, a.base, access == Access::kOne ? 0 : lanes_, mask, !buffer.is_written);
}

void Memory::load(InstId i) {
  if (nest_.body[i].is_masked()) values_[i] = masks_.load(i, [&](Value* mask) { return loaded(i, mask); });
  else values_[i] = plan_.insts[i].access == Access::kTile ? tiles_.row(i) : loaded(i, mask_);
}

void Memory::store(InstId i) {
  const LoopInst& inst = nest_.body[i];
  const DType dtype = kernel_.buffers[inst.buffer].dtype;
  const Access access = plan_.insts[i].access;
  const Indices::Address a = indices_.address(inst, access);
  Value* value = values_[inst.operands[0]];
  const bool joins = inst.mode == StoreMode::kJoin;
  const Bf16Rounding rounding = joins ? Bf16Rounding::kAny : plan_.insts[inst.operands[0]].bf16;
  const auto joined = [&](Value* old) { return ops_.combine(inst.reduce, operand_dtype(inst), old, value); };
  const auto active = [&] { return mask_ != nullptr ? mask_ : all_lanes(); };
  if (access != Access::kOne) value = ops_.splat(value, lanes_);
  if (access == Access::kScattered) {
    if (joins) value = joined(ops_.gather(dtype, a.base, a.offsets, active()));
    ops_.scatter(dtype, a.base, a.offsets, value, active());
  } else if (access != Access::kOne && is_split()) {
    store_split(inst, a.base, value, rounding);
  } else if (access != Access::kOne) {
    if (joins) value = joined(ops_.load(dtype, a.base, lanes_, mask_, false));
    ops_.store(dtype, a.base, value, mask_, rounding);
  } else {  // all lanes go to one place, which has one element
    if (LaneOps::lanes_of(value) != 0) value = b_.CreateExtractElement(value, uint64_t{0});
    if (joins) value = joined(ops_.load(dtype, a.base, 0, nullptr, false));
    ops_.store(dtype, a.base, value, nullptr, rounding);
  }
}

Value* Memory::load_split(const LoopInst& inst, Value* address) {
  const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
  if (buffer.dtype == DType::kBFloat16) return ops_.load_split(address, lanes_, !buffer.is_written);
  Value* values = ops_.load(buffer.dtype, address, lanes_, nullptr, !buffer.is_written);
  return s_.plan.split_scratch[inst.buffer] ? values : ops_.split_lanes(values);
}

void Memory::store_split(const LoopInst& inst, Value* address, Value* value, Bf16Rounding rounding) {
  const DType dtype = kernel_.buffers[inst.buffer].dtype;
  if (dtype == DType::kBFloat16) return ops_.store_split(address, value, rounding);
  ops_.store(dtype, address, s_.plan.split_scratch[inst.buffer] ? value : ops_.ordered_lanes(value), nullptr, rounding);
}

Value* Memory::all_lanes() {
  return llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), lanes_));
}

}  // namespace framejit::inductor
