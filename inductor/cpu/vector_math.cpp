// inductor/cpu/vector_math.cpp — polynomials for float32.
//
// Coefficients are our own fits (Lawson-weighted least squares of the relative error on Chebyshev nodes). exp, log, tanh, erf and
// sigmoid work in float32; exp2, expm1, log1p, log2, log10 go through float64, where cancellation does not hurt. Rounding to an
// integer is the addition of 1.5 * 2^23 (2^52): defined for every input, NaN included. Scaling by 2^n is done in two halves, so
// that overflow and denormals come out right. fmuladd may fuse: only polynomials use it.
#include "inductor/cpu/vector_math.h"

#include <cmath>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

namespace framejit::inductor {

using graph::ScalarOp;
using llvm::Value;

namespace {

class Math {
 public:
  Math(llvm::IRBuilderBase& b, Value* like) : b_(b), type_(like->getType()) {}

  Value* c(double v) { return llvm::ConstantFP::get(type_, v); }
  Value* fma(Value* a, Value* x, Value* y) { return b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {type_}, {a, x, y}); }
  Value* abs(Value* x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  Value* copysign(Value* x, Value* sign) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, sign); }
  llvm::Type* int_type() { return type_->getWithNewType(b_.getIntNTy(type_->getScalarSizeInBits())); }
  Value* i(int64_t v) { return llvm::ConstantInt::getSigned(int_type(), v); }
  Value* bits(Value* x) { return b_.CreateBitCast(x, int_type()); }
  Value* unbits(Value* x) { return b_.CreateBitCast(x, type_); }

  // c[0] + x * (c[1] + x * ...)
  template <size_t N>
  Value* polynomial(Value* x, const double (&k)[N]) {
    Value* p = c(k[N - 1]);
    for (size_t n = N - 1; n-- > 0;) p = fma(p, x, c(k[n]));
    return p;
  }

  Value* clamp(Value* x, double low, double high) {  // NaN stays
    x = b_.CreateSelect(b_.CreateFCmpOGT(x, c(high)), c(high), x);
    return b_.CreateSelect(b_.CreateFCmpOLT(x, c(low)), c(low), x);
  }

  // p * 2^n, n an integer vector of moderate size, in two steps; zero where not `alive`. There the second factor is zero: a product
  // that underflows takes the CPU a hundred times as long.
  Value* scale(Value* p, Value* n, Value* alive, int bias, int mantissa) {
    Value* half = b_.CreateAShr(n, i(1));
    Value* rest = b_.CreateSub(n, half);
    const auto power = [&](Value* e) { return unbits(b_.CreateShl(b_.CreateAdd(e, i(bias)), i(mantissa))); };
    return b_.CreateFMul(b_.CreateFMul(p, power(half)), b_.CreateSelect(alive, power(rest), c(0)));
  }

  Value* exp32(Value* x) {
    static constexpr double k[] = {0.4999999403953552, 0.1666651964187622, 0.041668396443128586, 0.008368796668946743, 0.001381443114951253};
    Value* alive = b_.CreateFCmpUGE(x, c(-104.0));
    x = clamp(x, -104.0, 89.0);
    Value* shifted = fma(x, c(1.44269504088896341), c(12582912.0));
    Value* n = b_.CreateSub(bits(shifted), i(0x4B400000));
    Value* whole = b_.CreateFSub(shifted, c(12582912.0));
    Value* r = fma(whole, c(-0.693145751953125), x);
    r = fma(whole, c(-1.428606765330187e-06), r);
    Value* p = fma(b_.CreateFMul(r, r), polynomial(r, k), r);
    return scale(b_.CreateFAdd(p, c(1)), n, alive, 127, 23);
  }

  Value* exp64(Value* x) {  // about 1e-13, for results that become float32: zero below -110
    static constexpr double k[] = {0.499999999996613, 0.16666666667270935, 0.0416666669642061, 0.008333333093325894,
                                   0.001388881079960122, 0.00019841540530878885, 2.488098587707949e-05, 2.7492815416661515e-06};
    Value* alive = b_.CreateFCmpUGE(x, c(-110.0));
    x = clamp(x, -110.0, 800.0);
    Value* shifted = fma(x, c(1.4426950408889634074), c(6755399441055744.0));
    Value* n = b_.CreateSub(bits(shifted), i(0x4338000000000000));
    Value* whole = b_.CreateFSub(shifted, c(6755399441055744.0));
    Value* r = fma(whole, c(-0.69314718055966295651), x);
    r = fma(whole, c(-2.8235290563031577e-13), r);
    Value* p = fma(b_.CreateFMul(r, r), polynomial(r, k), r);
    return scale(b_.CreateFAdd(p, c(1)), n, alive, 1023, 52);
  }

