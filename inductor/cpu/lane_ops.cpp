// inductor/cpu/lane_ops.cpp — one LLVM instruction or a few per operation; the same code for scalars and vectors.
#include "inductor/cpu/lane_ops.h"

#include <bit>
#include <cmath>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>

#include "inductor/cpu/vector_math.h"

namespace framejit::inductor {

using llvm::Type;
using llvm::Value;

namespace {

Type* with_lanes(Type* scalar, unsigned lanes) {
  return lanes == 0 ? scalar : llvm::FixedVectorType::get(scalar, lanes);
}
bool is_signed(DType d) { return row_of(d).kind == DTypeKind::signed_kind; }
unsigned bits_of(DType d) { return d == DType::kBool ? 1 : static_cast<unsigned>(8 * row_of(d).bytes); }

}  // namespace

// A vector of `lanes` lanes: lane k is lane(k) of a and b taken together.
Value* LaneOps::shuffled(Value* a, Value* b, unsigned lanes, llvm::function_ref<unsigned(unsigned k)> lane) {
  std::vector<int> mask;
  for (unsigned k = 0; k < lanes; ++k) mask.push_back(static_cast<int>(lane(k)));
  return b_.CreateShuffleVector(a, b, mask);
}

void LaneOps::set_invariant(llvm::Instruction* load) {
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b_.getContext(), {}));
}

unsigned LaneOps::lanes_of(Value* value) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector == nullptr ? 0 : vector->getNumElements();
}

Type* LaneOps::value_type(DType dtype, unsigned lanes) const {
  if (dtype == DType::kFloat32) return with_lanes(b_.getFloatTy(), lanes);
  if (dtype == DType::kFloat64) return with_lanes(b_.getDoubleTy(), lanes);
  return with_lanes(b_.getIntNTy(bits_of(dtype)), lanes);
}

Type* LaneOps::memory_type(DType dtype, unsigned lanes) const {
  if (dtype == DType::kFloat16) return with_lanes(b_.getHalfTy(), lanes);
  if (dtype == DType::kBFloat16) return with_lanes(b_.getInt16Ty(), lanes);
  if (dtype == DType::kBool) return with_lanes(b_.getInt8Ty(), lanes);
  return value_type(dtype, lanes);
}

Value* LaneOps::splat(Value* value, unsigned lanes) {
  if (lanes == 0 || lanes_of(value) != 0) return value;
  return b_.CreateVectorSplat(lanes, value);
}

Value* LaneOps::constant(DType dtype, graph::ScalarValue value) {
  if (is_float(dtype)) return llvm::ConstantFP::get(value_type(dtype, 0), value.f);
  return llvm::ConstantInt::get(llvm::cast<llvm::IntegerType>(value_type(dtype, 0)),
                                static_cast<uint64_t>(value.i) & (~uint64_t{0} >> (64 - bits_of(dtype))));
}

Value* LaneOps::iota(unsigned lanes) {
  std::vector<llvm::Constant*> values;
  for (unsigned k = 0; k < lanes; ++k) values.push_back(b_.getInt64(k));
  return llvm::ConstantVector::get(values);
}

// Compared in 32 bits: half as many registers as iota's 64.
Value* LaneOps::lane_numbers(unsigned lanes) {
  std::vector<llvm::Constant*> numbers;
  for (unsigned k = 0; k < lanes; ++k) numbers.push_back(b_.getInt32(k));
  return llvm::ConstantVector::get(numbers);
}

Value* LaneOps::first_lanes(Value* count, unsigned lanes) {
  Value* bounded = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, count, b_.getInt64(lanes));
  return b_.CreateICmpSLT(lane_numbers(lanes), b_.CreateVectorSplat(lanes, b_.CreateTrunc(bounded, b_.getInt32Ty())));
}

