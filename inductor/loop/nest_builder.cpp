// inductor/loop/nest_builder.cpp — emits instructions, merges and folds them.
#include "inductor/loop/nest_builder.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace framejit::inductor {

NestBuilder::NestBuilder(uint32_t symbol_count, std::string name, SymSizes ranges, SymSizes reduced)
    : symbols_(symbol_count) {
  nest_.name = std::move(name);
  nest_.ranges = std::move(ranges);
  nest_.reduced = std::move(reduced);
}

void NestBuilder::add_origins(const std::vector<uint32_t>& nodes) {
  std::vector<uint32_t> all;
  std::set_union(nest_.origins.begin(), nest_.origins.end(), nodes.begin(), nodes.end(), std::back_inserter(all));
  nest_.origins = std::move(all);
}

std::vector<SymExpr> NestBuilder::range_dims() const {
  std::vector<SymExpr> dims;
  for (size_t d = 0; d < nest_.ranges.size(); ++d) dims.push_back(dim(d));
  return dims;
}

InstId NestBuilder::constant(double value, DType dtype) {
  LoopInst inst;
  inst.dtype = value_dtype(dtype);
  graph::ScalarValue v;
  v.f = value;
  inst.constant = graph::convert(v, DType::kFloat64, inst.dtype);
  return emit(std::move(inst));
}

InstId NestBuilder::integer(int64_t value, DType dtype) {
  LoopInst inst;
  inst.dtype = value_dtype(dtype);
  graph::ScalarValue v;
  v.i = value;
  inst.constant = graph::convert(v, DType::kInt64, inst.dtype);
  return emit(std::move(inst));
}

InstId NestBuilder::index(SymExpr value) {
  if (auto c = value.as_constant()) return integer(*c, DType::kInt64);
  LoopInst inst;
  inst.op = LoopOp::kIndex;
  inst.dtype = DType::kInt64;
  inst.index = {std::move(value)};
  return emit(std::move(inst));
}

InstId NestBuilder::load(LoopBufferId buffer, DType buffer_dtype, std::vector<SymExpr> index, InstId mask,
                         InstId other) {
  LoopInst inst;
  inst.op = LoopOp::kLoad;
  inst.operands = {mask, other, kNoInst};
  inst.dtype = value_dtype(buffer_dtype);
  inst.buffer = buffer;
  inst.index = std::move(index);
  return emit(std::move(inst));
}

void NestBuilder::store(LoopBufferId buffer, std::vector<SymExpr> index, InstId value, StoreMode mode, ReduceOp op) {
  LoopInst inst;
  inst.op = LoopOp::kStore;
  inst.dtype = nest_.body[value].dtype;
  inst.buffer = buffer;
  inst.index = std::move(index);
  inst.operands[0] = value;
  inst.mode = mode;
  inst.reduce = op;
  stores_.push_back(static_cast<InstId>(nest_.body.size()));
  nest_.body.push_back(std::move(inst));
}

SymExpr NestBuilder::checked_index(InstId value, SymExpr extent, bool wrap) {
  LoopInst inst;
  inst.op = LoopOp::kCheck;
  inst.dtype = DType::kInt64;
  inst.wrap = wrap;
  inst.operands[0] = cast(value, DType::kInt64);
  inst.index = {std::move(extent)};
  return symbols_.value(emit(std::move(inst)));
}

InstId NestBuilder::scalar(ScalarOp op, std::initializer_list<InstId> operands) {
  LoopInst inst;
  inst.op = LoopOp::kScalar;
  inst.scalar = op;
  size_t k = 0;
  for (InstId operand : operands) inst.operands[k++] = operand;
  const auto& row = graph::row_of(op);
  FJ_ASSERT(static_cast<int>(k) == row.arity, row.name);
  const DType operand_dtype = dtype(inst.operands[row.result == graph::ScalarResult::kSelect ? 1 : 0]);
  inst.dtype = row.result == graph::ScalarResult::kBoolean ? DType::kBool : operand_dtype;
  return emit(std::move(inst));
}

