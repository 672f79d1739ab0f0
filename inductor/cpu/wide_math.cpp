// inductor/cpu/wide_math.cpp — functions of float32 values computed in float64, where cancellation and rounding do not
// hurt.
//
// Each has a relative error below 1e-8 before its one rounding to float32, including edge cases. Coefficients are our
// own fits, as in vector_math.cpp. Sines reduce by multiples of pi/2 in three parts of 25, 25 and 53 bits: multiples
// below 2^28 of the first two are exact, with and without fused instructions. Lanes beyond that go to libm, after one
// branch that tests whether there are any.
#include <algorithm>

#include <llvm/IR/MDBuilder.h>

#include "inductor/cpu/lane_math.h"
#include "inductor/cpu/plan/wide_ops.h"
#include "inductor/cpu/vector_math.h"

namespace framejit::inductor {

using graph::ScalarOp;
using llvm::Value;

namespace {

constexpr double kFarAngle = 268435456.0;     // 2^28
constexpr double kFarQuotient = 536870912.0;  // 2^29: smaller integers times a float32 value are exact
constexpr double kPi = 3.14159265358979323846;

class WideMath : public LaneMath {
 public:
  WideMath(llvm::IRBuilderBase& b, Value* like) : LaneMath(b, like) {}

  Value* add(Value* x, Value* y) { return b_.CreateFAdd(x, y); }
  Value* sub(Value* x, Value* y) { return b_.CreateFSub(x, y); }
  Value* mul(Value* x, Value* y) { return b_.CreateFMul(x, y); }
  Value* div(Value* x, Value* y) { return b_.CreateFDiv(x, y); }
  Value* pick(Value* condition, Value* x, Value* y) { return b_.CreateSelect(condition, x, y); }
  Value* below(Value* x, Value* y) { return b_.CreateFCmpOLT(x, y); }
  Value* root(Value* x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x); }
  Value* whole(Value* x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x); }

  // Zero below -110, and beyond the range of float32 above 120. No factor overflows on the way.
  Value* exponential(Value* x) {
    static constexpr double k[] = {0.5000000067685852,   0.16666665868936112,   0.04166629493682657,
                                   0.008333497069355583, 0.0013944660261308926, 0.00019790346406617062};
    Value* alive = b_.CreateFCmpUGE(x, c(-110.0));
    x = clamp(x, -110.0, 120.0);
    Value* shifted = fma(x, c(1.4426950408889634074), c(kRounding64));
    Value* n = sub(shifted, c(kRounding64));
    Value* r = fma(n, c(-0.69314718055966295651), x);
    r = fma(n, c(-2.8235290563031577e-13), r);
    Value* p = fma(mul(r, r), polynomial(r, k), r);
    Value* power = b_.CreateShl(b_.CreateAdd(bits(shifted), i(1023 - 0x4338000000000000)), i(52));
    return mul(add(p, c(1)), pick(alive, unbits(power), c(0)));
  }

  // x: normal in float64, as every float32 value is, or an edge case. The biased exponent becomes a number as the last
  // bits of 2^52, because conversions of 64-bit integers need AVX-512.
  Value* logarithm(Value* x) {
    static constexpr double k[] = {2.00000000000847, 0.6666666523535691, 0.40000386754114453, 0.28534936762529783,
                                   0.2361831890807804};
    Value* biased = b_.CreateLShr(b_.CreateAdd(bits(x), i(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)), i(52));
    Value* m = unbits(b_.CreateSub(b_.CreateAdd(bits(x), i(0x3FF0000000000000)), b_.CreateShl(biased, i(52))));
    Value* e = sub(unbits(b_.CreateOr(biased, i(0x4330000000000000))), c(4503599627370496.0 + 1023));
    Value* s = div(sub(m, c(1)), add(m, c(1)));
    Value* p = mul(s, polynomial(mul(s, s), k));
    return log_edges(x, fma(e, c(0.69314718055994530942), p));
  }

