// inductor/cpu/vector_math.h — elementary functions as straight-line vector code; within 2 ulp in float32.
#pragma once

#include <span>

#include "graph/scalar_op.h"

namespace llvm {
class IRBuilderBase;
class Module;
class Value;
}  // namespace llvm

namespace framejit::inductor {

// Function `op` of a (and b): for one lane, or with AVX-512 for the lanes of whole registers. Float64 goes through libm
// lane by lane. Float32 does so only if reducing an argument takes more precision than float64 has.
llvm::Value* emit_math(llvm::IRBuilderBase& builder, llvm::Module& module, bool has_avx512, graph::ScalarOp op,
                       llvm::Value* a, llvm::Value* b);

// Name and address of every function that emitted code may call.
struct MathSymbol {
  const char* name;
  void* address;
};
std::span<const MathSymbol> math_symbols();

}  // namespace framejit::inductor
