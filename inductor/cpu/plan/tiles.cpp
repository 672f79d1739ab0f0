// inductor/cpu/plan/tiles.cpp — how many points a kernel in tiles takes at once, and where its blocks lie.
#include <algorithm>

#include "inductor/cpu/plan/planning.h"
#include "inductor/kernel/loop_shape.h"

namespace framejit::inductor {
namespace {

bool is_in_tiles(const Kernel& kernel, const KernelNest& n, const LoopInst& inst) {
  return kernel.in_tiles &&
         is_tiled_load(inst, NestSymbols(kernel.symbol_count), kernel.outer.size() - 1, n.vector_dim);
}

bool is_beyond_caches(const Kernel& kernel, const TargetInfo& target) {
  const int64_t caches = 2 * target.caches.last;
  constexpr int kMostOnStack = 2;  // loads, each of which has at most 16 KiB
  const Nest& nest = kernel.nests[0].nest;
  int64_t bytes = 0;
  int tiled = 0;
  for (const LoopInst& inst : nest.body) {
    bytes += is_address(inst) ? row_of(kernel.buffers[inst.buffer].dtype).bytes : 0;
    tiled += is_in_tiles(kernel, kernel.nests[0], inst);
  }
  for (size_t d = 0; d < nest.dim_count() && bytes < caches; ++d) bytes *= nest.extent(d).as_constant().value_or(1);
  return tiled > 0 && tiled <= kMostOnStack && bytes >= caches;
}

// The only tiled load, if there are registers for its blocks. Beyond caches, blocks on the stack take twice as long:
// their stores queue with those of the results, which wait for memory.
std::optional<InstId> load_in_registers(const Planning& p) {
  constexpr unsigned kManyRegisters = 32;
  if (p.target.registers.count < kManyRegisters || p.plan.lanes.unroll != 1 ||
      p.nest.body.size() > static_cast<size_t>(p.costs.register_tile))
    return std::nullopt;
  std::optional<InstId> load;
  for (InstId i = 0; i < p.nest.body.size(); ++i) {
    if (!p.is_tiled(p.nest.body[i])) continue;
    if (load || row_of(p.kernel.buffers[p.nest.body[i].buffer].dtype).bytes != 4) return std::nullopt;
    load = i;
  }
  return load;
}

}  // namespace

bool Planning::is_tiled(const LoopInst& inst) const { return is_in_tiles(kernel, n, inst); }

// Elements of a cache line of the tiled loads: this many lanes are side by side, if registers allow it.
int64_t tile_line(const Kernel& kernel, const TargetInfo& target) {
  constexpr int64_t kLeast = 16;
  const int64_t line = target.caches.line;
  int64_t bytes = line / kLeast;
  for (const LoopInst& inst : kernel.nests[0].nest.body)
    if (is_in_tiles(kernel, kernel.nests[0], inst))
      bytes = std::min<int64_t>(bytes, row_of(kernel.buffers[inst.buffer].dtype).bytes);
  return line / bytes;
}

// In caches, a tile has one cache line of points: for all other accesses, each point is a separate stream, and hardware
// follows only a few. Beyond caches, it has several lines, and everything that is read is prefetched two tiles ahead:
// there, a new page for each row of a tile costs more than streams do (benchmarks/results/decisions.md).
TilePlan plan_tile(const Kernel& kernel, const TargetInfo& target) {
  if (!kernel.in_tiles) return {};
  const int64_t line = tile_line(kernel, target);
  if (!is_beyond_caches(kernel, target)) return {line, 0};
  return {line * target.costs.tile_lines, target.costs.tiles_ahead};
}

void plan_tiles(Planning& p) {
  if (p.kernel.in_tiles) p.plan.register_tile = load_in_registers(p);
  if (p.plan.register_tile) p.plan.loops.back().points = p.plan.lanes.width;
}

}  // namespace framejit::inductor