  Value* log2(Value* x) { return mul(logarithm(x), c(1.4426950408889634074)); }
  Value* log10(Value* x) { return mul(logarithm(x), c(0.43429448190325182765)); }

  // Series for small numbers are products with x, so the sign of zero survives.
  Value* expm1(Value* x) {
    Value* small = mul(x, fma(x, c(0.5), c(1)));
    return pick(below(abs(x), c(1e-5)), small, sub(exponential(x), c(1)));
  }

  Value* sinh(Value* x) {
    Value* e = exponential(abs(x));
    Value* large = copysign(mul(sub(e, div(c(1), e)), c(0.5)), x);
    return pick(below(abs(x), c(1e-3)), mul(x, fma(mul(x, x), c(1.0 / 6), c(1))), large);
  }
  Value* cosh(Value* x) {
    Value* e = exponential(abs(x));
    return mul(add(e, div(c(1), e)), c(0.5));
  }
  Value* asinh(Value* x) {
    Value* s = mul(x, x);
    Value* large = copysign(logarithm(add(abs(x), root(add(s, c(1))))), x);
    return pick(below(abs(x), c(1e-3)), mul(x, fma(s, fma(s, c(3.0 / 40), c(-1.0 / 6)), c(1))), large);
  }
  Value* acosh(Value* x) {
    Value* result = logarithm(add(x, root(sub(mul(x, x), c(1)))));
    return pick(below(x, c(1)), c(NAN), result);
  }
  Value* atanh(Value* x) {
    Value *s = mul(x, x), *t = abs(x);
    Value* large = copysign(mul(logarithm(div(add(c(1), t), sub(c(1), t))), c(0.5)), x);
    return pick(below(t, c(1e-3)), mul(x, fma(s, fma(s, c(0.2), c(1.0 / 3)), c(1))), large);
  }

  // x minus `whole` times pi / `parts` (1 or 2).
  Value* reduced(Value* x, Value* whole, double parts) {
    Value* r = fma(whole, c(-3.1415926218032837 / parts), x);
    r = fma(whole, c(-3.1786509424591713e-08 / parts), r);
    return fma(whole, c(-1.2246467991473532e-16 / parts), r);
  }
  // The last bit of `shifted`, as a sign bit.
  Value* odd_sign(Value* shifted) { return b_.CreateShl(bits(shifted), i(63)); }
  // sin r, |r| <= pi/2. A product with r, so the sign of zero survives.
  Value* sine_of_half_turn(Value* r) {
    static constexpr double k[] = {-0.1666666662611569, 0.008333331107273537, -0.00019840868042532008,
                                   2.7525376006842658e-06, -2.3888762487757533e-08};
    Value* s = mul(r, r);
    return mul(r, fma(s, polynomial(s, k), c(1)));
  }
  Value* sin(Value* x) {  // sin(x - n pi), negated for odd n
    Value* shifted = fma(x, c(1 / kPi), c(kRounding64));
    Value* r = reduced(x, sub(shifted, c(kRounding64)), 1);
    return unbits(b_.CreateXor(bits(sine_of_half_turn(r)), odd_sign(shifted)));
  }
  Value* cos(Value* x) {  // sin(x - (n + 1/2) pi), negated for even n
    Value* shifted = add(fma(x, c(1 / kPi), c(-0.5)), c(kRounding64));
    Value* r = reduced(x, add(sub(shifted, c(kRounding64)), c(0.5)), 1);
    return unbits(b_.CreateXor(bits(sine_of_half_turn(r)), b_.CreateXor(odd_sign(shifted), i(INT64_MIN))));
  }
  Value* tan(Value* x) {  // of x - n pi/2; for odd n its reciprocal, negated
    static constexpr double sine[] = {-0.1666666664161373, 0.008333329384486431, -0.00019839334397529597,
                                      2.7183073832069997e-06};
    static constexpr double cosine[] = {-0.49999999724959837, 0.0416666233081042, -0.0013886763287753962,
                                        2.439040327623724e-05};
    Value* shifted = fma(x, c(2 / kPi), c(kRounding64));
    Value* r = reduced(x, sub(shifted, c(kRounding64)), 2);
    Value* s = mul(r, r);
    Value* up = mul(r, fma(s, polynomial(s, sine), c(1)));
    Value* down = fma(s, polynomial(s, cosine), c(1));
    Value* is_odd = b_.CreateICmpNE(b_.CreateAnd(bits(shifted), i(1)), i(0));
    return div(pick(is_odd, b_.CreateFNeg(down), up), pick(is_odd, up, down));
  }