// The bits of a float32 whose upper half is the nearest bfloat16; the lower half is garbage.
// Computed with integers on every CPU: vcvtneps2bf16 (AVX512-BF16) treats denormals as zero, whatever MXCSR says, but
// eager keeps them. Testing for such lanes first would lose most of the seven instructions that it saves, in kernels
// that wait for memory. LLVM uses it for fptrunc to bfloat, so no such type is emitted.
Value* LaneOps::rounded_bits(Value* value, Bf16Rounding rounding) {
  Type* wide = with_lanes(b_.getInt32Ty(), lanes_of(value));
  const auto c = [&](uint64_t v) { return llvm::ConstantInt::get(wide, v); };
  Value* bits = b_.CreateBitCast(value, wide);
  if (rounding == Bf16Rounding::kExact) return bits;
  Value* odd = b_.CreateAnd(b_.CreateLShr(bits, c(16)), c(1));
  Value* rounded = b_.CreateAdd(b_.CreateAdd(bits, c(0x7FFF)), odd);
  return rounding == Bf16Rounding::kShortNan ? rounded
                                             : b_.CreateSelect(b_.CreateFCmpUNO(value, value), c(0x7FC00000), rounded);
}

Value* LaneOps::round_bf16(Value* value, Bf16Rounding rounding) {
  Value* bits = rounded_bits(value, rounding);
  return b_.CreateBitCast(b_.CreateAnd(bits, llvm::ConstantInt::get(bits->getType(), 0xFFFF0000)), value->getType());
}

// The CPU converts float16 (F16C, AVX-512), exactly in both directions, denormals included. Nothing is computed in
// float16 (AVX512-FP16): eager rounds once per op, from float32, and a kernel must not round more often.
Value* LaneOps::to_value(DType dtype, Value* memory) {
  const unsigned lanes = lanes_of(memory);
  if (dtype == DType::kBool) return b_.CreateICmpNE(memory, llvm::Constant::getNullValue(memory->getType()));
  if (dtype == DType::kFloat16) return b_.CreateFPExt(memory, with_lanes(b_.getFloatTy(), lanes));
  if (dtype != DType::kBFloat16) return memory;
  Type* wide = with_lanes(b_.getInt32Ty(), lanes);
  Value* bits = b_.CreateShl(b_.CreateZExt(memory, wide), llvm::ConstantInt::get(wide, 16));
  return b_.CreateBitCast(bits, with_lanes(b_.getFloatTy(), lanes));
}

Value* LaneOps::to_memory(DType dtype, Value* value, Bf16Rounding rounding) {
  if (dtype == DType::kBool) return b_.CreateZExt(value, memory_type(dtype, lanes_of(value)));
  if (dtype == DType::kFloat16) return b_.CreateFPTrunc(value, memory_type(dtype, lanes_of(value)));
  if (dtype != DType::kBFloat16) return value;
  Value* bits = rounded_bits(value, rounding);
  return b_.CreateTrunc(b_.CreateLShr(bits, llvm::ConstantInt::get(bits->getType(), 16)),
                        memory_type(dtype, lanes_of(value)));
}

Type* LaneOps::stored_type(DType dtype, unsigned lanes) const {
  return dtype == DType::kBool ? memory_type(dtype, lanes) : value_type(value_dtype(dtype), lanes);
}

Value* LaneOps::load_stored(DType dtype, Value* address, unsigned lanes) {
  Value* memory =
      b_.CreateAlignedLoad(memory_type(dtype, lanes), address, llvm::Align(static_cast<uint64_t>(row_of(dtype).bytes)));
  return dtype == DType::kBool ? memory : to_value(dtype, memory);
}

Value* LaneOps::from_stored(DType dtype, Value* stored) {
  return dtype == DType::kBool ? to_value(dtype, stored) : stored;
}