  // x == m * 2^e with m in [sqrt(1/2), sqrt(2)); x positive and normal.
  void split(Value* x, Value*& m, Value*& e, int mantissa, int64_t sqrt_half_bits) {
    Value* ix = b_.CreateSub(bits(x), i(sqrt_half_bits));
    Value* exponent = b_.CreateAShr(ix, i(mantissa));
    m = unbits(b_.CreateSub(bits(x), b_.CreateShl(exponent, i(mantissa))));
    e = b_.CreateSIToFP(exponent, type_);
  }

  Value* log_edges(Value* x, Value* result) {
    result = b_.CreateSelect(b_.CreateFCmpOEQ(x, c(0)), c(-INFINITY), result);
    result = b_.CreateSelect(b_.CreateFCmpOEQ(x, c(INFINITY)), x, result);
    return b_.CreateSelect(b_.CreateFCmpULT(x, c(0)), c(NAN), result);  // negative or NaN
  }

  Value* log32(Value* x) {
    static constexpr double k[] = {0.3333333134651184, -0.250008225440979, 0.20001226663589478, -0.16623356938362122,
                                   0.14201761782169342, -0.131601944565773, 0.12761549651622772, -0.07634429633617401};
    Value* tiny = b_.CreateFCmpOLT(x, c(1.17549435e-38));
    Value* normal = b_.CreateSelect(tiny, b_.CreateFMul(x, c(8388608.0)), x);
    Value *m, *e;
    split(normal, m, e, 23, 0x3F3504F3);
    e = b_.CreateSelect(tiny, b_.CreateFSub(e, c(23)), e);
    Value* f = b_.CreateFSub(m, c(1));
    Value* f2 = b_.CreateFMul(f, f);
    Value* p = b_.CreateFMul(b_.CreateFMul(f2, f), polynomial(f, k));
    p = fma(e, c(-2.12194440e-4), p);
    p = fma(f2, c(-0.5), p);
    p = b_.CreateFAdd(p, f);
    return log_edges(x, fma(e, c(0.693359375), p));
  }

  Value* log64(Value* x) {  // about 1e-12 relative; x a float32 value widened, or 1 + one
    Value *m, *e;
    split(x, m, e, 52, 0x3FE6A09E667F3BCD);
    Value* s = b_.CreateFDiv(b_.CreateFSub(m, c(1)), b_.CreateFAdd(m, c(1)));
    static constexpr double k[] = {2.0, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15};
    Value* p = b_.CreateFMul(s, polynomial(b_.CreateFMul(s, s), k));
    return log_edges(x, fma(e, c(0.69314718055994530942), p));
  }

  Value* tanh32(Value* x) {
    static constexpr double k[] = {-0.33333277702331543, 0.13331331312656403, -0.05373000353574753, 0.02060616761445999, -0.005666968412697315};
    Value* t = abs(x);
    Value* s = b_.CreateFMul(x, x);
    Value* small = fma(b_.CreateFMul(s, x), polynomial(s, k), x);
    Value* e = exp32(b_.CreateFAdd(t, t));
    Value* large = b_.CreateFSub(c(1), b_.CreateFDiv(c(2), b_.CreateFAdd(e, c(1))));
    return copysign(b_.CreateSelect(b_.CreateFCmpOLT(t, c(0.625)), small, large), x);  // also of -0.0
  }

  Value* erf32(Value* x) {
    static constexpr double small_k[] = {0.12837916612625122, -0.37612631916999817, 0.1128367930650711, -0.02685849741101265,
                                         0.005198829807341099, -0.0008118074620142579, 8.267458906630054e-05};
    static constexpr double large_k[] = {-0.00017468443547841161, 1.1295149326324463, 0.6333469152450562, 0.10828009247779846,
                                         -0.02511942759156227, 0.00417106319218874, -0.0004344626213423908, 2.1095051124575548e-05};
    Value* t = abs(x);
    Value* s = b_.CreateFMul(x, x);
    Value* small = fma(polynomial(s, small_k), x, x);
    Value* bounded = clamp(t, 0, 4.05);
    Value* tail = exp32(b_.CreateFNeg(polynomial(bounded, large_k)));
    Value* large = copysign(b_.CreateFSub(c(1), tail), x);
    return b_.CreateSelect(b_.CreateFCmpOLT(t, c(0.9375)), small, large);
  }

  // t = exp(-|x|) never overflows, so that tiny results keep their digits.
  Value* sigmoid(Value* x, Value* t) {
    return b_.CreateFDiv(b_.CreateSelect(b_.CreateFCmpOLT(x, c(0)), t, c(1)), b_.CreateFAdd(c(1), t));
  }

 private:
  llvm::IRBuilderBase& b_;
  llvm::Type* type_;
};

