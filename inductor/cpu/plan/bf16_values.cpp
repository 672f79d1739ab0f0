// inductor/cpu/plan/bf16_values.cpp — follows values from loads through bodies, and through scratch from nest to nest.
#include "inductor/cpu/plan/bf16_values.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace framejit::inductor {
namespace {

// Whether the bits of an operand's NaN pass through unchanged. All other ops are assumed to make NaN with any bits.
// These ops are emitted as plain arithmetic. So is exp, except that it builds factors from bits: they are finite or
// infinite, never NaN.
bool hands_on_nan(ScalarOp op) {
  switch (op) {
    case ScalarOp::k_add:
    case ScalarOp::k_sub:
    case ScalarOp::k_mul:
    case ScalarOp::k_div:
    case ScalarOp::k_neg:
    case ScalarOp::k_abs:
    case ScalarOp::k_sqrt:
    case ScalarOp::k_minimum:
    case ScalarOp::k_maximum:
    case ScalarOp::k_select:
    case ScalarOp::k_exp:
      return true;
    // clang-format off
    default: return false;
    // clang-format on
  }
}

// Selects one of its operands, or changes only the sign of one.
bool picks(ScalarOp op) {
  return op == ScalarOp::k_minimum || op == ScalarOp::k_maximum || op == ScalarOp::k_select || op == ScalarOp::k_abs ||
         op == ScalarOp::k_neg;
}

Bf16Rounding of_number(float number) {
  if ((std::bit_cast<uint32_t>(number) & 0xFFFF) == 0) return Bf16Rounding::kExact;
  return std::isnan(number) ? Bf16Rounding::kAny : Bf16Rounding::kShortNan;
}

Bf16Rounding of_inst(const Nest& nest, const LoopInst& inst, const std::vector<Bf16Rounding>& before,
                     const std::vector<KernelBuffer>& buffers, const std::vector<Bf16Rounding>& scratch) {
  const auto least = [&](size_t from) {
    Bf16Rounding r = Bf16Rounding::kExact;
    for (size_t k = from; k < static_cast<size_t>(inst.operand_count()); ++k) r = std::min(r, before[inst.operands[k]]);
    return r;
  };
  const auto handed_on = [&](Bf16Rounding r) { return std::min(r, Bf16Rounding::kShortNan); };
  switch (inst.op) {
    case LoopOp::kLoad: {
      const KernelBuffer& buffer = buffers[inst.buffer];
      const Bf16Rounding r = buffer.dtype == DType::kBFloat16 ? Bf16Rounding::kExact
                             : buffer.is_local                ? scratch[inst.buffer]
                                                              : Bf16Rounding::kAny;
      return inst.is_masked() ? std::min(r, before[inst.operands[1]]) : r;
    }
    case LoopOp::kConstant:
      return is_float(inst.dtype) ? of_number(static_cast<float>(inst.constant.f)) : Bf16Rounding::kAny;
    case LoopOp::kReduce:
    case LoopOp::kScan:
      return inst.reduce == ReduceOp::kMax || inst.reduce == ReduceOp::kMin ? least(0) : handed_on(least(0));
    case LoopOp::kCast:
      return !is_float(nest.body[inst.operands[0]].dtype) ? Bf16Rounding::kShortNan : handed_on(least(0));
    case LoopOp::kScalar: break;
    case LoopOp::kIndex:
    case LoopOp::kStore:
    case LoopOp::kCheck: return Bf16Rounding::kAny;
  }
  if (inst.scalar == ScalarOp::k_round_bf16) return Bf16Rounding::kExact;
  if (!hands_on_nan(inst.scalar) || (inst.scalar == ScalarOp::k_exp && inst.dtype != DType::kFloat32))
    return Bf16Rounding::kAny;
  const Bf16Rounding r = least(inst.scalar == ScalarOp::k_select ? 1 : 0);
  return picks(inst.scalar) ? r : handed_on(r);
}

}  // namespace

Bf16Values bf16_values(const Kernel& kernel) {
  std::vector<Bf16Rounding> scratch(kernel.buffers.size(),
                                    Bf16Rounding::kExact);  // what all stores to it have in common
  Bf16Values values(kernel.nests.size());
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (size_t n = 0; n < kernel.nests.size(); ++n) {
      const Nest& nest = kernel.nests[n].nest;
      values[n].assign(nest.body.size(), Bf16Rounding::kAny);
      for (size_t i = 0; i < nest.body.size(); ++i) {
        const LoopInst& inst = nest.body[i];
        values[n][i] = of_inst(nest, inst, values[n], kernel.buffers, scratch);
        if (inst.op != LoopOp::kStore) continue;
        const Bf16Rounding stored = inst.mode == StoreMode::kJoin ? Bf16Rounding::kAny : values[n][inst.operands[0]];
        if (stored >= scratch[inst.buffer]) continue;
        scratch[inst.buffer] = stored;
        has_changed = true;
      }
    }
  }
  return values;
}

}  // namespace framejit::inductor