// First within groups of 128 bits, by interleaving elements; then the groups, by taking the even and the odd ones of a
// pair. Both are one instruction each in every register size.
std::vector<Value*> LaneOps::transposed(std::vector<Value*> rows) {
  const unsigned lanes = lanes_of(rows[0]), bits = rows[0]->getType()->getScalarSizeInBits();
  const unsigned group = std::min(lanes, std::max(128 / bits, 1u)), groups = lanes / group;
  const auto shuffle = [&](Value* a, Value* b, auto lane) { return shuffled(a, b, lanes, lane); };
  const auto interleaved = [&](Value* a, Value* b, unsigned half) {
    return shuffle(
        a, b, [&](unsigned k) { return k / group * group + half * (group / 2) + k % group / 2 + (k % 2) * lanes; });
  };
  for (unsigned stage = 1; stage < group; stage *= 2)
    for (unsigned g = 0; g < groups; ++g) {
      std::vector<Value*> next;
      for (unsigned k = 0; k < group / 2; ++k)
        for (unsigned half : {0u, 1u})
          next.push_back(interleaved(rows[g * group + k], rows[g * group + k + group / 2], half));
      std::copy(next.begin(), next.end(), rows.begin() + g * group);
    }
  const auto every_other = [&](Value* a, Value* b, unsigned odd) {
    return shuffle(a, b, [&](unsigned k) {
      const unsigned from = 2 * (k / group) + odd;  // group of a, then of b
      return from % groups * group + k % group + from / groups * lanes;
    });
  };
  std::vector<Value*> columns(lanes);
  const auto place = [&](auto self, std::vector<Value*> list, unsigned at, unsigned step, unsigned column) -> void {
    if (list.size() == 1) {
      columns[at * group + column] = list[0];
      return;
    }
    for (unsigned odd : {0u, 1u}) {
      std::vector<Value*> next;
      for (size_t k = 0; k < list.size(); k += 2) next.push_back(every_other(list[k], list[k + 1], odd));
      self(self, std::move(next), at + odd * step, 2 * step, column);
    }
  };
  for (unsigned column = 0; column < group; ++column) {
    std::vector<Value*> list;
    for (unsigned g = 0; g < groups; ++g) list.push_back(rows[g * group + column]);
    place(place, std::move(list), 0, 1, column);
  }
  return columns;
}

Value* LaneOps::load(DType dtype, Value* address, unsigned lanes, Value* mask, bool is_invariant) {
  const llvm::Align align(static_cast<uint64_t>(row_of(dtype).bytes));
  Type* type = memory_type(dtype, lanes);
  llvm::Instruction* load = nullptr;
  if (mask == nullptr || lanes == 0) {
    load = b_.CreateAlignedLoad(type, address, align);
  } else {
    load = b_.CreateMaskedLoad(type, address, align, mask, llvm::Constant::getNullValue(type));
  }
  if (is_invariant) set_invariant(load);
  return to_value(dtype, load);
}

Value* LaneOps::load_split(Value* address, unsigned lanes, bool is_invariant) {
  llvm::Instruction* load = b_.CreateAlignedLoad(memory_type(DType::kBFloat16, lanes), address, llvm::Align(2));
  if (is_invariant) set_invariant(load);
  Type* pairs = with_lanes(b_.getInt32Ty(), lanes / 2);
  Type* half = with_lanes(b_.getFloatTy(), lanes / 2);
  Value* bits = b_.CreateBitCast(load, pairs);
  Value* even = b_.CreateBitCast(b_.CreateShl(bits, llvm::ConstantInt::get(pairs, 16)), half);
  Value* odd = b_.CreateBitCast(b_.CreateAnd(bits, llvm::ConstantInt::get(pairs, 0xFFFF0000)), half);
  return shuffled(even, odd, lanes, [](unsigned k) { return k; });
}

// In each pair, the lower half is the upper half of the even lane.
void LaneOps::store_split(Value* address, Value* value, Bf16Rounding rounding) {
  const unsigned lanes = lanes_of(value), half = lanes / 2;
  Value* bits = rounded_bits(value, rounding);
  Value* even = shuffled(bits, bits, half, [](unsigned k) { return k; });
  Value* odd = shuffled(bits, bits, half, [&](unsigned k) { return k + half; });
  Type* memory = memory_type(DType::kBFloat16, lanes);
  Value* low = b_.CreateBitCast(b_.CreateLShr(even, llvm::ConstantInt::get(even->getType(), 16)), memory);
  Value* pairs =
      shuffled(low, b_.CreateBitCast(odd, memory), lanes, [&](unsigned k) { return k % 2 == 0 ? k : k + lanes; });
  b_.CreateAlignedStore(pairs, address, llvm::Align(2));
}

Value* LaneOps::split_lanes(Value* value) {
  const unsigned lanes = lanes_of(value);
  return lanes == 0
             ? value
             : shuffled(value, value, lanes, [&](unsigned k) { return k < lanes / 2 ? 2 * k : 2 * k + 1 - lanes; });
}

Value* LaneOps::ordered_lanes(Value* value) {
  const unsigned lanes = lanes_of(value);
  return lanes == 0 ? value : shuffled(value, value, lanes, [&](unsigned k) { return k / 2 + k % 2 * (lanes / 2); });
}

