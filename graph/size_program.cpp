// graph/size_program.cpp — see size_program.h.
#include "graph/size_program.h"

#include <algorithm>

namespace framejit::graph {

using runtime::SizeOpcode;

namespace {

SizeOpcode opcode_of(SymOp op) {
  switch (op) {
    case SymOp::kSymbol: return SizeOpcode::kSymbol;
    case SymOp::kSum: return SizeOpcode::kAdd;
    case SymOp::kProduct: return SizeOpcode::kMul;
    case SymOp::kFloorDiv: return SizeOpcode::kFloorDiv;
    case SymOp::kMod: return SizeOpcode::kMod;
    case SymOp::kMin: return SizeOpcode::kMin;
    case SymOp::kMax: return SizeOpcode::kMax;
  }
  return SizeOpcode::kConstant;
}

// The coefficient of a sum or product, if it is not neutral.
bool has_coefficient(const SymExpr::Node& node) {
  return (node.op == SymOp::kSum && node.coefficient != 0) || (node.op == SymOp::kProduct && node.coefficient != 1);
}

}  // namespace

int32_t SizeProgram::push(const runtime::SizeOp& op) {
  const auto known = std::ranges::find(ops_, op);
  if (known != ops_.end()) return static_cast<int32_t>(known - ops_.begin());
  ops_.push_back(op);
  return static_cast<int32_t>(ops_.size() - 1);
}

int32_t SizeProgram::slot(const SymExpr& e) {
  if (e.is_constant()) return push({SizeOpcode::kConstant, e.constant()});
  const SymExpr::Node& node = *e.node();
  if (node.op == SymOp::kSymbol) return push({SizeOpcode::kSymbol, static_cast<int64_t>(node.symbol)});
  int32_t value = slot(has_coefficient(node) ? SymExpr(node.coefficient) : node.operands[0]);
  for (size_t i = has_coefficient(node) ? 0 : 1; i < node.operands.size(); ++i)
    value = push({opcode_of(node.op), 0, value, slot(node.operands[i])});
  return value;
}

}  // namespace framejit::graph
