// inductor/cpu/nest_lane_order.cpp — lanes of the main loop that are not side by side in memory.
//
// A register of bfloat16 holds two lanes in every 32 bits. Shifted left it is the even lanes as float32, with the lower
// half cleared the odd ones: two instructions where to widen in order takes four, and as much is saved where both are
// put together again. So a main loop whose memory is all bfloat16, or scratch of such loops, holds its even lanes first
// and then the odd ones. Whatever else goes to memory, or asks which lane it is, is put in order; nests that do so in
// their innermost loop stay in order.
#include <algorithm>

#include "inductor/cpu/nest_emitter.h"
#include "inductor/kernel/loop_shape.h"

namespace framejit::inductor {

using llvm::Value;

bool NestEmitter::wants_split_lanes() const {
  if (!has_vector() || kernel_.lanes_outer || kernel_.in_tiles || is_ordered(nest_) || main_lanes() % (2 * width_) != 0)
    return false;
  bool has_split = false;
  for (size_t i = 0; i < nest_.body.size(); ++i) {
    const LoopInst& inst = nest_.body[i];
    if (inst.op == LoopOp::kCheck || inst.is_masked()) return false;
    if (inst.index.empty()) continue;
    std::vector<graph::SymbolId> ids;
    inst.index[0].collect_symbols(ids);
    if (std::any_of(ids.begin(), ids.end(), [&](graph::SymbolId id) { return symbols_.is_value(id); })) return false;
    if (std::none_of(ids.begin(), ids.end(),
                     [&](graph::SymbolId id) { return symbols_.is_dim(id) && symbols_.dim_of(id) == n_.vector_dim; }))
      continue;
    if (inst.op == LoopOp::kIndex || !is_contiguous(inst) ||
        (inst.op == LoopOp::kStore && inst.mode != StoreMode::kPlain))
      return false;
    const bool is_half = kernel_.buffers[inst.buffer].dtype == DType::kBFloat16;
    if (!is_half && level_[i] == order_.size() && !s_.split_scratch[inst.buffer]) return false;
    has_split |= is_half;
  }
  return has_split;
}

std::optional<NestEmitter::MainLoop> NestEmitter::split_walk(const LoopInst& inst) const {
  if (!splits_lanes_ || inst.is_masked() || inst.mode != StoreMode::kPlain ||
      !(inst.index[0] == symbols_.dim(n_.vector_dim)))
    return std::nullopt;
  const auto extent = nest_.extent(n_.vector_dim).as_constant();
  const int64_t wide = width_ * unroll_;
  if (!extent) return std::nullopt;
  return MainLoop{main_lanes(), has_main_loop(extent) ? *extent / wide * wide : 0};
}

// All that touch it walk all of it, by main loops that end at the same place.
void choose_split_scratch(FunctionState& s, const Kernel& kernel, const EmitOptions& options) {
  const auto may_split = [](const KernelBuffer& b) {
    return b.is_local && b.local_elements > 1 && b.dtype != DType::kBFloat16;
  };
  if (kernel.lanes_outer || std::none_of(kernel.buffers.begin(), kernel.buffers.end(), may_split)) return;
  std::transform(kernel.buffers.begin(), kernel.buffers.end(), s.split_scratch.begin(), may_split);
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    std::vector<std::optional<NestEmitter::MainLoop>> walks(kernel.buffers.size());
    for (const KernelNest& n : kernel.nests) {
      const NestEmitter nest(s, kernel, n, options);
      for (const LoopInst& inst : n.nest.body) {
        if (!is_address(inst) || !s.split_scratch[inst.buffer]) continue;
        const auto walk = nest.split_walk(inst);
        auto& known = walks[inst.buffer];
        if (walk && (!known || *known == *walk)) {
          known = walk;
        } else {
          s.split_scratch[inst.buffer] = false;
          has_changed = true;
        }
      }
    }
  }
}

Value* NestEmitter::load_split(const LoopInst& inst, Value* address) {
  const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
  if (buffer.dtype == DType::kBFloat16) return ops_.load_split(address, lanes_, !buffer.is_written);
  Value* values = ops_.load(buffer.dtype, address, lanes_, nullptr, !buffer.is_written);
  return s_.split_scratch[inst.buffer] ? values : ops_.split_lanes(values);
}

void NestEmitter::store_split(const LoopInst& inst, Value* address, Value* value, Bf16Rounding rounding) {
  const DType dtype = kernel_.buffers[inst.buffer].dtype;
  if (dtype == DType::kBFloat16) return ops_.store_split(address, value, rounding);
  ops_.store(dtype, address, s_.split_scratch[inst.buffer] ? value : ops_.ordered_lanes(value), nullptr, rounding);
}

}  // namespace framejit::inductor