void LaneOps::store(DType dtype, Value* address, Value* value, Value* mask, Bf16Rounding rounding) {
  const llvm::Align align(static_cast<uint64_t>(row_of(dtype).bytes));
  Value* memory = to_memory(dtype, value, rounding);
  if (mask == nullptr || lanes_of(value) == 0) {
    b_.CreateAlignedStore(memory, address, align);
  } else {
    b_.CreateMaskedStore(memory, address, align, mask);
  }
}

Value* LaneOps::gather(DType dtype, Value* base, Value* offsets, Value* mask) {
  const unsigned lanes = lanes_of(offsets);
  Type* type = memory_type(dtype, lanes);
  Value* addresses = b_.CreateGEP(memory_type(dtype, 0), base, offsets);
  const llvm::Align align(static_cast<uint64_t>(row_of(dtype).bytes));
  return to_value(dtype, b_.CreateMaskedGather(type, addresses, align, mask, llvm::Constant::getNullValue(type)));
}

void LaneOps::scatter(DType dtype, Value* base, Value* offsets, Value* value, Value* mask) {
  Value* addresses = b_.CreateGEP(memory_type(dtype, 0), base, offsets);
  b_.CreateMaskedScatter(to_memory(dtype, value), addresses, llvm::Align(static_cast<uint64_t>(row_of(dtype).bytes)),
                         mask);
}

Value* LaneOps::cast(Value* v, DType from, DType to) {
  if (from == to) return v;
  const unsigned lanes = lanes_of(v);
  Type* type = value_type(to, lanes);
  Value* zero = llvm::Constant::getNullValue(v->getType());
  if (to == DType::kBool) return is_float(from) ? b_.CreateFCmpUNE(v, zero) : b_.CreateICmpNE(v, zero);
  if (is_float(from) && is_float(to))
    return to == DType::kFloat64 ? b_.CreateFPExt(v, type) : b_.CreateFPTrunc(v, type);
  if (is_float(to)) return is_signed(from) ? b_.CreateSIToFP(v, type) : b_.CreateUIToFP(v, type);
  if (is_float(from)) {  // small integers through a wider one, so that values that do not fit wrap as in C++
    const DType wide = to == DType::kInt64 ? DType::kInt64 : DType::kInt32;
    return b_.CreateTrunc(b_.CreateFPToSI(v, value_type(wide, lanes)), type);
  }
  if (bits_of(to) <= bits_of(from)) return b_.CreateTrunc(v, type);
  return is_signed(from) ? b_.CreateSExt(v, type) : b_.CreateZExt(v, type);
}

// A NaN in either operand wins.
Value* LaneOps::larger(Value* a, Value* b, bool max) {
  Value* better = max ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b);
  Value* picked = b_.CreateSelect(better, a, b);
  if (auto* c = llvm::dyn_cast<llvm::Constant>(b); c != nullptr) {
    llvm::Constant* one = c->getType()->isVectorTy() ? c->getSplatValue() : c;
    auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(one);
    // Against a constant, only a can be NaN: one comparison, false for NaN, keeps it.
    if (number != nullptr && !number->isNaN())
      return b_.CreateSelect(max ? b_.CreateFCmpOLE(a, b) : b_.CreateFCmpOGE(a, b), b, a);
  }
  return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, picked);
}

Value* LaneOps::scalar_op(ScalarOp op, DType dtype, std::span<Value* const> v) {
  if (op == ScalarOp::k_select) return b_.CreateSelect(v[0], v[1], v[2]);
  return is_float(dtype) ? float_op(op, dtype, v) : int_op(op, dtype, v);
}

