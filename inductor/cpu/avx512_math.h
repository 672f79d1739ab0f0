// inductor/cpu/avx512_math.h — float32 functions that use two instructions of AVX-512: vscalefps, and vpermps on a
// whole register.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace framejit::inductor {

// For one lane, or for whole registers. p * 2^n, rounded once. n: whole float32 numbers.
llvm::Value* scale_by_power(llvm::IRBuilderBase& b, llvm::Value* p, llvm::Value* n);

llvm::Value* erf_by_pieces(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* tanh_by_pieces(llvm::IRBuilderBase& b, llvm::Value* x);

}  // namespace framejit::inductor