// Float32 functions computed in float64.
Value* emit_widened(llvm::IRBuilderBase& b, ScalarOp op, Value* a) {
  Value* x = b.CreateFPExt(a, a->getType()->getWithNewType(b.getDoubleTy()));
  Math m(b, x);
  Value* result = nullptr;
  Value* small = b.CreateFCmpOLT(m.abs(x), m.c(1e-5));
  Value* half_square = b.CreateFMul(b.CreateFMul(x, x), m.c(0.5));
  if (op == ScalarOp::k_exp2) result = m.exp64(b.CreateFMul(x, m.c(0.69314718055994530942)));
  if (op == ScalarOp::k_expm1) {
    Value* large = b.CreateFSub(m.exp64(x), m.c(1));
    result = b.CreateSelect(small, b.CreateFAdd(x, half_square), large);
  }
  if (op == ScalarOp::k_log1p) {
    Value* cube = b.CreateFMul(b.CreateFMul(half_square, x), m.c(2.0 / 3));
    result = b.CreateSelect(small, b.CreateFAdd(b.CreateFSub(x, half_square), cube), m.log64(b.CreateFAdd(x, m.c(1))));
  }
  if (op == ScalarOp::k_log2) result = b.CreateFMul(m.log64(x), m.c(1.4426950408889634074));
  if (op == ScalarOp::k_log10) result = b.CreateFMul(m.log64(x), m.c(0.43429448190325182765));
  Value* narrow = b.CreateFPTrunc(result, a->getType());
  // The sign of zero survives: expm1(-0) and log1p(-0) are -0.
  if (op == ScalarOp::k_expm1 || op == ScalarOp::k_log1p) narrow = b.CreateSelect(b.CreateFCmpOEQ(a, llvm::ConstantFP::get(a->getType(), 0)), a, narrow);
  return narrow;
}

Value* call_lane_by_lane(llvm::IRBuilderBase& b, llvm::Module& module, const std::string& name, Value* x, Value* y) {
  llvm::Type* scalar = x->getType()->getScalarType();
  std::vector<llvm::Type*> parameters(y == nullptr ? 1 : 2, scalar);
  llvm::FunctionCallee function = module.getOrInsertFunction(name, llvm::FunctionType::get(scalar, parameters, false));
  const auto call = [&](Value* p, Value* q) { return q == nullptr ? b.CreateCall(function, {p}) : b.CreateCall(function, {p, q}); };
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

Value* emit_math(llvm::IRBuilderBase& b, llvm::Module& module, ScalarOp op, Value* x, Value* y) {
  const bool is_float32 = x->getType()->getScalarType()->isFloatTy();
  Math m(b, x);
  if (op == ScalarOp::k_sigmoid) {
    Value* minus = b.CreateFNeg(m.abs(x));
    return m.sigmoid(x, is_float32 ? m.exp32(minus) : emit_math(b, module, ScalarOp::k_exp, minus, nullptr));
  }
  if (is_float32) {
    if (op == ScalarOp::k_exp) return m.exp32(x);
    if (op == ScalarOp::k_log) return m.log32(x);
    if (op == ScalarOp::k_tanh) return m.tanh32(x);
    if (op == ScalarOp::k_erf) return m.erf32(x);
    const bool widened = op == ScalarOp::k_exp2 || op == ScalarOp::k_expm1 || op == ScalarOp::k_log1p || op == ScalarOp::k_log2 || op == ScalarOp::k_log10;
    if (widened) return emit_widened(b, op, x);
  }
  return call_lane_by_lane(b, module, std::string(graph::row_of(op).name) + (is_float32 ? "f" : ""), x, y);
}

// libm, and the half-precision conversions that code generation asks for where the CPU has no instruction.
static float extend_half(_Float16 h) { return static_cast<float>(h); }
static _Float16 truncate_float(float f) { return static_cast<_Float16>(f); }

const MathSymbol* math_symbols() {
#define UNARY(name) {#name, reinterpret_cast<void*>(static_cast<double (*)(double)>(::name))}, \
                    {#name "f", reinterpret_cast<void*>(static_cast<float (*)(float)>(::name##f))}
#define BINARY(name) {#name, reinterpret_cast<void*>(static_cast<double (*)(double, double)>(::name))}, \
                     {#name "f", reinterpret_cast<void*>(static_cast<float (*)(float, float)>(::name##f))}
  static const MathSymbol kSymbols[] = {
      UNARY(exp), UNARY(exp2), UNARY(expm1), UNARY(log), UNARY(log2), UNARY(log10), UNARY(log1p), UNARY(sin), UNARY(cos), UNARY(tan),
      UNARY(asin), UNARY(acos), UNARY(atan), UNARY(sinh), UNARY(cosh), UNARY(asinh), UNARY(acosh), UNARY(atanh), UNARY(tanh),
      UNARY(erf), UNARY(erfc), UNARY(floor), UNARY(ceil), UNARY(trunc), UNARY(rint), UNARY(nearbyint), UNARY(sqrt), BINARY(pow), BINARY(atan2),
      BINARY(hypot), BINARY(fmod), {"__extendhfsf2", reinterpret_cast<void*>(extend_half)},
      {"__truncsfhf2", reinterpret_cast<void*>(truncate_float)}, {nullptr, nullptr}};
#undef UNARY
#undef BINARY
  return kSymbols;
}

}  // namespace framejit::inductor
