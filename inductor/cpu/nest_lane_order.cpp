// inductor/cpu/nest_lane_order.cpp — loads and stores of lanes that are not side by side (plan/lane_order.cpp).
#include "inductor/cpu/nest_emitter.h"

namespace framejit::inductor {

using llvm::Value;

Value* NestEmitter::load_split(const LoopInst& inst, Value* address) {
  const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
  if (buffer.dtype == DType::kBFloat16) return ops_.load_split(address, lanes_, !buffer.is_written);
  Value* values = ops_.load(buffer.dtype, address, lanes_, nullptr, !buffer.is_written);
  return s_.plan.split_scratch[inst.buffer] ? values : ops_.split_lanes(values);
}

void NestEmitter::store_split(const LoopInst& inst, Value* address, Value* value, Bf16Rounding rounding) {
  const DType dtype = kernel_.buffers[inst.buffer].dtype;
  if (dtype == DType::kBFloat16) return ops_.store_split(address, value, rounding);
  ops_.store(dtype, address, s_.plan.split_scratch[inst.buffer] ? value : ops_.ordered_lanes(value), nullptr, rounding);
}

}  // namespace framejit::inductor
