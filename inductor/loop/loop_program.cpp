// inductor/loop/loop_program.cpp — small questions about nests, and the verifier.
#include "inductor/loop/loop_program.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "inductor/loop/bounds_verify.h"

namespace framejit::inductor {

bool operator==(const LoopInst& a, const LoopInst& b) {
  return a.op == b.op && a.scalar == b.scalar && a.reduce == b.reduce && a.mode == b.mode && a.dtype == b.dtype &&
         a.wrap == b.wrap && a.operands == b.operands && a.buffer == b.buffer && a.index == b.index &&
         a.constant.i == b.constant.i;
}

int LoopInst::operand_count() const {
  switch (op) {
    case LoopOp::kConstant:
    case LoopOp::kIndex: return 0;
    case LoopOp::kLoad: return is_masked() ? 2 : 0;
    case LoopOp::kStore:
    case LoopOp::kCheck:
    case LoopOp::kCast:
    case LoopOp::kReduce:
    case LoopOp::kScan: return 1;
    case LoopOp::kScalar: return graph::row_of(scalar).arity;
  }
  return 0;
}

DType value_dtype(DType dtype) { return is_half(dtype) ? DType::kFloat32 : dtype; }

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kProd: return "prod";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kAny: return "any";
    case ReduceOp::kAll: return "all";
    case ReduceOp::kArgmax: return "argmax";
    case ReduceOp::kArgmin: return "argmin";
  }
  return "";
}

bool is_position(ReduceOp op) { return op == ReduceOp::kArgmax || op == ReduceOp::kArgmin; }

bool is_ordered(const LoopInst& inst) { return inst.op == LoopOp::kScan || inst.mode != StoreMode::kPlain; }

bool is_ordered(const Nest& nest) {
  return std::any_of(nest.body.begin(), nest.body.end(), [](const LoopInst& inst) { return is_ordered(inst); });
}

ScalarOp joining(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return ScalarOp::k_add;
    case ReduceOp::kProd: return ScalarOp::k_mul;
    case ReduceOp::kMax: return ScalarOp::k_maximum;
    case ReduceOp::kMin: return ScalarOp::k_minimum;
    case ReduceOp::kAny: return ScalarOp::k_bit_or;
    case ReduceOp::kAll: return ScalarOp::k_bit_and;
    case ReduceOp::kArgmax:
    case ReduceOp::kArgmin: break;
  }
  FJ_ASSERT(false, "positions are not joined");
}

void collect_uses(const LoopInst& inst, const NestSymbols& symbols, std::vector<InstId>& out) {
  for (int k = 0; k < inst.operand_count(); ++k) out.push_back(inst.operands[k]);
  for (const SymExpr& e : inst.index) {
    if (e.is_constant()) continue;
    std::vector<graph::SymbolId> ids;
    e.collect_symbols(ids);
    for (graph::SymbolId id : ids)
      if (symbols.is_value(id)) out.push_back(symbols.inst_of(id));
  }
}

std::vector<bool> inner_insts(const Nest& nest, const NestSymbols& symbols) {
  std::vector<bool> inner(nest.body.size(), false);
  for (size_t i = 0; i < nest.body.size(); ++i) {
    const LoopInst& inst = nest.body[i];
    if (inst.op == LoopOp::kReduce) continue;  // its value belongs to the outer level
    if (is_ordered(inst)) inner[i] = true;
    for (const SymExpr& e : inst.index) {
      std::vector<graph::SymbolId> ids;
      e.collect_symbols(ids);
      for (graph::SymbolId id : ids)
        if (symbols.is_dim(id) && symbols.dim_of(id) >= nest.ranges.size()) inner[i] = true;
    }
    std::vector<InstId> uses;
    collect_uses(inst, symbols, uses);
    for (InstId use : uses)
      if (inner[use]) inner[i] = true;
  }
  return inner;
}

std::vector<bool> after_reduction(const Nest& nest, const NestSymbols& symbols) {
  std::vector<bool> after(nest.body.size(), false);
  for (size_t i = 0; i < nest.body.size(); ++i) {
    after[i] = nest.body[i].op == LoopOp::kReduce;
    std::vector<InstId> uses;
    collect_uses(nest.body[i], symbols, uses);
    for (InstId use : uses)
      if (after[use]) after[i] = true;
  }
  return after;
}