Value* LaneOps::float_op(ScalarOp op, DType, std::span<Value* const> v) {
  Type* type = v[0]->getType();
  const auto c = [&](double x) { return llvm::ConstantFP::get(type, x); };
  const auto unary = [&](llvm::Intrinsic::ID id) { return b_.CreateUnaryIntrinsic(id, v[0]); };
  switch (op) {
    case ScalarOp::k_add: return b_.CreateFAdd(v[0], v[1]);
    case ScalarOp::k_sub: return b_.CreateFSub(v[0], v[1]);
    case ScalarOp::k_mul: return b_.CreateFMul(v[0], v[1]);
    case ScalarOp::k_div: return b_.CreateFDiv(v[0], v[1]);
    case ScalarOp::k_trunc_div: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, b_.CreateFDiv(v[0], v[1]));
    case ScalarOp::k_neg: return b_.CreateFNeg(v[0]);
    case ScalarOp::k_abs: return unary(llvm::Intrinsic::fabs);
    case ScalarOp::k_sqrt: return unary(llvm::Intrinsic::sqrt);
    case ScalarOp::k_floor: return unary(llvm::Intrinsic::floor);
    case ScalarOp::k_ceil: return unary(llvm::Intrinsic::ceil);
    case ScalarOp::k_trunc: return unary(llvm::Intrinsic::trunc);
    case ScalarOp::k_round: return unary(llvm::Intrinsic::nearbyint);
    case ScalarOp::k_copysign: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, v[0], v[1]);
    case ScalarOp::k_minimum: return larger(v[0], v[1], false);
    case ScalarOp::k_maximum: return larger(v[0], v[1], true);
    case ScalarOp::k_eq: return b_.CreateFCmpOEQ(v[0], v[1]);
    case ScalarOp::k_ne: return b_.CreateFCmpUNE(v[0], v[1]);
    case ScalarOp::k_lt: return b_.CreateFCmpOLT(v[0], v[1]);
    case ScalarOp::k_le: return b_.CreateFCmpOLE(v[0], v[1]);
    case ScalarOp::k_gt: return b_.CreateFCmpOGT(v[0], v[1]);
    case ScalarOp::k_ge: return b_.CreateFCmpOGE(v[0], v[1]);
    case ScalarOp::k_round_bf16: return round_bf16(v[0], Bf16Rounding::kAny);
    case ScalarOp::k_round_f16: return to_value(DType::kFloat16, to_memory(DType::kFloat16, v[0]));
    case ScalarOp::k_sign: {
      Value* positive = b_.CreateSelect(b_.CreateFCmpOGT(v[0], c(0)), c(1), c(0));
      return b_.CreateSelect(b_.CreateFCmpOLT(v[0], c(0)), c(-1), positive);
    }
    case ScalarOp::k_fmod:
    case ScalarOp::k_rem:
    case ScalarOp::k_floor_div: break;
    // clang-format off
    default: return emit_math(b_, module_, has_avx512_, op, v[0], v.size() > 1 ? v[1] : nullptr);
    // clang-format on
  }
  Value* r = emit_math(b_, module_, has_avx512_, ScalarOp::k_fmod, v[0], v[1]);
  if (op == ScalarOp::k_fmod) return r;
  Value* differs =
      b_.CreateAnd(b_.CreateFCmpUNE(r, c(0)), b_.CreateXor(b_.CreateFCmpOLT(r, c(0)), b_.CreateFCmpOLT(v[1], c(0))));
  if (op == ScalarOp::k_rem) return b_.CreateSelect(differs, b_.CreateFAdd(r, v[1]), r);
  Value* q = b_.CreateFDiv(b_.CreateFSub(v[0], r), v[1]);
  q = b_.CreateSelect(differs, b_.CreateFSub(q, c(1)), q);
  Value* floor = b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, q);
  floor = b_.CreateSelect(b_.CreateFCmpOGT(b_.CreateFSub(q, floor), c(0.5)), b_.CreateFAdd(floor, c(1)), floor);
  Value* plain = b_.CreateFDiv(v[0], v[1]);
  floor = b_.CreateSelect(b_.CreateFCmpOEQ(q, c(0)), b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, c(0), plain),
                          floor);
  return b_.CreateSelect(b_.CreateFCmpOEQ(v[1], c(0)), plain, floor);
}

