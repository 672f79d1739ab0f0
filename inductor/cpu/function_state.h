// inductor/cpu/function_state.h — the function of a kernel during emission, and the loops over points that its emitters
// share.
#pragma once

#include <vector>

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "inductor/cpu/emitter.h"
#include "inductor/cpu/lane_ops.h"
#include "inductor/cpu/plan/nest_plan.h"

namespace framejit::inductor {

// State that all nests of a kernel share.
struct FunctionState {
  FunctionState(llvm::Module& m, llvm::Function* f, const Kernel& kernel, const EmitOptions& options)
      : module(m),
        function(f),
        b(m.getContext()),
        ops(b, m, options.has_avx512()),
        plan(plan_kernel(kernel, options.target)) {}
  llvm::Value* least(llvm::Value* x, llvm::Value* y) { return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); }
  llvm::Module& module;
  llvm::Function* function;
  llvm::IRBuilder<> b;
  LaneOps ops;
  const KernelPlan plan;
  std::vector<llvm::Value*> buffers;
  std::vector<llvm::Value*> symbols;  // by symbol id: sizes
  std::vector<llvm::Value*> outer;    // outer dimensions
  llvm::Value *begin = nullptr, *end = nullptr;
  unsigned lanes = 0;  // kernels of outer lanes: how many points are side by side; `mask` says which of them exist
                       // (null: all)
  llvm::Value* mask = nullptr;
  llvm::Value* tile_end = nullptr;  // kernels in tiles, of outer lanes and of products: the last outer dimension runs
                                    // from outer.back() to here
  llvm::BasicBlock* failed = nullptr;
  llvm::Value* stack = nullptr;       // memory that nests use one after the other (nest_columns.cpp)
};

// An i64, for sizes only: extents and strides.
llvm::Value* eval_size(FunctionState& s, const SymExpr& e);
// A rotated loop from `from` while index < to; `body` returns the step. `carried` points to the values that each
// iteration passes to the next.
void emit_loop(FunctionState& s, llvm::Value* from, llvm::Value* to, const std::vector<llvm::Value**>& carried,
               llvm::function_ref<llvm::Value*(llvm::Value* index)> body);

}  // namespace framejit::inductor