  // atan(y / x) for y, x >= 0: rotated by pi/4 or pi/2 until the argument is below tan(pi/8).
  Value* angle(Value* y, Value* x) {
    static constexpr double k[] = {-0.3333333251412745, 0.1999990514179583,   -0.1428204071967162,
                                   0.11045075946153943, -0.08478303422120982, 0.047480536804201};
    Value* is_small = b_.CreateFCmpOLE(y, mul(x, c(0.41421356237309503)));
    Value* is_large = b_.CreateFCmpOGE(y, mul(x, c(2.414213562373095)));
    Value* up = pick(is_small, y, pick(is_large, b_.CreateFNeg(x), sub(y, x)));
    Value* down = pick(is_small, x, pick(is_large, y, add(y, x)));
    Value* turned = pick(is_small, c(0), pick(is_large, c(kPi / 2), c(kPi / 4)));
    Value* t = div(up, down);
    Value* s = mul(t, t);
    return add(turned, mul(t, fma(s, polynomial(s, k), c(1))));
  }
  Value* other_leg(Value* x) { return root(mul(sub(c(1), x), add(c(1), x))); }
  Value* atan(Value* x) { return copysign(angle(abs(x), c(1)), x); }
  Value* asin(Value* x) { return copysign(angle(abs(x), other_leg(x)), x); }
  Value* acos(Value* x) {
    Value* a = angle(other_leg(x), abs(x));
    return pick(below(x, c(0)), sub(c(kPi), a), a);
  }
  Value* atan2(Value* y, Value* x) {
    Value *up = abs(y), *down = abs(x);
    Value* is_even = b_.CreateFCmpOEQ(up, down);  // both zero, both infinite
    Value* on_axis = pick(b_.CreateFCmpOEQ(up, c(0)), c(0), c(kPi / 4));
    Value* a = pick(is_even, on_axis, angle(up, down));
    Value* is_left = b_.CreateICmpSLT(bits(x), i(0));
    return copysign(pick(is_left, sub(c(kPi), a), a), y);
  }

  Value* hypot(Value* x, Value* y) {
    Value* infinite = b_.CreateOr(b_.CreateFCmpOEQ(abs(x), c(INFINITY)), b_.CreateFCmpOEQ(abs(y), c(INFINITY)));
    return pick(infinite, c(INFINITY), root(add(mul(x, x), mul(y, y))));
  }

  // t exp(P(t) - x^2), t = 2 / (2 + |x|).
  Value* erfc(Value* x) {
    static constexpr double k[] = {-1.265570561718627,  1.0016363732885776, 0.35510203851519057, 0.22166912310325196,
                                   -0.6942506612075039, 1.6179671368809991, -3.4622555673458195, 4.133142914996981,
                                   -2.7119732224613884, 0.9409266848661907, -0.13639425282606046};
    Value* t = div(c(2), add(abs(x), c(2)));
    Value* right = mul(t, exponential(sub(polynomial(t, k), mul(x, x))));
    return pick(below(x, c(0)), sub(c(2), right), right);
  }

