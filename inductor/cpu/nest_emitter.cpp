// inductor/cpu/nest_emitter.cpp — levels and loops.
#include "inductor/cpu/nest_emitter.h"

#include <algorithm>

#include "inductor/cpu/nest_columns.h"
#include "inductor/cpu/nest_searches.h"

namespace framejit::inductor {

using llvm::Value;

NestEmitter::NestEmitter(NestState& state)
    : NestPart(state),
      state_(state),
      indices_(state),
      prefetches_(state, indices_),
      masks_(state, indices_),
      tiles_(state, indices_, prefetches_),
      memory_(state, indices_, prefetches_, masks_, tiles_),
      instructions_(state, indices_, masks_, memory_),
      positions_(state, indices_),
      reductions_(state, positions_),
      scans_(state, positions_) {}

void NestEmitter::run() {
  Accumulators none;
  emit_level(0, none, none);
}

void NestEmitter::emit_insts(size_t level, Accumulators& main) {
  for (size_t i = 0; i < nest_.body.size(); ++i)
    if (plan_.insts[i].level == level && !plan_.insts[i].is_after)
      nest_.body[i].op == LoopOp::kScan ? scans_.scan(static_cast<InstId>(i), main)
                                        : instructions_.emit(static_cast<InstId>(i));
}

// Emits everything inside the first `level` loops. `main` and `tail` are the accumulators there; both are updated in
// place.
void NestEmitter::emit_level(size_t level, Accumulators& main, Accumulators& tail) {
  emit_insts(level, main);
  const bool starts_reduction = nest_.is_reduction() && level == plan_.range_levels;
  if (!starts_reduction) {
    emit_deeper(level, main, tail);
    return;
  }
  Accumulators own_main = reductions_.neutral(plan_.lanes.is_reduced ? plan_.lanes.wide() : lanes_);
  Accumulators own_tail = plan_.lanes.is_reduced ? reductions_.neutral(width()) : Accumulators{};
  emit_deeper(level, own_main, own_tail);
  emit_results(own_main, own_tail);
}

void NestEmitter::emit_results(Accumulators& main, Accumulators& tail) {
  reductions_.fold_lanes(main, tail);
  for (size_t i = 0; i < nest_.body.size(); ++i)
    if (plan_.insts[i].is_after && nest_.body[i].op != LoopOp::kReduce) instructions_.emit(static_cast<InstId>(i));
}

void NestEmitter::emit_deeper(size_t level, Accumulators& main, Accumulators& tail) {
  if (kernel_.in_tiles && in_lanes() && level + 1 == plan_.loops.size()) {
    if (plan_.register_tile) return tiles_.each_in_registers([&] { emit_level(level + 1, main, tail); });
    tiles_.fill();
  }
  if (level < plan_.loops.size()) {
    plan_.loops[level].dim == plan_.lanes.dim ? emit_vector_loop(level, main, tail)
                                              : emit_scalar_loop(level, main, tail);
  } else if (nest_.is_reduction()) {
    reductions_.accumulate(in_tail_ && plan_.lanes.is_reduced ? tail : main);
  }
}

// In place, because loops hold pointers to the elements.
static void replace(Accumulators& set, const Accumulators& by) { std::copy(by.begin(), by.end(), set.begin()); }

// The loop as blocks of `blocks.steps` steps; sums start anew in each.
void NestEmitter::emit_blocks(const SumBlocks& blocks, int depth, Value* from, Value* to, int64_t step,
                              const Sets& sets, LoopBody body) {
  if (depth == 0) return emit_carrying(s_, from, to, number(step), sets, body);
  const int64_t span = step * blocks.steps * (depth == 2 ? kFanOut : 1);
  emit_carrying(s_, from, to, number(span), sets, [&](Value* index) {
    std::vector<Accumulators> totals;
    for (Accumulators* set : sets) {
      totals.push_back(*set);
      replace(*set, reductions_.restarted(*set));
    }
    Value* end = s_.least(b_.CreateNSWAdd(index, number(span)), to);
    emit_blocks(blocks, depth - 1, index, end, step, sets, body);
    for (size_t k = 0; k < sets.size(); ++k) replace(*sets[k], reductions_.joined(totals[k], *sets[k]));
  });
}

void NestEmitter::emit_scalar_loop(size_t level, Accumulators& main, Accumulators& tail) {
  const LoopPlan& loop = plan_.loops[level];
  const size_t d = loop.dim;
  const bool is_tile = kernel_.in_tiles && level + 1 == plan_.loops.size();
  Value *from = is_tile ? s_.outer.back() : b_.getInt64(0), *to = is_tile ? s_.tile_end : indices_.extent(d);
  const auto point = [&](Value* index) {
    dims_[d] = index;
    emit_level(level + 1, main, tail);
  };
  if (loop.points > 1) from = emit_walk(static_cast<uint64_t>(loop.points), from, to, {&main, &tail}, point);
  emit_blocks(loop.blocks, loop.blocks.depth, from, to, 1, {&main, &tail}, point);
}

// Several points per iteration. Returns where it stopped.
Value* NestEmitter::emit_walk(uint64_t points, Value* from, Value* to, const Sets& sets, LoopBody point) {
  Value* end = b_.CreateAdd(from, b_.CreateAnd(b_.CreateSub(to, from), b_.getInt64(~(points - 1))));
  emit_carrying(s_, from, end, b_.getInt64(points), sets, [&](Value* index) {
    for (uint64_t k = 0; k < points; ++k) point(k == 0 ? index : b_.CreateNSWAdd(index, b_.getInt64(k)));
  });
  return end;
}

// Several streams per iteration. In a short range they are neighbours. In a long range each has its own part, because
// memory serves several streams faster than one. Returns where it stopped.
Value* NestEmitter::emit_streams(size_t level, Value* from, Value* to) {
  constexpr int64_t kApart = kFlatUnit;
  const int64_t lanes = plan_.lanes.main_lanes, streams = plan_.lanes.unroll;
  const auto whole = [&](Value* count, int64_t part) { return b_.CreateAnd(count, number(~(part - 1))); };
  Value* count = b_.CreateSub(to, from);
  Value* part = b_.CreateUDiv(count, number(streams));
  Value* is_long = b_.CreateICmpSGE(part, number(plan_.lanes.part_points));
  // Parts begin an odd number of cache lines apart: at powers of two, all streams would compete for the same few ways
  // of a cache.
  Value* odd = b_.CreateAdd(whole(b_.CreateSub(part, number(kApart)), 2 * kApart), number(kApart));
  Value* apart = b_.CreateSelect(is_long, odd, number(lanes));
  Value* step = b_.CreateSelect(is_long, number(lanes), number(lanes * streams));
  Value* walked = b_.CreateSelect(is_long, odd, whole(count, lanes * streams));
  Accumulators none;
  lanes_ = static_cast<unsigned>(lanes);
  emit_carrying(s_, from, b_.CreateAdd(from, walked), step, {}, [&](Value* index) {
    for (int64_t k = 0; k < streams; ++k) {
      dims_[plan_.lanes.dim] = index;
      emit_level(level + 1, none, none);
      if (k + 1 < streams) index = b_.CreateNSWAdd(index, apart);
    }
  });
  return b_.CreateAdd(from, b_.CreateSelect(is_long, b_.CreateMul(odd, number(streams)), walked));
}

// Returns where the main loop ends.
Value* NestEmitter::emit_main_loop(size_t level, Value* from, Value* to, Accumulators& main, Accumulators& tail) {
  const LanesPlan& lanes = plan_.lanes;
  if (lanes.main == MainLoop::kStreams) return emit_streams(level, from, to);
  const uint64_t wide = lanes.wide();
  Value* count = b_.CreateSub(to, from);
  Value* end = b_.CreateAdd(from, b_.CreateAnd(count, b_.getInt64(~(wide - 1))));
  if (lanes.main_end) end = number(*lanes.main_end);
  if (lanes.is_even) end = to;
  lanes_ = lanes.wide();
  if (lanes.main == MainLoop::kSearch) {
    const auto body = [&] { emit_insts(level + 1, main); };
    Search(state_, positions_, body).emit(from, end, main[0]);
  } else if (lanes.main == MainLoop::kSlabs) {
    const auto row = [&](Accumulators& set) {
      emit_insts(plan_.loops.size(), set);
      reductions_.accumulate(set);
    };
    const auto results = [&](Accumulators& set) {
      Accumulators none;
      emit_results(set, none);
    };
    Columns(state_, indices_, reductions_, row, results).emit(from, end);
  } else {
    const SumBlocks& blocks = plan_.loops[level].blocks;
    emit_blocks(blocks, blocks.depth, from, end, static_cast<int64_t>(wide), {&main}, [&](Value* index) {
      dims_[lanes.dim] = index;
      prefetches_.next_row();
      emit_level(level + 1, main, tail);
    });
  }
  return end;
}

void NestEmitter::emit_vector_loop(size_t level, Accumulators& main, Accumulators& tail) {
  const LanesPlan& lanes = plan_.lanes;
  Value* from = lanes.is_part ? s_.begin : b_.getInt64(0);
  Value* to = lanes.is_part ? s_.end : indices_.extent(lanes.dim);
  const bool has_main = lanes.main != MainLoop::kNone;
  Value* middle = has_main ? emit_main_loop(level, from, to, main, tail) : from;
  if (lanes.has_tail) {
    lanes_ = lanes.width;
    in_tail_ = true;
    const SumBlocks& blocks = plan_.loops[level].blocks;
    emit_blocks(blocks, has_main ? 0 : blocks.depth, middle, to, lanes.width, {lanes.is_reduced ? &tail : &main},
                [&](Value* index) {
                  dims_[lanes.dim] = index;
                  mask_ = ops_.first_lanes(b_.CreateSub(to, index), lanes.width);
                  emit_level(level + 1, main, tail);
                });
    mask_ = nullptr;
    in_tail_ = false;
  }
  lanes_ = 0;
}

}  // namespace framejit::inductor
