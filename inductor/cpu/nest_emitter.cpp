// inductor/cpu/nest_emitter.cpp — levels and loops.
#include "inductor/cpu/nest_emitter.h"

#include <algorithm>

#include "inductor/cpu/lane_math.h"
#include "inductor/kernel/loop_shape.h"
#include "inductor/loop/op_costs.h"

namespace framejit::inductor {

using llvm::BasicBlock;
using llvm::Value;

NestEmitter::NestEmitter(FunctionState& state, const Kernel& kernel, const KernelNest& n, const EmitOptions& options)
    : s_(state),
      b_(state.b),
      ops_(state.ops),
      kernel_(kernel),
      n_(n),
      nest_(n.nest),
      bf16_(state.bf16_of(n)),
      symbols_(kernel.symbol_count),
      target_(options.target),
      costs_(options.target.costs),
      width_(options.lanes),
      registers_(options.registers) {
  dims_.assign(nest_.dim_count(), nullptr);
  for (size_t d = 0; d < state.outer.size(); ++d) dims_[d] = state.outer[d];
  values_.assign(nest_.body.size(), nullptr);
  tiles_.assign(nest_.body.size(), nullptr);
  order_ = n.order;
  if (kernel.in_tiles) order_.push_back(kernel.outer.size() - 1);
  while (range_levels_ < order_.size() && order_[range_levels_] < nest_.ranges.size()) ++range_levels_;
  if (kernel.lanes_outer) {
    lanes_ = state.lanes;
    mask_ = state.mask;
  }
  find_levels();
  choose_positions();
  choose_unroll();
  splits_lanes_ = wants_split_lanes();
  blocks_ = plan_sum_blocks(n_, width_ * unroll_);
  blocks_.resize(order_.size());
  if (has_slabs_) blocks_.back() = slab_blocks(blocks_.back());
  is_compensated_ = std::any_of(blocks_.begin(), blocks_.end(), [](const SumBlocks& s) { return s.depth == 2; });
}

void NestEmitter::run() {
  Accumulators none;
  emit_level(0, none, none);
}

void NestEmitter::find_levels() {
  after_ = after_reduction(nest_, symbols_);
  level_.assign(nest_.body.size(), 0);
  for (size_t i = 0; i < nest_.body.size(); ++i) {
    const LoopInst& inst = nest_.body[i];
    if (after_[i]) {
      level_[i] = range_levels_;
      continue;
    }
    for (size_t d = nest_.ranges.size(); is_ordered(inst) && d < nest_.dim_count(); ++d)
      level_[i] = std::max(level_[i], level_of_dim(d));
    for (const SymExpr& e : inst.index) {
      std::vector<graph::SymbolId> ids;
      e.collect_symbols(ids);
      for (graph::SymbolId id : ids)
        if (symbols_.is_dim(id)) level_[i] = std::max(level_[i], level_of_dim(symbols_.dim_of(id)));
    }
    std::vector<InstId> uses;
    collect_uses(inst, symbols_, uses);
    for (InstId use : uses) level_[i] = std::max(level_[i], level_[use]);
  }
}

size_t NestEmitter::level_of_dim(size_t d) const {
  for (size_t k = 0; k < order_.size(); ++k)
    if (order_[k] == d) return k + 1;
  return 0;
}

// Over the dimensions from `first_dim` on. Sizes that are not known may be any.
bool NestEmitter::has_at_most(int64_t points, size_t first_dim) const {
  int64_t count = 1;
  for (size_t d = first_dim; d < nest_.dim_count() && count <= points; ++d)
    count *= nest_.extent(d).as_constant().value_or(points + 1);
  return count <= points;
}

// Light bodies are unrolled, so that loads overlap; heavy ones have parallelism of their own.
void NestEmitter::choose_unroll() {
  size_t weight = 0;
  bool narrow = false;
  const std::vector<bool> aside = only_borders();
  const bool has_rows =
      !order_.empty() && is_ordered(nest_) && order_.back() == n_.vector_dim;  // the lanes are the innermost loop
  for (size_t i = 0; i < nest_.body.size(); ++i) {
    const LoopInst& inst = nest_.body[i];
    if (has_rows && level_[i] < order_.size()) continue;  // once for all lanes
    if (vector_is_reduced() && after_[i]) continue;       // once, of no lanes
    const bool has_position = is_carried(inst) && is_position(inst.reduce);
    if (aside[i]) continue;
    narrow |=
        inst.op == LoopOp::kCheck || (inst.dtype == DType::kInt64 && !has_position) || inst.dtype == DType::kFloat64;
    narrow |= has_position && !has_short_positions_;
    narrow |= (inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore) && !is_contiguous(inst) && !is_tiled(inst);
    if (inst.op != LoopOp::kScalar) continue;
    weight += static_cast<size_t>(cost_of(inst) < kFunctionCost ? 1 : kFunctionCost);
  }
  is_light_ = weight <= static_cast<size_t>(costs_.light_instructions);
  unroll_ = narrow || weight > 2 * registers_ ? 1 : weight > registers_ ? 2
                                                                        : 4;
  if (!narrow && weight > 2 * registers_ && chain_weight() * 2 > weight) unroll_ = chain_unroll();
  if (has_at_most(costs_.unrolled_points)) unroll_ = 1;
  if (!narrow) unroll_ = kernel_.unroll >= 0 ? unroll_ << kernel_.unroll : std::max(unroll_ >> -kernel_.unroll, 1u);
  if (kernel_.in_tiles)
    unroll_ = std::min(unroll_, std::max(static_cast<unsigned>(tile_line(kernel_, target_)) / width_, 1u));
  if (!has_vector()) return;
  has_slabs_ = unroll_ >= 4 && weight <= static_cast<size_t>(costs_.slab_instructions) && may_walk_in_slabs();
  const auto extent = nest_.extent(n_.vector_dim).as_constant();
  while (extent && unroll_ > 1 && *extent < static_cast<int64_t>(width_ * unroll_)) unroll_ /= 2;
}

// Points side by side where instruction waits for instruction, over more of them than a CPU looks ahead: few values
// live at a time, so that registers allow it. 30 sigmoids of 22607 points take 0.66 ms, two registers of points at once
// 0.35, four 0.20 (AVX-512, Zen 5).
unsigned NestEmitter::chain_unroll() const {
  const bool is_wide = std::any_of(nest_.body.begin(), nest_.body.end(), [](const LoopInst& inst) {
    return inst.op == LoopOp::kScalar && is_widened(inst.scalar);
  });
  return std::max(registers_ / static_cast<unsigned>(is_wide ? costs_.wide_chain_registers : costs_.chain_registers),
                  1u);
}

// Of the longest row of instructions each of which needs the one before.
size_t NestEmitter::chain_weight() const {
  std::vector<size_t> until(nest_.body.size(), 0);
  size_t longest = 0;
  for (size_t i = 0; i < nest_.body.size(); ++i) {
    const LoopInst& inst = nest_.body[i];
    for (InstId operand : inst.operands)
      if (operand != kNoInst) until[i] = std::max(until[i], until[operand]);
    if (inst.op == LoopOp::kScalar) until[i] += cost_of(inst) < kFunctionCost ? 1 : kFunctionCost;
    longest = std::max(longest, until[i]);
  }
  return longest;
}

bool NestEmitter::is_contiguous(const LoopInst& inst) const {
  if (!has_vector()) return true;
  SymExpr coefficient, rest;
  return split_linear(inst.index[0], symbols_.dim(n_.vector_dim), coefficient, rest) &&
         (coefficient == SymExpr(0) || coefficient == SymExpr(1));
}

void NestEmitter::emit_insts(size_t level, Accumulators& main) {
  for (size_t i = 0; i < nest_.body.size(); ++i)
    if (level_[i] == level && !after_[i])
      nest_.body[i].op == LoopOp::kScan ? scan(static_cast<InstId>(i), main) : emit_inst(static_cast<InstId>(i));
}

// Emits everything inside the first `level` loops. `main` and `tail` are the accumulators there; both are updated in
// place.
void NestEmitter::emit_level(size_t level, Accumulators& main, Accumulators& tail) {
  emit_insts(level, main);
  const bool starts_reduction = nest_.is_reduction() && level == range_levels_;
  if (!starts_reduction) {
    emit_deeper(level, main, tail);
    return;
  }
  Accumulators own_main = neutral(vector_is_reduced() ? width_ * unroll_ : lanes_);
  Accumulators own_tail = vector_is_reduced() ? neutral(width_) : Accumulators{};
  emit_deeper(level, own_main, own_tail);
  emit_results(own_main, own_tail);
}

void NestEmitter::emit_results(Accumulators& main, Accumulators& tail) {
  finish_reductions(main, tail);
  for (size_t i = 0; i < nest_.body.size(); ++i)
    if (after_[i] && nest_.body[i].op != LoopOp::kReduce) emit_inst(static_cast<InstId>(i));
}

void NestEmitter::emit_deeper(size_t level, Accumulators& main, Accumulators& tail) {
  if (kernel_.in_tiles && in_vector() && level + 1 == order_.size()) {
    if (const auto load = load_in_registers()) return emit_points_in_registers(*load, level, main, tail);
    fill_tiles();
  }
  if (level < order_.size()) {
    order_[level] == n_.vector_dim ? emit_vector_loop(level, main, tail) : emit_scalar_loop(level, main, tail);
  } else if (nest_.is_reduction()) {
    accumulate(in_tail_ && vector_is_reduced() ? tail : main);
  }
}

// `body` gets the index and updates the accumulators of `sets`, which are carried.
void NestEmitter::emit_loop(Value* from, Value* to, Value* step, const Sets& sets, LoopBody body) {
  std::vector<Value**> carried;
  for (Accumulators* set : sets)
    for (Accumulator& a : *set)
      for (Value** v : {&a.value, &a.position, &a.lost})
        if (*v != nullptr) carried.push_back(v);
  inductor::emit_loop(s_, from, to, carried, [&](Value* index) {
    body(index);
    return step;
  });
}

// In place: loops hold pointers to the elements.
static void replace(Accumulators& set, const Accumulators& by) { std::copy(by.begin(), by.end(), set.begin()); }

// The loop as blocks of `blocks.steps` steps, with sums that start anew in each.
void NestEmitter::emit_blocks(const SumBlocks& blocks, int depth, Value* from, Value* to, int64_t step,
                              const Sets& sets, LoopBody body) {
  if (depth == 0) return emit_loop(from, to, b_.getInt64(static_cast<uint64_t>(step)), sets, body);
  const int64_t span = step * blocks.steps * (depth == 2 ? kFanOut : 1);
  emit_loop(from, to, b_.getInt64(static_cast<uint64_t>(span)), sets, [&](Value* index) {
    std::vector<Accumulators> totals;
    for (Accumulators* set : sets) {
      totals.push_back(*set);
      replace(*set, restarted(*set));
    }
    Value* end = s_.least(b_.CreateNSWAdd(index, b_.getInt64(static_cast<uint64_t>(span))), to);
    emit_blocks(blocks, depth - 1, index, end, step, sets, body);
    for (size_t k = 0; k < sets.size(); ++k) replace(*sets[k], joined(totals[k], *sets[k]));
  });
}

void NestEmitter::emit_scalar_loop(size_t level, Accumulators& main, Accumulators& tail) {
  const size_t d = order_[level];
  const bool is_tile = kernel_.in_tiles && level + 1 == order_.size();
  Value *from = is_tile ? s_.outer.back() : b_.getInt64(0), *to = is_tile ? s_.tile_end : extent(d);
  const auto point = [&](Value* index) {
    dims_[d] = index;
    emit_level(level + 1, main, tail);
  };
  if (is_walk(level)) from = emit_walk(from, to, {&main, &tail}, point);
  emit_blocks(blocks_[level], blocks_[level].depth, from, to, 1, {&main, &tail}, point);
}

// The innermost loop of an ordered nest or over the points of a tile, with few instructions a point.
bool NestEmitter::is_walk(size_t level) const {
  return level + 1 == order_.size() && (is_ordered(nest_) || kernel_.in_tiles) &&
         nest_.body.size() <= static_cast<size_t>(costs_.walked_instructions) && blocks_[level].depth == 0;
}

// Several points a turn, so that counting and addresses do not hold up what is carried. Answers with where it stopped.
Value* NestEmitter::emit_walk(Value* from, Value* to, const Sets& sets, LoopBody point) {
  const auto points = static_cast<uint64_t>(costs_.walked_points);
  Value* end = b_.CreateAdd(from, b_.CreateAnd(b_.CreateSub(to, from), b_.getInt64(~(points - 1))));
  emit_loop(from, end, b_.getInt64(points), sets, [&](Value* index) {
    for (uint64_t k = 0; k < points; ++k) point(k == 0 ? index : b_.CreateNSWAdd(index, b_.getInt64(k)));
  });
  return end;
}

// Heavy bodies are not held up by memory, and are better off with vectors that one instruction after the other takes
// together.
bool NestEmitter::has_streams() const {
  return kernel_.is_flat && is_light_ && unroll_ > 1 && order_.size() == 1 && !nest_.is_reduction() &&
         !is_ordered(nest_);
}

// Several streams a turn: neighbours in a short range, each in a part of its own in a long one, since memory answers
// several streams sooner than one. Answers with where it stopped.
Value* NestEmitter::emit_streams(size_t level, Value* from, Value* to) {
  constexpr uint64_t kApart = kFlatUnit;
  const uint64_t lanes = main_lanes(), streams = unroll_;
  const auto number = [&](uint64_t n) { return b_.getInt64(n); };
  const auto whole = [&](Value* count, uint64_t part) { return b_.CreateAnd(count, number(~(part - 1))); };
  Value* count = b_.CreateSub(to, from);
  Value* part = b_.CreateUDiv(count, number(streams));
  Value* is_long = b_.CreateICmpSGE(part, number(static_cast<uint64_t>(costs_.stream_points)));
  // Parts begin an odd number of lines apart: at powers of two all streams would wait for the same few ways of a cache.
  Value* odd = b_.CreateAdd(whole(b_.CreateSub(part, number(kApart)), 2 * kApart), number(kApart));
  Value* apart = b_.CreateSelect(is_long, odd, number(lanes));
  Value* step = b_.CreateSelect(is_long, number(lanes), number(lanes * streams));
  Value* walked = b_.CreateSelect(is_long, odd, whole(count, lanes * streams));
  Accumulators none;
  lanes_ = static_cast<unsigned>(lanes);
  emit_loop(from, b_.CreateAdd(from, walked), step, {}, [&](Value* index) {
    for (uint64_t k = 0; k < streams; ++k) {
      dims_[n_.vector_dim] = index;
      emit_level(level + 1, none, none);
      if (k + 1 < streams) index = b_.CreateNSWAdd(index, apart);
    }
  });
  return b_.CreateAdd(from, b_.CreateSelect(is_long, b_.CreateMul(odd, number(streams)), walked));
}

// Lanes of one body in the main loop.
unsigned NestEmitter::main_lanes() const {
  if (!has_streams()) return width_ * unroll_;
  const bool has_halves = std::any_of(nest_.body.begin(), nest_.body.end(), [&](const LoopInst& i) {
    return is_address(i) && row_of(kernel_.buffers[i.buffer].dtype).bytes < 4;
  });
  return has_halves ? width_ * 2 : width_;
}

bool NestEmitter::has_main_loop(std::optional<int64_t> extent) const {
  const int64_t wide = width_ * unroll_;
  return !extent || *extent >= wide;
}

void NestEmitter::emit_vector_loop(size_t level, Accumulators& main, Accumulators& tail) {
  const size_t d = n_.vector_dim;
  const bool is_part = kernel_.is_flat && !kernel_.is_whole();
  Value* from = is_part ? s_.begin : b_.getInt64(0);
  Value* to = is_part ? s_.end : extent(d);
  const auto size = nest_.extent(d).as_constant(), constant = is_part ? std::nullopt : size;
  const unsigned wide = width_ * unroll_;
  const bool is_even = size && *size % wide == 0 && (!is_part || kFlatUnit % wide == 0);  // nothing is left to a tail
  Value* middle = from;
  const bool is_main_emitted = has_main_loop(constant);
  if (is_main_emitted && has_streams()) {
    middle = emit_streams(level, from, to);
  } else if (is_main_emitted) {
    Value* count = b_.CreateSub(to, from);
    middle = b_.CreateAdd(from, b_.CreateAnd(count, b_.getInt64(~static_cast<uint64_t>(wide - 1))));
    if (constant) middle = b_.getInt64(static_cast<uint64_t>(*constant / wide * wide));
    if (is_even) middle = to;
    lanes_ = width_ * unroll_;
    if (is_search()) {
      emit_search(level, from, middle, main[0]);
    } else if (has_slabs_) {
      emit_columns(from, middle);
    } else {
      emit_blocks(blocks_[level], blocks_[level].depth, from, middle, wide, {&main}, [&](Value* index) {
        dims_[d] = index;
        prefetch_next_row();
        emit_level(level + 1, main, tail);
      });
    }
  }
  if (middle != to) {  // numbers that are equal are one
    lanes_ = width_;
    in_tail_ = true;
    const int depth = is_main_emitted ? 0 : blocks_[level].depth;
    emit_blocks(blocks_[level], depth, middle, to, width_, {vector_is_reduced() ? &tail : &main}, [&](Value* index) {
      dims_[d] = index;
      mask_ = ops_.first_lanes(b_.CreateSub(to, index), width_);
      emit_level(level + 1, main, tail);
    });
    mask_ = nullptr;
    in_tail_ = false;
  }
  lanes_ = 0;
}
}  // namespace framejit::inductor
