// guards/size_guards.cpp — flattens size facts, and runs them.
#include "guards/size_guards.h"

#include <algorithm>

#include "graph/int64_range.h"

namespace framejit::guards {
namespace {

using graph::holds;
using graph::Relation;
using graph::SymOp;
using runtime::SizeOpcode;

const char* text_of(Relation relation) {
  switch (relation) {
    case Relation::kEq: return " == ";
    case Relation::kNe: return " != ";
    case Relation::kLt: return " < ";
    case Relation::kLe: return " <= ";
  }
  return "";
}

}  // namespace

SizeGuards::SizeGuards(const std::vector<graph::SizeFact>& facts) {
  for (const graph::SizeFact& fact : facts) {
    const int32_t left = emit(fact.left), right = emit(fact.right);
    facts_.push_back({fact.relation, left, right, static_cast<int32_t>(ops_.size())});
  }
  values_.resize(ops_.size());
}

int32_t SizeGuards::push(const runtime::SizeOp& op) {
  const auto known = std::find(ops_.begin(), ops_.end(), op);
  if (known != ops_.end()) return static_cast<int32_t>(known - ops_.begin());
  ops_.push_back(op);
  return static_cast<int32_t>(ops_.size() - 1);
}

int32_t SizeGuards::emit(const graph::SymExpr& e) {
  if (e.is_constant()) return push({SizeOpcode::kConstant, e.constant()});
  const graph::SymExpr::Node& node = *e.node();
  auto fold = [&](SizeOpcode op, int32_t start) {
    int32_t value = start;
    for (const graph::SymExpr& operand : node.operands) value = push({op, 0, value, emit(operand)});
    return value;
  };
  auto pair = [&](SizeOpcode op) {
    const int32_t left = emit(node.operands[0]);
    return push({op, 0, left, emit(node.operands[1])});
  };
  switch (node.op) {
    case SymOp::kSymbol: return push({SizeOpcode::kSymbol, node.symbol});
    case SymOp::kSum: return fold(SizeOpcode::kAdd, push({SizeOpcode::kConstant, node.coefficient}));
    case SymOp::kProduct: return fold(SizeOpcode::kMul, push({SizeOpcode::kConstant, node.coefficient}));
    case SymOp::kFloorDiv: return pair(SizeOpcode::kFloorDiv);
    case SymOp::kMod: return pair(SizeOpcode::kMod);
    case SymOp::kMin: return pair(SizeOpcode::kMin);
    case SymOp::kMax: return pair(SizeOpcode::kMax);
  }
  return 0;
}

int SizeGuards::first_failure(const int64_t* symbols) const {
  int64_t* v = values_.data();
  size_t at = 0;
  for (size_t fact = 0; fact < facts_.size(); ++fact) {
    for (; at < static_cast<size_t>(facts_[fact].end); ++at)
      if (!runtime::evaluate(ops_[at], symbols, v, v[at])) return static_cast<int>(fact);
    if (!holds(v[facts_[fact].left], facts_[fact].relation, v[facts_[fact].right])) return static_cast<int>(fact);
  }
  return -1;
}

std::string text_of(const graph::SizeFact& fact) {
  if (graph::is_any_int64(fact)) return fact.right.text() + " fits in 64 bits";
  return fact.left.text() + text_of(fact.relation) + fact.right.text();
}

std::string text_of_failure(const graph::SizeFact& fact, const std::vector<int64_t>& symbols) {
  if (graph::is_any_int64(fact)) return text_of(fact) + " but does not";
  std::string values;
  for (const graph::SymExpr* side : {&fact.left, &fact.right}) {
    if (side->is_constant()) continue;
    const std::optional<int64_t> value = graph::value_of(*side, symbols);
    values += (values.empty() ? " but " : " and ") + side->text() + " is " +
              (value ? std::to_string(*value) : "not a 64-bit integer");
  }
  return text_of(fact) + values;
}

}  // namespace framejit::guards