  // The rules of C99: pow(x, 0) and pow(1, y) are 1 even for NaN, pow(-1, infinity) is 1; a negative x has a power only
  // for whole y, with its sign if y is odd.
  Value* pow(Value* x, Value* y) {
    Value* l = logarithm(abs(x));
    Value* result = exponential(pick(b_.CreateFCmpOEQ(l, c(0)), l, mul(y, l)));
    Value* half = mul(y, c(0.5));
    Value* is_fraction = b_.CreateFCmpUNE(whole(y), y);
    Value* is_odd = b_.CreateAnd(b_.CreateNot(is_fraction), b_.CreateFCmpUNE(whole(half), half));
    result = pick(is_odd, copysign(result, x), result);
    Value* has_none = b_.CreateAnd(b_.CreateAnd(below(x, c(0)), b_.CreateFCmpONE(x, c(-INFINITY))), is_fraction);
    return pick(b_.CreateFCmpOEQ(y, c(0)), c(1), pick(has_none, c(NAN), result));
  }

  // Exact if the quotient is below kFarQuotient. Its whole part may be one too large, never too small.
  Value* fmod(Value* x, Value* y) {
    Value *a = abs(x), *b = abs(y);
    Value* r = sub(a, mul(whole(div(a, b)), b));
    r = pick(below(r, c(0)), add(r, b), r);
    r = pick(b_.CreateFCmpOEQ(b, c(INFINITY)), add(a, sub(a, a)), r);
    return copysign(r, x);
  }
  Value* far_quotient(Value* x, Value* y) { return between(abs(div(x, y)), kFarQuotient); }
  Value* far_angle(Value* x, Value*) { return between(abs(x), kFarAngle); }
  Value* between(Value* x, double low) {
    return b_.CreateAnd(b_.CreateFCmpOGE(x, c(low)), b_.CreateFCmpOLT(x, c(INFINITY)));
  }
};

// Fills in libm's value for each lane that the vector code cannot handle.
template <float (*kFunction)(float)>
void fill_far_angles(const float* x, const float*, float* result, int64_t lanes) {
  for (int64_t k = 0; k < lanes; ++k)
    if (std::fabs(x[k]) >= kFarAngle) result[k] = kFunction(x[k]);
}

void fill_far_quotients(const float* x, const float* y, float* result, int64_t lanes) {
  for (int64_t k = 0; k < lanes; ++k)
    if (std::fabs(static_cast<double>(x[k]) / y[k]) >= kFarQuotient) result[k] = std::fmod(x[k], y[k]);
}

struct WideFunction {
  ScalarOp op;
  Value* (WideMath::*unary)(Value*) = nullptr;
  Value* (WideMath::*binary)(Value*, Value*) = nullptr;
  Value* (WideMath::*is_far)(Value*, Value*) = nullptr;  // lanes for libm
  const char* fill_far = nullptr;                        // the function that fills them in
};

constexpr WideFunction kFunctions[] = {
    {ScalarOp::k_expm1, &WideMath::expm1},
    {ScalarOp::k_log2, &WideMath::log2},
    {ScalarOp::k_log10, &WideMath::log10},
    {ScalarOp::k_sinh, &WideMath::sinh},
    {ScalarOp::k_cosh, &WideMath::cosh},
    {ScalarOp::k_asinh, &WideMath::asinh},
    {ScalarOp::k_acosh, &WideMath::acosh},
    {ScalarOp::k_atanh, &WideMath::atanh},
    {ScalarOp::k_atan, &WideMath::atan},
    {ScalarOp::k_asin, &WideMath::asin},
    {ScalarOp::k_acos, &WideMath::acos},
    {ScalarOp::k_erfc, &WideMath::erfc},
    {ScalarOp::k_sin, &WideMath::sin, nullptr, &WideMath::far_angle, "fj_far_sin"},
    {ScalarOp::k_cos, &WideMath::cos, nullptr, &WideMath::far_angle, "fj_far_cos"},
    {ScalarOp::k_tan, &WideMath::tan, nullptr, &WideMath::far_angle, "fj_far_tan"},
    {ScalarOp::k_pow, nullptr, &WideMath::pow},
    {ScalarOp::k_atan2, nullptr, &WideMath::atan2},
    {ScalarOp::k_hypot, nullptr, &WideMath::hypot},
    {ScalarOp::k_fmod, nullptr, &WideMath::fmod, &WideMath::far_quotient, "fj_far_fmod"},
};