namespace {

Error bad(const Nest& nest, size_t inst, const std::string& what) {
  return {Reason::not_verified, "nest " + nest.name + ", %" + std::to_string(inst) + ": " + what};
}

Result<void> verify_scalar(const Nest& nest, size_t i) {
  const LoopInst& inst = nest.body[i];
  const auto dtype = [&](int k) { return nest.body[inst.operands[k]].dtype; };
  const auto& row = graph::row_of(inst.scalar);
  const int first = row.result == graph::ScalarResult::kSelect ? 1 : 0;
  if (first == 1 && dtype(0) != DType::kBool) return bad(nest, i, "select needs a bool");
  for (int k = first + 1; k < row.arity; ++k)
    if (dtype(k) != dtype(first)) return bad(nest, i, "operands of different dtypes");
  const DType expected = row.result == graph::ScalarResult::kBoolean ? DType::kBool : dtype(first);
  if (inst.dtype != expected) return bad(nest, i, "wrong result dtype");
  return {};
}

Result<void> verify_inst(const LoopProgram& program, const Nest& nest, size_t i, const std::vector<bool>& inner,
                         const std::vector<bool>& after) {
  const NestSymbols symbols(program.symbol_count);
  const LoopInst& inst = nest.body[i];
  std::vector<InstId> uses;
  collect_uses(inst, symbols, uses);
  for (InstId use : uses)
    if (use >= i || nest.body[use].op == LoopOp::kStore)
      return bad(nest, i, "reads a value that is not defined before it");
  if (inner[i] && after[i]) return bad(nest, i, "mixes reduced dimensions with the result of a reduction");
  if (inst.op != LoopOp::kStore && inst.dtype != value_dtype(inst.dtype))
    return bad(nest, i, "half precision is not a value dtype");
  if (inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore) {
    if (inst.buffer >= program.buffers.size()) return bad(nest, i, "no such buffer");
    const LoopBuffer& buffer = program.buffers[inst.buffer];
    if (inst.index.size() != buffer.sizes.size())
      return bad(nest, i, "one index per dimension of the buffer is needed");
    const DType dtype = inst.op == LoopOp::kLoad ? inst.dtype : nest.body[inst.operands[0]].dtype;
    if (dtype != value_dtype(buffer.dtype)) return bad(nest, i, "dtype differs from the buffer's");
  }
  if (inst.is_masked() && nest.body[inst.operands[0]].dtype != DType::kBool) return bad(nest, i, "a mask is a bool");
  if (inst.is_masked() && nest.body[inst.operands[1]].dtype != inst.dtype)
    return bad(nest, i, "the other value of a masked load has another dtype");
  if ((is_carried(inst) || is_ordered(inst)) && !nest.is_reduction()) return bad(nest, i, "reduces over nothing");
  if (inst.op == LoopOp::kStore && !is_ordered(inst) && uses.size() > 1)
    return bad(nest, i, "stores at an index from data, without an order");
  if (inst.mode == StoreMode::kJoin && is_position(inst.reduce)) return bad(nest, i, "positions are not joined");
  if (inst.op == LoopOp::kReduce && after[inst.operands[0]]) return bad(nest, i, "reduces the result of a reduction");
  if (inst.op == LoopOp::kScalar) FJ_TRY_VOID(verify_scalar(nest, i));
  for (const SymExpr& e : inst.index) {
    std::vector<graph::SymbolId> ids;
    e.collect_symbols(ids);
    for (graph::SymbolId id : ids) {
      if (symbols.is_dim(id) && symbols.dim_of(id) >= nest.dim_count()) return bad(nest, i, "no such dimension");
      if (symbols.is_value(id) && nest.body[symbols.inst_of(id)].dtype != DType::kInt64)
        return bad(nest, i, "an index is an i64");
    }
  }
  return {};
}

// Stores run in the order of their places before and after reductions, not in the order of the body.
bool stores_again(const Nest& nest, size_t at) {
  const LoopInst& again = nest.body[at];
  return again.op == LoopOp::kStore && again.mode == StoreMode::kPlain &&
         std::any_of(nest.body.begin(), nest.body.begin() + static_cast<std::ptrdiff_t>(at), [&](const LoopInst& inst) {
           return inst.op == LoopOp::kStore && inst.buffer == again.buffer && inst.index == again.index;
         });
}

}  // namespace

Result<void> verify(const LoopProgram& program, const Nest& nest, std::span<const int64_t> hints) {
  if (nest.dim_count() > kMaxDims) return Error{Reason::not_verified, "nest " + nest.name + " has too many dimensions"};
  const NestSymbols symbols(program.symbol_count);
  const auto inner = inner_insts(nest, symbols), after = after_reduction(nest, symbols);
  for (size_t i = 0; i < nest.body.size(); ++i) {
    FJ_TRY_VOID(verify_inst(program, nest, i, inner, after));
    if (stores_again(nest, i)) return bad(nest, i, "stores an element that the nest has stored");
  }
  return verify_bounds(program, nest, hints);
}

Result<void> verify(const LoopProgram& program, std::span<const int64_t> hints) {
  std::set<std::string_view> names;
  for (const auto& item : program.items) {
    const Nest* nest = std::get_if<Nest>(&item);
    if (nest == nullptr) continue;
    if (!names.insert(nest->name).second) return Error{Reason::not_verified, "two nests are named " + nest->name};
    FJ_TRY_VOID(verify(program, *nest, hints));
  }
  return {};
}

}  // namespace framejit::inductor
