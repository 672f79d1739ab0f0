// inductor/schedule/regions.cpp — splits stores into regions, and makes the masks by which a position finds its region.
#include "inductor/schedule/regions.h"

#include <algorithm>

#include "inductor/schedule/body_copy.h"

namespace framejit::inductor {
namespace {

std::optional<Region> region_of(const Nest& nest, const NestSymbols& symbols, LoopBufferId buffer) {
  if (nest.is_reduction()) return std::nullopt;
  Region region{&nest, kNoInst, {}, {}};
  for (size_t i = 0; i < nest.body.size(); ++i) {
    if (nest.body[i].op == LoopOp::kLoad && nest.body[i].buffer == buffer) return std::nullopt;
    if (nest.body[i].op != LoopOp::kStore) continue;
    if (region.store != kNoInst || nest.body[i].buffer != buffer) return std::nullopt;
    region.store = static_cast<InstId>(i);
  }
  if (region.store == kNoInst) return std::nullopt;
  std::vector<bool> steps(nest.ranges.size(), false);
  for (const SymExpr& place : nest.body[region.store].index) {
    size_t dim = SIZE_MAX;
    SymExpr begin = place;
    for (size_t d = 0; d < nest.ranges.size(); ++d) {
      SymExpr step, rest;
      if (!split_linear(begin, symbols.dim(d), step, rest)) return std::nullopt;
      if (step == SymExpr(0)) continue;
      if (!(step == SymExpr(1)) || dim != SIZE_MAX || steps[d]) return std::nullopt;
      steps[d] = true;
      dim = d;
      begin = rest;
    }
    region.dims.push_back(dim);
    region.begin.push_back(std::move(begin));
  }
  for (size_t d = 0; d < nest.ranges.size(); ++d)
    if (!steps[d] && !(nest.ranges[d] == SymExpr(1))) return std::nullopt;
  return region;
}

// Whether the position is in the region, and where in it; `inside` already holds conditions that must be true anyway.
void find_place(NestBuilder& b, const Region& region, const SymSizes& sizes, const std::vector<SymExpr>& place,
                std::optional<InstId>& inside, std::vector<SymExpr>& at) {
  const auto require = [&](ScalarOp op, const SymExpr& x, const SymExpr& y) {
    const InstId holds = b.scalar(op, {b.index(x), b.index(y)});
    inside = inside ? b.scalar(ScalarOp::k_bit_and, {*inside, holds}) : holds;
  };
  at.assign(region.nest->ranges.size(), SymExpr(0));
  for (size_t k = 0; k < place.size(); ++k) {
    const SymExpr& begin = region.begin[k];
    if (region.dims[k] == SIZE_MAX) {
      if (!(sizes[k] == SymExpr(1))) require(ScalarOp::k_eq, place[k], begin);
      continue;
    }
    const SymExpr end = begin + region.nest->ranges[region.dims[k]];
    if (!(begin == SymExpr(0))) require(ScalarOp::k_ge, place[k], begin);
    if (!(end == sizes[k])) require(ScalarOp::k_lt, place[k], end);
    at[region.dims[k]] = place[k] - begin;
  }
}

// `yes` where `inside` holds, otherwise `no`: if `yes` is a load, `no` becomes its other value.
InstId chosen(NestBuilder& b, InstId inside, InstId yes, InstId no) {
  LoopInst load = b.peek().body[yes];
  if (!load.is_masked() || load.operands[0] != inside) return b.scalar(ScalarOp::k_select, {inside, yes, no});
  load.operands[1] = no;
  return b.emit(std::move(load));
}

}  // namespace

std::optional<std::vector<Region>> find_regions(const LoopProgram& program, LoopBufferId buffer,
                                                const std::vector<size_t>& writers) {
  std::vector<Region> regions;
  for (size_t writer : writers) {
    const Nest* nest = std::get_if<Nest>(&program.items[writer]);
    auto region = nest == nullptr || is_ordered(*nest) ? std::nullopt
                                                       : region_of(*nest, NestSymbols(program.symbol_count), buffer);
    if (!region) return std::nullopt;
    regions.push_back(std::move(*region));
  }
  return regions;
}

InstId read_regions(NestBuilder& b, const LoopProgram& program, const std::vector<Region>& regions,
                    const LoopInst& load) {
  InstId value = kNoInst;
  for (const Region& region : regions) {
    std::optional<InstId> inside = load.is_masked() ? std::optional(load.operands[0]) : std::nullopt;
    std::vector<SymExpr> at;
    find_place(b, region, program.buffers[load.buffer].sizes, load.index, inside, at);
    BodyCopy copy(b, *region.nest, std::move(at));
    copy.with_stores = false;
    copy.condition = inside;
    copy.run();
    const InstId own = copy.map()[region.nest->body[region.store].operands[0]];
    value = value != kNoInst && inside ? chosen(b, *inside, own, value) : own;
  }
  return value;
}

}  // namespace framejit::inductor
