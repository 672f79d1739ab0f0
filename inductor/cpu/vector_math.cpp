// inductor/cpu/vector_math.cpp — float32 functions that stay in float32, and the choice between them, float64 and libm.
//
// Coefficients are our own fits (Lawson-weighted least squares of the relative error on Chebyshev nodes).
#include "inductor/cpu/vector_math.h"

#include <utility>
#include <vector>

#include "inductor/cpu/avx512_math.h"
#include "inductor/cpu/lane_math.h"
#include "runtime/base/result.h"

namespace framejit::inductor {

using graph::ScalarOp;
using llvm::Value;

namespace {

class Float32Math : public LaneMath {
 public:
  Float32Math(llvm::IRBuilderBase& b, Value* like, bool has_avx512) : LaneMath(b, like), has_avx512_(has_avx512) {}

  static constexpr int kBias = 152;  // even; -kBias is below the least exponent of nonzero numbers
  // scale() multiplies by two numbers whose exponent bits sum up to n + kBias. Their product is 2^n / kScale.
  static constexpr double kScale = 0x1p102;

  // x minus the nearest multiple n of log 2, and n in two forms: as a number, and as the last bits of a number, plus
  // `bias`.
  struct Reduced {
    Value *r, *whole, *shifted;
  };
  Reduced reduced(Value* x, int bias) {
    const double magic = kRounding32 + bias;
    Value* shifted = fma(x, c(1.44269504088896341), c(magic));
    Value* whole = b_.CreateFSub(shifted, c(magic));
    Value* r = fma(whole, c(-0.693145751953125), x);
    return {fma(whole, c(-1.428606765330187e-06), r), whole, shifted};
  }
  // e^r times `factor`, a power of two; |r| <= log 2 / 2
  Value* exp_of_reduced(Value* r, double factor) {
    const double k[] = {factor,
                        factor,
                        factor * 0.4999999403953552,
                        factor * 0.1666652113199234,
                        factor * 0.04166826605796814,
                        factor * 0.008368677459657192,
                        factor * 0.001382073387503624};
    return polynomial(r, k);
  }
  // p / kScale * 2^n, where n + kBias are the last bits of `shifted`. In two steps, n / 2 rounded down and up, so that
  // overflow and denormals come out right. At -kBias both factors are zero: a product that underflows takes the CPU a
  // hundred times as long.
  Value* scale(Value* p, Value* shifted) {
    Value* twice = b_.CreateShl(bits(shifted), i(22));
    Value* down = b_.CreateAnd(twice, i(0x7F800000));
    Value* up = b_.CreateAnd(b_.CreateAdd(twice, i(0x00400000)), i(0x7F800000));
    return b_.CreateFMul(b_.CreateFMul(p, unbits(down)), unbits(up));
  }
  // p * 2^n, and zero if x is below `low`, including minus infinity.
  Value* scale_above(Value* x, double low, Value* p, Value* n) {
    return b_.CreateSelect(b_.CreateFCmpOLT(x, c(low)), c(0), scale_by_power(b_, p, n));
  }

  static constexpr double kExpLow = -105.4, kExpHigh = 89, kExp2Low = -152, kExp2High = 129;

  Value* exp32(Value* x) {
    if (has_avx512_) {
      const Reduced by = reduced(at_most(x, kExpHigh), 0);
      return scale_above(x, kExpLow, exp_of_reduced(by.r, 1), by.whole);
    }
    const Reduced by = reduced(clamp(x, kExpLow, kExpHigh), kBias);
    return scale(exp_of_reduced(by.r, kScale), by.shifted);
  }
  // For x of at most kExpHigh. Takes one more instruction; without fused instructions, the error is a fifth smaller.
  Value* careful_exp(Value* x) {
    static constexpr double k[] = {0.4999999403953552, 0.1666652113199234, 0.04166826605796814, 0.008368677459657192,
                                   0.001382073387503624};
    const Reduced by = reduced(has_avx512_ ? x : clamp(x, kExpLow, kExpHigh), kBias);
    Value* less_one = fma(b_.CreateFMul(by.r, by.r), polynomial(by.r, k), by.r);
    if (has_avx512_) return scale_above(x, kExpLow, b_.CreateFAdd(less_one, c(1)), by.whole);
    return scale(fma(less_one, c(kScale), c(kScale)), by.shifted);
  }
  // For x from -87 to 88, and NaN.
  Value* near_exp(Value* x) {
    const Reduced by = reduced(x, 127);
    return b_.CreateFMul(exp_of_reduced(by.r, 1), unbits(b_.CreateShl(bits(by.shifted), i(23))));
  }