InstId NestBuilder::cast(InstId value, DType target) {
  target = value_dtype(target);
  if (dtype(value) == target) return value;
  LoopInst inst;
  inst.op = LoopOp::kCast;
  inst.dtype = target;
  inst.operands[0] = value;
  return emit(std::move(inst));
}

InstId NestBuilder::reduce(ReduceOp op, InstId value) { return carried(LoopOp::kReduce, op, value); }
InstId NestBuilder::scan(ReduceOp op, InstId value) { return carried(LoopOp::kScan, op, value); }

InstId NestBuilder::carried(LoopOp kind, ReduceOp op, InstId value) {
  LoopInst inst;
  inst.op = kind;
  inst.reduce = op;
  inst.dtype = is_position(op) ? DType::kInt64 : dtype(value);
  inst.operands[0] = value;
  return emit(std::move(inst));
}

InstId NestBuilder::round_to(InstId value, DType target) {
  if (target == DType::kBFloat16) return scalar(ScalarOp::k_round_bf16, {value});
  if (target == DType::kFloat16) return scalar(ScalarOp::k_round_f16, {value});
  return value;
}

namespace {

// The index expression that an instruction stands for.
std::optional<SymExpr> place_of(const LoopInst& inst) {
  if (inst.dtype != DType::kInt64) return std::nullopt;
  if (inst.op == LoopOp::kConstant) return SymExpr(inst.constant.i);
  return inst.op == LoopOp::kIndex ? std::optional(inst.index[0]) : std::nullopt;
}

// Whether a comparison of positions has the same result at every point.
std::optional<bool> settled(ScalarOp op, const SymExpr& a, const SymExpr& b, const DimBounds& bounds) {
  if (op != ScalarOp::k_lt && op != ScalarOp::k_ge && op != ScalarOp::k_eq) return std::nullopt;
  const bool below = is_always_below(a, b, bounds), above = is_never_below(a, b, bounds);
  if (op == ScalarOp::k_eq)
    return a == b ? std::optional(true) : below || is_always_below(b, a, bounds) ? std::optional(false) : std::nullopt;
  if (!below && !above) return std::nullopt;
  return below == (op == ScalarOp::k_lt);
}

}  // namespace

