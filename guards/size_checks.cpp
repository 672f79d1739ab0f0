// guards/size_checks.cpp — flattening and running of size facts.
#include "guards/size_checks.h"

#include <algorithm>

#include "graph/int64_range.h"
#include "runtime/base/exact_int.h"

namespace framejit::guards {
namespace {

using graph::Relation;
using graph::SymOp;

bool holds(int64_t left, Relation relation, int64_t right) {
  switch (relation) {
    case Relation::kEq: return left == right;
    case Relation::kNe: return left != right;
    case Relation::kLt: return left < right;
    case Relation::kLe: return left <= right;
  }
  return false;
}

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

SizeChecks::SizeChecks(const std::vector<graph::SizeFact>& facts) {
  for (const graph::SizeFact& fact : facts) {
    const uint32_t left = emit(fact.left), right = emit(fact.right);
    facts_.push_back({fact.relation, left, right, static_cast<uint32_t>(instrs_.size())});
  }
  values_.resize(instrs_.size());
}

uint32_t SizeChecks::push(Instr instr) {
  for (uint32_t i = 0; i < instrs_.size(); ++i) {
    const Instr& known = instrs_[i];
    if (known.op == instr.op && known.left == instr.left && known.right == instr.right && known.constant == instr.constant) return i;
  }
  instrs_.push_back(instr);
  return static_cast<uint32_t>(instrs_.size() - 1);
}

uint32_t SizeChecks::emit(const graph::SymExpr& e) {
  if (e.is_constant()) return push({Op::constant, 0, 0, e.constant()});
  const graph::SymExpr::Node& node = *e.node();
  auto fold = [&](Op op, uint32_t start) {
    uint32_t value = start;
    for (const graph::SymExpr& operand : node.operands) value = push({op, value, emit(operand)});
    return value;
  };
  auto pair = [&](Op op) {
    const uint32_t left = emit(node.operands[0]);
    return push({op, left, emit(node.operands[1])});
  };
  switch (node.op) {
    case SymOp::kSymbol: return push({Op::symbol, 0, 0, node.symbol});
    case SymOp::kSum: return fold(Op::add, push({Op::constant, 0, 0, node.coefficient}));
    case SymOp::kProduct: return fold(Op::multiply, push({Op::constant, 0, 0, node.coefficient}));
    case SymOp::kFloorDiv: return pair(Op::floor_div);
    case SymOp::kMod: return pair(Op::mod);
    case SymOp::kMin: return pair(Op::min);
    case SymOp::kMax: return pair(Op::max);
  }
  return 0;
}

bool SizeChecks::evaluate(const Instr& i, const int64_t* symbols, const int64_t* v, int64_t& out) {
  switch (i.op) {
    case Op::constant: out = i.constant; return true;
    case Op::symbol: out = symbols[i.constant]; return true;
    case Op::add: return exact::add(v[i.left], v[i.right], out);
    case Op::multiply: return exact::multiply(v[i.left], v[i.right], out);
    case Op::floor_div: return exact::floor_div(v[i.left], v[i.right], out);
    case Op::mod: return exact::mod(v[i.left], v[i.right], out);
    case Op::min: out = std::min(v[i.left], v[i.right]); return true;
    case Op::max: out = std::max(v[i.left], v[i.right]); return true;
  }
  return false;
}

int SizeChecks::first_failure(const int64_t* symbols) const {
  int64_t* v = values_.data();
  size_t at = 0;
  for (size_t fact = 0; fact < facts_.size(); ++fact) {
    for (; at < facts_[fact].end; ++at)
      if (!evaluate(instrs_[at], symbols, v, v[at])) return static_cast<int>(fact);
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
  auto side = [&](const graph::SymExpr& e) {
    const std::optional<int64_t> value = graph::value_of(e, symbols);
    return value ? std::to_string(*value) : std::string("no 64-bit integer");
  };
  return text_of(fact) + " but " + side(fact.left) + " and " + side(fact.right);
}

}  // namespace framejit::guards