  Value* exp2(Value* x) {
    const auto of_rest = [&](Value* r, double factor) {
      const double k[] = {factor,
                          factor * 0.6931472028559711,
                          factor * 0.24022647913499393,
                          factor * 0.0555033246969216,
                          factor * 0.009618437366357922,
                          factor * 0.00133988748672631,
                          factor * 0.00015353360648333314};
      return polynomial(r, k);
    };
    Value* bounded = has_avx512_ ? at_most(x, kExp2High) : clamp(x, kExp2Low, kExp2High);
    Value* shifted = b_.CreateFAdd(bounded, c(kRounding32 + kBias));
    Value* whole = b_.CreateFSub(shifted, c(kRounding32 + kBias));
    Value* r = b_.CreateFSub(bounded, whole);
    return has_avx512_ ? scale_above(x, kExp2Low, of_rest(r, 1), whole) : scale(of_rest(r, kScale), shifted);
  }

  // x == m * 2^e with m in [sqrt(1/2), sqrt(2)), e an integer; x positive and normal.
  std::pair<Value*, Value*> split(Value* x) {
    Value* e = b_.CreateAShr(b_.CreateSub(bits(x), i(0x3F3504F3)), i(23));
    return {unbits(b_.CreateSub(bits(x), b_.CreateShl(e, i(23)))), e};
  }

  // log((1 + f) * 2^e)
  Value* log_of(Value* f, Value* e) {
    static constexpr double k[] = {0.3333333134651184, -0.250008225440979, 0.20001226663589478, -0.16623356938362122,
                                   0.14201761782169342, -0.131601944565773, 0.12761549651622772, -0.07634429633617401};
    Value* f2 = b_.CreateFMul(f, f);
    Value* p = b_.CreateFMul(b_.CreateFMul(f2, f), polynomial(f, k));
    p = fma(e, c(-2.12194440e-4), p);
    p = fma(f2, c(-0.5), p);
    p = b_.CreateFAdd(p, f);
    return fma(e, c(0.693359375), p);
  }

  Value* log32(Value* x) {
    Value* tiny = b_.CreateFCmpOLT(x, c(1.17549435e-38));
    const auto [m, exponent] = split(b_.CreateSelect(tiny, b_.CreateFMul(x, c(8388608.0)), x));
    Value* e = b_.CreateSIToFP(exponent, type_);
    e = b_.CreateSelect(tiny, b_.CreateFSub(e, c(23)), e);
    return log_edges(x, log_of(b_.CreateFSub(m, c(1)), e));
  }

  // The digits that do not fit into 1 + x are added to its mantissa, as long as they matter there.
  Value* log1p(Value* x) {
    Value* u = b_.CreateFAdd(x, c(1));
    Value* lost = b_.CreateFSub(x, b_.CreateFSub(u, c(1)));
    const auto [m, exponent] = split(u);
    Value* bounded = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, exponent, i(126));
    Value* scaled = b_.CreateFMul(lost, unbits(b_.CreateSub(i(0x3F800000), b_.CreateShl(bounded, i(23)))));
    Value* result = log_of(b_.CreateFAdd(b_.CreateFSub(m, c(1)), scaled), b_.CreateSIToFP(exponent, type_));
    return b_.CreateSelect(b_.CreateFCmpOEQ(x, c(0)), x, log_edges(u, result));  // -0.0 stays
  }

  Value* tanh32(Value* x) {
    if (has_avx512_) return tanh_by_pieces(b_, x);
    static constexpr double k[] = {-0.33333277702331543, 0.13331331312656403, -0.05373000353574753, 0.02060616761445999,
                                   -0.005666968412697315};
    Value* t = abs(x);
    Value* s = b_.CreateFMul(x, x);
    Value* small = fma(b_.CreateFMul(s, x), polynomial(s, k), x);
    Value* bounded = at_most(t, 10);
    Value* e = near_exp(b_.CreateFAdd(bounded, bounded));
    Value* large = b_.CreateFSub(c(1), b_.CreateFDiv(c(2), b_.CreateFAdd(e, c(1))));
    return copysign(b_.CreateSelect(b_.CreateFCmpOLT(t, c(0.625)), small, large), x);  // also of -0.0
  }

  Value* erf32(Value* x) {
    if (has_avx512_) return erf_by_pieces(b_, x);
    static constexpr double small_k[] = {0.12837916612625122,  -0.37612631916999817, 0.1128367930650711,
                                         -0.02685849741101265, 0.005198829807341099, -0.0008118074620142579,
                                         8.267458906630054e-05};
    static constexpr double large_k[] = {-0.00017468443547841161, 1.1295149326324463,    0.6333469152450562,
                                         0.10828009247779846,     -0.02511942759156227,  0.00417106319218874,
                                         -0.0004344626213423908,  2.1095051124575548e-05};
    Value* t = abs(x);
    Value* s = b_.CreateFMul(x, x);
    Value* small = fma(polynomial(s, small_k), x, x);
    Value* tail = near_exp(b_.CreateFNeg(polynomial(at_most(t, 4.05), large_k)));
    Value* large = copysign(b_.CreateFSub(c(1), tail), x);
    return b_.CreateSelect(b_.CreateFCmpOLT(t, c(0.9375)), small, large);
  }

