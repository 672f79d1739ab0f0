#include "inductor/cpu/function_state.h"

namespace framejit::inductor {

using llvm::BasicBlock;
using llvm::Value;

Value* eval_size(FunctionState& s, const SymExpr& e) {
  if (e.is_constant()) return s.b.getInt64(static_cast<uint64_t>(e.constant()));
  const SymExpr::Node& node = *e.node();
  if (node.op == graph::SymOp::kSymbol) return s.symbols[node.symbol];
  Value* total = nullptr;
  std::vector<Value*> v;
  for (const SymExpr& x : node.operands) v.push_back(eval_size(s, x));
  if (node.op == graph::SymOp::kSum || node.op == graph::SymOp::kProduct) {
    total = s.b.getInt64(static_cast<uint64_t>(node.coefficient));
    for (Value* x : v) total = node.op == graph::SymOp::kSum ? s.b.CreateAdd(total, x) : s.b.CreateMul(total, x);
    return total;
  }
  if (node.op == graph::SymOp::kMin) return s.b.CreateSelect(s.b.CreateICmpSLT(v[0], v[1]), v[0], v[1]);
  if (node.op == graph::SymOp::kMax) return s.b.CreateSelect(s.b.CreateICmpSGT(v[0], v[1]), v[0], v[1]);
  Value* pair[2] = {v[0], v[1]};
  return s.ops.scalar_op(node.op == graph::SymOp::kFloorDiv ? ScalarOp::k_floor_div : ScalarOp::k_rem, DType::kInt64,
                         pair);
}

void emit_loop(FunctionState& s, Value* from, Value* to, const std::vector<Value**>& carried,
               llvm::function_ref<Value*(Value* index)> body) {
  Value* runs = s.b.CreateICmpSLT(from, to);  // folded if both are constants
  if (runs == s.b.getFalse()) return;
  const bool runs_always = runs == s.b.getTrue();
  BasicBlock* before = s.b.GetInsertBlock();
  BasicBlock* inside = BasicBlock::Create(s.b.getContext(), "loop", s.function);
  BasicBlock* after = BasicBlock::Create(s.b.getContext(), "end", s.function);
  std::vector<Value*> initial;
  for (Value** v : carried) initial.push_back(*v);
  runs_always ? s.b.CreateBr(inside) : s.b.CreateCondBr(runs, inside, after);
  s.b.SetInsertPoint(inside);
  llvm::PHINode* index = s.b.CreatePHI(s.b.getInt64Ty(), 2);
  index->addIncoming(from, before);
  std::vector<llvm::PHINode*> phis;
  for (size_t k = 0; k < carried.size(); ++k) {
    phis.push_back(s.b.CreatePHI(initial[k]->getType(), 2));
    phis[k]->addIncoming(initial[k], before);
    *carried[k] = phis[k];
  }
  Value* next = s.b.CreateNSWAdd(index, body(index));
  BasicBlock* latch = s.b.GetInsertBlock();
  index->addIncoming(next, latch);
  for (size_t k = 0; k < carried.size(); ++k) phis[k]->addIncoming(*carried[k], latch);
  s.b.CreateCondBr(s.b.CreateICmpSLT(next, to), inside, after);
  s.b.SetInsertPoint(after);
  if (runs_always) return;
  for (size_t k = 0; k < carried.size(); ++k) {
    llvm::PHINode* out = s.b.CreatePHI(initial[k]->getType(), 2);
    out->addIncoming(initial[k], before);
    out->addIncoming(*carried[k], latch);
    *carried[k] = out;
  }
}

}  // namespace framejit::inductor