Value* LaneOps::int_op(ScalarOp op, DType dtype, std::span<Value* const> v) {
  Type* type = v[0]->getType();
  const bool is_signed_type = is_signed(dtype);
  const auto c = [&](int64_t x) { return llvm::ConstantInt::getSigned(type, x); };
  const auto compare = [&](llvm::CmpInst::Predicate s, llvm::CmpInst::Predicate u) {
    return b_.CreateICmp(is_signed_type ? s : u, v[0], v[1]);
  };
  using P = llvm::CmpInst;
  switch (op) {
    case ScalarOp::k_add: return b_.CreateAdd(v[0], v[1]);
    case ScalarOp::k_sub: return b_.CreateSub(v[0], v[1]);
    case ScalarOp::k_mul: return b_.CreateMul(v[0], v[1]);
    case ScalarOp::k_neg: return b_.CreateNeg(v[0]);
    case ScalarOp::k_abs:
      return is_signed_type ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, v[0], b_.getFalse()) : v[0];
    case ScalarOp::k_sign: {
      Value* nonzero = b_.CreateZExt(b_.CreateICmpNE(v[0], c(0)), type);
      return is_signed_type ? b_.CreateSelect(b_.CreateICmpSLT(v[0], c(0)), c(-1), nonzero) : nonzero;
    }
    case ScalarOp::k_minimum: return b_.CreateSelect(compare(P::ICMP_SLT, P::ICMP_ULT), v[0], v[1]);
    case ScalarOp::k_maximum: return b_.CreateSelect(compare(P::ICMP_SGT, P::ICMP_UGT), v[0], v[1]);
    case ScalarOp::k_floor: case ScalarOp::k_ceil: case ScalarOp::k_trunc: case ScalarOp::k_round: return v[0];
    case ScalarOp::k_bit_and: return b_.CreateAnd(v[0], v[1]);
    case ScalarOp::k_bit_or: return b_.CreateOr(v[0], v[1]);
    case ScalarOp::k_bit_xor: return b_.CreateXor(v[0], v[1]);
    case ScalarOp::k_bit_not: return b_.CreateNot(v[0]);
    case ScalarOp::k_eq: return b_.CreateICmpEQ(v[0], v[1]);
    case ScalarOp::k_ne: return b_.CreateICmpNE(v[0], v[1]);
    case ScalarOp::k_lt: return compare(P::ICMP_SLT, P::ICMP_ULT);
    case ScalarOp::k_le: return compare(P::ICMP_SLE, P::ICMP_ULE);
    case ScalarOp::k_gt: return compare(P::ICMP_SGT, P::ICMP_UGT);
    case ScalarOp::k_ge: return compare(P::ICMP_SGE, P::ICMP_UGE);
    case ScalarOp::k_shl:
    case ScalarOp::k_shr: {
      Value* width = c(bits_of(dtype));
      Value* outside = b_.CreateICmpUGE(v[1], width);
      if (op == ScalarOp::k_shl)
        return b_.CreateSelect(outside, c(0), b_.CreateShl(v[0], b_.CreateSelect(outside, c(0), v[1])));
      Value* by = b_.CreateSelect(outside, c(bits_of(dtype) - 1), v[1]);
      return is_signed_type ? b_.CreateAShr(v[0], by) : b_.CreateLShr(v[0], by);
    }
    case ScalarOp::k_trunc_div:
    case ScalarOp::k_floor_div:
    case ScalarOp::k_fmod:
    case ScalarOp::k_rem: break;
    // clang-format off
    default: FJ_ASSERT(false, std::string("no integer form of ") + graph::row_of(op).name);
    // clang-format on
  }
  if (!is_signed_type)
    return op == ScalarOp::k_trunc_div || op == ScalarOp::k_floor_div ? b_.CreateUDiv(v[0], v[1])
                                                                      : b_.CreateURem(v[0], v[1]);
  // The smallest integer over -1 would trap: divide by 1 there, and negate.
  Value* minus_one = b_.CreateICmpEQ(v[1], c(-1));
  Value* divisor = b_.CreateSelect(minus_one, c(1), v[1]);
  Value* q = b_.CreateSDiv(v[0], divisor);
  Value* r = b_.CreateSub(v[0], b_.CreateMul(q, divisor));
  q = b_.CreateSelect(minus_one, b_.CreateNeg(v[0]), q);
  if (op == ScalarOp::k_trunc_div) return q;
  if (op == ScalarOp::k_fmod) return r;
  Value* differs = b_.CreateAnd(b_.CreateICmpNE(r, c(0)), b_.CreateICmpSLT(b_.CreateXor(r, v[1]), c(0)));
  if (op == ScalarOp::k_rem) return b_.CreateSelect(differs, b_.CreateAdd(r, v[1]), r);
  return b_.CreateSelect(differs, b_.CreateSub(q, c(1)), q);
}

Value* LaneOps::neutral(ReduceOp op, DType dtype, unsigned lanes) {
  graph::ScalarValue v{};
  const bool floating = is_float(dtype);
  const auto set = [&](double f, int64_t i) {
    if (floating) {
      v.f = f;
    } else {
      v.i = i;
    }
  };
  const unsigned bits = floating ? 64 : bits_of(dtype);
  const int64_t largest = is_signed(dtype) ? static_cast<int64_t>(~uint64_t{0} >> (65 - bits))
                                           : static_cast<int64_t>(~uint64_t{0} >> (64 - bits));
  const int64_t smallest = is_signed(dtype) ? -largest - 1 : 0;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAny: set(0, 0); break;
    case ReduceOp::kProd:
    case ReduceOp::kAll: set(1, 1); break;
    case ReduceOp::kMax:
    case ReduceOp::kArgmax: set(-INFINITY, smallest); break;
    case ReduceOp::kMin:
    case ReduceOp::kArgmin: set(INFINITY, largest); break;
  }
  return splat(constant(dtype, v), lanes);
}

