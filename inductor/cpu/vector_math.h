// inductor/cpu/vector_math.h — elementary functions as straight-line vector code; within 2 ulp in float32.
#pragma once

#include "graph/scalar_op.h"

namespace llvm {
class IRBuilderBase;
class Module;
class Value;
}  // namespace llvm

namespace framejit::inductor {

// Function `op` of a (and b). Float64, and functions without a polynomial here, go through libm lane by lane.
llvm::Value* emit_math(llvm::IRBuilderBase& builder, llvm::Module& module, graph::ScalarOp op, llvm::Value* a, llvm::Value* b);
// Name and address of every libm function that emitted code may call: address is null behind the last one.
struct MathSymbol {
  const char* name;
  void* address;
};
const MathSymbol* math_symbols();

}  // namespace framejit::inductor