static_assert(std::equal(std::begin(kFunctions), std::end(kFunctions), std::begin(kWideOps), std::end(kWideOps),
                         [](const WideFunction& f, ScalarOp op) { return f.op == op; }),
              "inductor/cpu/plan/wide_ops.h has the same functions in the same order");

// `result`, after the function `name` has replaced its far lanes, if there are any. Operands are passed on the stack.
Value* with_far_lanes(llvm::IRBuilderBase& b, llvm::Module& module, const char* name, Value* is_far, Value* x, Value* y,
                      Value* result) {
  llvm::LLVMContext& context = b.getContext();
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* far = llvm::BasicBlock::Create(context, "far", function);
  auto* after = llvm::BasicBlock::Create(context, "near", function);
  const auto slot = [&] {
    llvm::IRBuilder<> entry(&function->getEntryBlock(), function->getEntryBlock().begin());
    return entry.CreateAlloca(x->getType());
  };
  llvm::AllocaInst* slots[3] = {slot(), slot(), slot()};
  Value* any = vector == nullptr ? is_far : b.CreateOrReduce(is_far);
  b.CreateCondBr(any, far, after, llvm::MDBuilder(context).createUnlikelyBranchWeights());
  b.SetInsertPoint(far);
  b.CreateStore(x, slots[0]);
  b.CreateStore(y == nullptr ? x : y, slots[1]);
  b.CreateStore(result, slots[2]);
  llvm::Type* pointer = b.getPtrTy();
  auto* type = llvm::FunctionType::get(b.getVoidTy(), {pointer, pointer, pointer, b.getInt64Ty()}, false);
  b.CreateCall(module.getOrInsertFunction(name, type),
               {slots[0], slots[1], slots[2], b.getInt64(vector == nullptr ? 1 : vector->getNumElements())});
  Value* filled = b.CreateLoad(x->getType(), slots[2]);
  b.CreateBr(after);
  b.SetInsertPoint(after);
  llvm::PHINode* joined = b.CreatePHI(x->getType(), 2);
  joined->addIncoming(result, before);
  joined->addIncoming(filled, far);
  return joined;
}

}  // namespace

static const WideFunction* find_wide(ScalarOp op) {
  const auto* row =
      std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const WideFunction& f) { return f.op == op; });
  return row == std::end(kFunctions) ? nullptr : row;
}

Value* emit_widened(llvm::IRBuilderBase& b, llvm::Module& module, ScalarOp op, Value* x, Value* y) {
  const WideFunction* row = find_wide(op);
  if (row == nullptr) return nullptr;
  llvm::Type* wide = x->getType()->getWithNewType(b.getDoubleTy());
  Value* wide_x = b.CreateFPExt(x, wide);
  Value* wide_y = y == nullptr ? nullptr : b.CreateFPExt(y, wide);
  WideMath m(b, wide_x);
  Value* result =
      b.CreateFPTrunc(row->unary != nullptr ? (m.*row->unary)(wide_x) : (m.*row->binary)(wide_x, wide_y), x->getType());
  if (row->is_far == nullptr) return result;
  return with_far_lanes(b, module, row->fill_far, (m.*row->is_far)(wide_x, wide_y), x, y, result);
}

std::span<const MathSymbol> far_symbols() {
  static const MathSymbol kSymbols[] = {{"fj_far_sin", reinterpret_cast<void*>(fill_far_angles<::sinf>)},
                                        {"fj_far_cos", reinterpret_cast<void*>(fill_far_angles<::cosf>)},
                                        {"fj_far_tan", reinterpret_cast<void*>(fill_far_angles<::tanf>)},
                                        {"fj_far_fmod", reinterpret_cast<void*>(fill_far_quotients)}};
  return kSymbols;
}

}  // namespace framejit::inductor