Value* LaneOps::combine(ReduceOp op, DType dtype, Value* a, Value* b) {
  Value* v[2] = {a, b};
  switch (op) {
    case ReduceOp::kSum: return scalar_op(ScalarOp::k_add, dtype, v);
    case ReduceOp::kProd: return scalar_op(ScalarOp::k_mul, dtype, v);
    case ReduceOp::kMax:
    case ReduceOp::kArgmax: return scalar_op(ScalarOp::k_maximum, dtype, v);
    case ReduceOp::kMin:
    case ReduceOp::kArgmin: return scalar_op(ScalarOp::k_minimum, dtype, v);
    case ReduceOp::kAny: return b_.CreateOr(a, b);
    case ReduceOp::kAll: return b_.CreateAnd(a, b);
  }
  return a;
}

Value* LaneOps::halve(ReduceOp op, DType dtype, Value* value, unsigned lanes) {
  for (unsigned n = lanes_of(value); n > std::max(lanes, 1u); n /= 2) {
    std::vector<int> low, high;
    for (unsigned k = 0; k < n / 2; ++k) {
      low.push_back(static_cast<int>(k));
      high.push_back(static_cast<int>(k + n / 2));
    }
    value = combine(op, dtype, b_.CreateShuffleVector(value, low), b_.CreateShuffleVector(value, high));
  }
  return lanes == 0 && lanes_of(value) != 0 ? b_.CreateExtractElement(value, uint64_t{0}) : value;
}

// Sums of at most four registers by horizontal additions: a quarter of the instructions that general shuffles would
// need.
Value* LaneOps::horizontal_sums(const std::vector<Value*>& vectors) {
  const auto at = [&](size_t k) {
    return halve(ReduceOp::kSum, DType::kFloat32, vectors[std::min(k, vectors.size() - 1)], 8);
  };
  const auto pairs = [&](Value* a, Value* b) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx_hadd_ps_256, {}, {a, b});
  };
  Value* first = pairs(at(0), at(1));
  Value* sums =
      halve(ReduceOp::kSum, DType::kFloat32, pairs(first, vectors.size() > 2 ? pairs(at(2), at(3)) : first), 4);
  return vectors.size() == 4
             ? sums
             : shuffled(sums, sums, static_cast<unsigned>(vectors.size()), [](unsigned k) { return k; });
}

// Vectors are joined in pairs, lower halves with lower halves and upper with upper, until one is left.
Value* LaneOps::halve_each(ReduceOp op, DType dtype, std::vector<Value*> vectors) {
  if (has_avx512_ && op == ReduceOp::kSum && dtype == DType::kFloat32 && lanes_of(vectors[0]) == 16 &&
      vectors.size() <= 4)
    return horizontal_sums(vectors);
  const unsigned results = static_cast<unsigned>(vectors.size());
  vectors.resize(std::bit_ceil(vectors.size()), vectors.back());
  for (unsigned length = lanes_of(vectors[0]); length > 1; length /= 2) {
    std::vector<Value*> halved;
    const size_t together = vectors.size() > 1 ? 2 : 1;
    for (size_t v = 0; v < vectors.size(); v += together) {
      const unsigned half = length / 2, lanes = lanes_of(vectors[v]) * static_cast<unsigned>(together) / 2;
      const auto lane = [&](unsigned k) { return k / half * length + k % half; };
      Value *a = vectors[v], *b = vectors[v + together - 1];
      halved.push_back(combine(op, dtype, shuffled(a, b, lanes, lane),
                               shuffled(a, b, lanes, [&](unsigned k) { return lane(k) + half; })));
    }
    vectors = std::move(halved);
  }
  return lanes_of(vectors[0]) == results ? vectors[0]
                                         : shuffled(vectors[0], vectors[0], results, [](unsigned k) { return k; });
}

}  // namespace framejit::inductor