// Constant operands are computed. x*1, a rounding of a small integer (half precision holds it), a select on a constant,
// and the mask of a load that always or never reads are removed. x+0 stays, because it turns -0.0 into 0.0.
bool NestBuilder::fold(LoopInst& inst, InstId& existing) const {
  const auto operand = [&](int k) -> const LoopInst& { return nest_.body[inst.operands[k]]; };
  const auto is_constant = [&](int k) { return operand(k).op == LoopOp::kConstant; };
  if (inst.op == LoopOp::kCast && is_constant(0)) {
    const graph::ScalarValue value = graph::convert(operand(0).constant, operand(0).dtype, inst.dtype);
    const DType dtype = inst.dtype;
    inst = LoopInst{};
    inst.dtype = dtype;
    inst.constant = value;
    return false;
  }
  if (inst.is_masked() && is_constant(0)) {
    existing = inst.operands[1];
    const bool reads = operand(0).constant.i != 0;
    if (reads) inst.operands = {kNoInst, kNoInst, kNoInst};
    return !reads;
  }
  if (inst.op != LoopOp::kScalar) return false;
  if (inst.operand_count() == 2 && inst.dtype == DType::kBool) {
    const auto a = place_of(operand(0)), b = place_of(operand(1));
    if (const auto answer = a && b ? settled(inst.scalar, *a, *b, bounds()) : std::nullopt) {
      inst = LoopInst{};
      inst.dtype = DType::kBool;
      inst.constant.i = *answer;
      return false;
    }
  }
  if (inst.scalar == ScalarOp::k_bit_and && inst.dtype == DType::kBool) {
    for (int k = 0; k < 2; ++k) {
      if (!is_constant(k)) continue;
      existing = inst.operands[operand(k).constant.i != 0 ? 1 - k : k];
      return true;
    }
  }
  if (inst.scalar == ScalarOp::k_select && is_constant(0)) {
    existing = inst.operands[operand(0).constant.i != 0 ? 1 : 2];
    return true;
  }
  if (inst.scalar == ScalarOp::k_mul || inst.scalar == ScalarOp::k_div) {
    const bool is_one =
        is_constant(1) && (is_float(inst.dtype) ? operand(1).constant.f == 1 : operand(1).constant.i == 1);
    if (is_one) {
      existing = inst.operands[0];
      return true;
    }
  }
  const bool rounds = inst.scalar == ScalarOp::k_round_bf16 || inst.scalar == ScalarOp::k_round_f16;
  if (rounds && operand(0).op == LoopOp::kCast && row_of(nest_.body[operand(0).operands[0]].dtype).bytes == 1) {
    existing = inst.operands[0];
    return true;
  }
  graph::ScalarValue values[3] = {};
  const int count = inst.operand_count();
  for (int k = 0; k < count; ++k) {
    if (!is_constant(k)) return false;
    values[k] = operand(k).constant;
  }
  const DType operand_dtype = operand(inst.scalar == ScalarOp::k_select ? 1 : 0).dtype;
  const graph::ScalarValue value = graph::evaluate(inst.scalar, operand_dtype, {values, static_cast<size_t>(count)});
  const DType dtype = inst.dtype;
  inst = LoopInst{};
  inst.dtype = dtype;
  inst.constant = value;
  return false;
}

namespace {

size_t hash_of(const LoopInst& inst) {
  size_t hash = static_cast<size_t>(inst.constant.i);
  const auto mix = [&](size_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15u + (hash >> 29); };
  for (size_t value : {static_cast<size_t>(inst.op), static_cast<size_t>(inst.scalar), static_cast<size_t>(inst.reduce),
                       static_cast<size_t>(inst.dtype), static_cast<size_t>(inst.buffer)})
    mix(value);
  for (InstId operand : inst.operands) mix(operand);
  for (const SymExpr& e : inst.index) mix(e.hash());
  return hash;
}

}  // namespace

InstId NestBuilder::emit(LoopInst inst) {
  InstId existing = kNoInst;
  if (fold(inst, existing)) return existing;
  size_t at = 0;
  if (const auto equal = find_equal(inst, at)) return *equal;
  const auto made = static_cast<InstId>(nest_.body.size());
  slots_[at] = made;
  nest_.body.push_back(std::move(inst));
  if (2 * nest_.body.size() > slots_.size()) grow();
  return made;
}

// The existing instruction that equals this one; or nothing, and the free slot for this one.
std::optional<InstId> NestBuilder::find_equal(const LoopInst& inst, size_t& at) const {
  for (at = hash_of(inst) % slots_.size(); slots_[at] != kNoInst; at = (at + 1) % slots_.size()) {
    const InstId found = slots_[at];
    if (!(nest_.body[found] == inst)) continue;
    // A load must not be merged with an earlier one across a store to the same buffer.
    const auto overwrites = [&](InstId store) { return store > found && nest_.body[store].buffer == inst.buffer; };
    if (inst.op != LoopOp::kLoad || std::none_of(stores_.begin(), stores_.end(), overwrites)) return found;
  }
  return std::nullopt;
}

void NestBuilder::grow() {
  std::vector<InstId> old(2 * slots_.size(), kNoInst);
  old.swap(slots_);
  for (InstId inst : old) {
    if (inst == kNoInst) continue;
    size_t at = hash_of(nest_.body[inst]) % slots_.size();
    while (slots_[at] != kNoInst) at = (at + 1) % slots_.size();
    slots_[at] = inst;
  }
}

}  // namespace framejit::inductor