  // t = exp(-|x|) never overflows, so tiny results keep their digits. What 1 + t lost in rounding is the share
  // lost / (1 + t) of the quotient, and is subtracted. A line is close enough to 1 / (1 + t).
  Value* sigmoid(Value* x, Value* t) {
    Value* down = b_.CreateFAdd(t, c(1));
    Value* lost = b_.CreateFSub(t, b_.CreateFSub(down, c(1)));
    Value* share = b_.CreateFMul(lost, fma(t, c(-0.5), c(0.97)));
    Value* quotient = b_.CreateFDiv(b_.CreateSelect(b_.CreateFCmpOLT(x, c(0)), t, c(1)), down);
    return b_.CreateFSub(quotient, b_.CreateFMul(quotient, share));
  }

 private:
  const bool has_avx512_;
};

Value* call_lane_by_lane(llvm::IRBuilderBase& b, llvm::Module& module, const std::string& name, Value* x, Value* y) {
  llvm::Type* scalar = x->getType()->getScalarType();
  std::vector<llvm::Type*> parameters(y == nullptr ? 1 : 2, scalar);
  llvm::FunctionCallee function = module.getOrInsertFunction(name, llvm::FunctionType::get(scalar, parameters, false));
  const auto call = [&](Value* p, Value* q) {
    return q == nullptr ? b.CreateCall(function, {p}) : b.CreateCall(function, {p, q});
  };
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (vector == nullptr) return call(x, y);
  Value* result = llvm::PoisonValue::get(vector);
  for (unsigned k = 0; k < vector->getNumElements(); ++k) {
    Value* q = y == nullptr ? nullptr : b.CreateExtractElement(y, k);
    result = b.CreateInsertElement(result, call(b.CreateExtractElement(x, k), q), k);
  }
  return result;
}

}  // namespace

Value* emit_math(llvm::IRBuilderBase& b, llvm::Module& module, bool has_avx512, ScalarOp op, Value* x, Value* y) {
  const bool is_float32 = x->getType()->getScalarType()->isFloatTy();
  Float32Math m(b, x, has_avx512);
  if (op == ScalarOp::k_sigmoid) {
    Value* minus = b.CreateFNeg(m.abs(x));
    return m.sigmoid(
        x, is_float32 ? m.careful_exp(minus) : emit_math(b, module, has_avx512, ScalarOp::k_exp, minus, nullptr));
  }
  if (!is_float32) return call_lane_by_lane(b, module, graph::row_of(op).name, x, y);
  if (op == ScalarOp::k_exp) return m.exp32(x);
  if (op == ScalarOp::k_exp2) return m.exp2(x);
  if (op == ScalarOp::k_log) return m.log32(x);
  if (op == ScalarOp::k_log1p) return m.log1p(x);
  if (op == ScalarOp::k_tanh) return m.tanh32(x);
  if (op == ScalarOp::k_erf) return m.erf32(x);
  Value* result = emit_widened(b, module, op, x, y);
  FJ_ASSERT(result != nullptr, std::string("no float32 form of ") + graph::row_of(op).name);
  return result;
}

// The half-precision conversions that code generation calls if the CPU has no instruction for them.
static float extend_half(_Float16 h) { return static_cast<float>(h); }
static _Float16 truncate_float(float f) { return static_cast<_Float16>(f); }
static _Float16 truncate_double(double d) {
  return static_cast<_Float16>(d);
}  // needed because LLVM merges two roundings into one if the first is exact

std::span<const MathSymbol> math_symbols() {
#define UNARY(name) {#name, reinterpret_cast<void*>(static_cast<double (*)(double)>(::name))}
#define BINARY(name) {#name, reinterpret_cast<void*>(static_cast<double (*)(double, double)>(::name))}
#define ROUNDING(name) UNARY(name), {#name "f", reinterpret_cast<void*>(static_cast<float (*)(float)>(::name##f))}
  static const std::vector<MathSymbol> kSymbols = [] {
    // clang-format off
    std::vector<MathSymbol> all{
        UNARY(exp), UNARY(exp2), UNARY(expm1), UNARY(log), UNARY(log2), UNARY(log10), UNARY(log1p), UNARY(sin),
        UNARY(cos), UNARY(tan),
        UNARY(asin), UNARY(acos), UNARY(atan), UNARY(sinh), UNARY(cosh), UNARY(asinh), UNARY(acosh), UNARY(atanh),
        UNARY(tanh),
        UNARY(erf), UNARY(erfc), BINARY(pow), BINARY(atan2), BINARY(hypot), BINARY(fmod),
        ROUNDING(floor), ROUNDING(ceil), ROUNDING(trunc), ROUNDING(rint), ROUNDING(nearbyint), ROUNDING(sqrt),
        {"__extendhfsf2", reinterpret_cast<void*>(extend_half)}, {"__truncsfhf2",
        reinterpret_cast<void*>(truncate_float)},
        {"__truncdfhf2", reinterpret_cast<void*>(truncate_double)}};
    // clang-format on
    all.insert(all.end(), far_symbols().begin(), far_symbols().end());
    return all;
  }();
#undef UNARY
#undef BINARY
#undef ROUNDING
  return kSymbols;
}

}  // namespace framejit::inductor
