// inductor/cpu/lane_math.h — the building blocks of elementary functions: constants, polynomials, scaling, splitting a
// number.
//
// Adding 1.5 * 2^23 (2^52) rounds to an integer: it is defined for every input, including NaN. fmuladd may fuse, so it
// is used only where either result is fine.
#pragma once

#include <cmath>
#include <span>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "inductor/cpu/vector_math.h"

namespace framejit::inductor {

// All of one type, that of `like`: a float, a double, or a vector of them.
class LaneMath {
 public:
  using Value = llvm::Value;

  LaneMath(llvm::IRBuilderBase& b, Value* like) : b_(b), type_(like->getType()) {}

  static constexpr double kRounding32 = 12582912.0,
                          kRounding64 = 6755399441055744.0;  // 1.5 * 2^23, 2^52: numbers near them have no fraction

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

  Value* at_most(Value* x, double high) {
    return b_.CreateSelect(b_.CreateFCmpOGT(x, c(high)), c(high), x);
  }  // NaN stays
  Value* clamp(Value* x, double low, double high) {  // NaN stays
    x = at_most(x, high);
    return b_.CreateSelect(b_.CreateFCmpOLT(x, c(low)), c(low), x);
  }

  Value* log_edges(Value* x, Value* result) {
    result = b_.CreateSelect(b_.CreateFCmpOEQ(x, c(0)), c(-INFINITY), result);
    result = b_.CreateSelect(b_.CreateFCmpOEQ(x, c(INFINITY)), x, result);
    return b_.CreateSelect(b_.CreateFCmpULT(x, c(0)), c(NAN), result);  // negative or NaN
  }

 protected:
  llvm::IRBuilderBase& b_;
  llvm::Type* type_;
};

// Functions of float32 values that are computed in float64; null for all others. far_symbols(): the functions outside
// libm that they call.
llvm::Value* emit_widened(llvm::IRBuilderBase& builder, llvm::Module& module, graph::ScalarOp op, llvm::Value* x,
                          llvm::Value* y);
std::span<const MathSymbol> far_symbols();

}  // namespace framejit::inductor
