// inductor/cpu/plan/nest_plan.h — what the code of a kernel does, decided before any of it is emitted.
//
// In: kernel IR, and the registers, caches and costs of the target. Out: for each nest its loops and lanes, and for
// each instruction where it is computed and how it accesses memory. A plan is data: it names no LLVM type, and equal
// kernels have equal plans for equal targets. It prints as one line per decision (channel `output_code`). Emission only
// reads it; the plan makes every decision that a kernel's time depends on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inductor/cpu/plan/bf16_values.h"
#include "inductor/cpu/plan/sum_blocks.h"
#include "inductor/kernel/kernel_ir.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// How an instruction accesses memory.
enum class Access : uint8_t {
  kNone,  // not at all
  kOne,  // one element for all lanes
  kContiguous,  // lanes side by side
  kOfLane,  // each lane has its own scratch, interleaved
  kScattered,  // each lane has its own address
  kTile,  // from a block that was read along the tile's points, and transposed
};

// What is known about the mask of a load.
enum class MaskKind : uint8_t {
  kNone,  // no mask
  kShared,  // one condition for all lanes: a branch
  kBorder,  // whether none or all lanes are on is known before the mask is computed: branches around the mixed case
  kLanes,  // nothing is known: the mask is computed
};

struct InstPlan {
  size_t level = 0;  // how many loops contain it; after a reduction: at the end of that level
  bool is_after = false;  // needs the result of a reduction
  bool has_lanes = false;  // its value differs from lane to lane
  bool is_border = false;  // compares a position that lanes step through one by one with a number that they share
  bool is_place = false;  // a border that tests for equality: at most one lane is at that position
  Access access = Access::kNone;
  MaskKind mask = MaskKind::kNone;
  Bf16Rounding bf16 = Bf16Rounding::kAny;
  // For loads whose lanes are side by side:
  int64_t elements_ahead = 0;  // how far ahead main loops prefetch
  // For carried values:
  size_t place = 0;  // index among the accumulators
  DType accumulator = DType::kFloat32;
  InstId twin = kNoInst;  // of a scan: the one that steps together with it (a maximum and its position)
};

struct LoopPlan {
  size_t dim = 0;
  int64_t points = 1;  // per iteration, for a loop without lanes; for a tile in registers: per block
  SumBlocks blocks;  // of the sums that it carries
};

enum class MainLoop : uint8_t {
  kNone,  // too few points: the tail takes them
  kTurns,  // one body per iteration, in blocks of sums
  kStreams,  // several bodies per iteration, each on its own stream if the range is long
  kSearch,  // argmax and argmin: checks blocks of lanes for anything better
  kSlabs,  // lanes are columns: rows in slabs, accumulators on the stack
};

// The loop over the vector dimension. The main loop takes width * unroll lanes per iteration; the masked tail takes the
// rest.
struct LanesPlan {
  size_t dim = SIZE_MAX;  // SIZE_MAX: the nest has no lanes
  unsigned width = 0;  // lanes of a register, and of the tail
  unsigned unroll = 1;  // registers of each value in the main loop
  unsigned main_lanes = 0;  // of one body there: width * unroll, or those of one stream
  bool is_reduced = false;  // lanes are reduced
  bool is_split = false;  // the main loop holds its even lanes first, then the odd ones
  bool is_part = false;  // of a flat kernel: from begin to end of the call
  MainLoop main = MainLoop::kNone;
  int64_t part_points = 0;  // kStreams: from this many points each, each has its part of the range; below: neighbours
  std::optional<int64_t> main_end;  // where the main loop ends, if that is a constant
  bool is_even = false;  // it ends where the range ends, for every range
  bool has_tail = true;
  unsigned wide() const { return width * unroll; }
  bool has_lanes() const { return dim != SIZE_MAX; }
};

inline constexpr int64_t kStackBytes = 48 << 10;  // for accumulators of columns: threads may have small stacks

struct SlabPlan {  // MainLoop::kSlabs
  int64_t rows = 0, columns = 0;  // of a slab; columns that fit on the stack at once
};

// A load of the first nest over a row, which the second nest prefetches for the next row.
struct RowAhead {
  InstId load;
  SymExpr elements;
};

struct NestPlan {
  std::vector<LoopPlan> loops;  // outermost first; in tiles, the points of the tile are the innermost loop
  size_t range_levels = 0;  // how many of them come before the first reduced one
  LanesPlan lanes;
  SlabPlan slabs;
  std::vector<InstPlan> insts;
  bool is_light = false;  // waits for memory, not for its computations
  bool is_compensated = false;  // some sums keep what rounding loses
  bool positions_count_up = false;  // of argmax and argmin, in each lane; carried without the lane's offset
  bool has_short_positions = false;  // carried in 32 bits
  std::optional<InstId> register_tile;  // the tiled load whose blocks stay in registers; the others lie on the stack
  std::vector<RowAhead> rows_ahead;
  bool is_inside_lanes(size_t level) const;  // whether the loop over lanes is among the first `level` ones
  bool has_outer_lanes = false;  // lanes are outer points: everything is inside
};

// Blocks that are read in tiles.
struct TilePlan {
  int64_t points = 0;  // of the last outer dimension, at once
  int64_t lanes_ahead = 0;  // for tiles beyond caches: how many iterations of the lanes' loop ahead it prefetches
};

// The kernel of a product: lanes lie along the summed dimension.
struct ProductPlan {
  unsigned rows = 0, columns = 0;  // of a tile of sums in registers
  int64_t blocks = 0, terms = 0;  // of the summed dimension; terms per block
  bool has_whole_columns = false;  // no column is left outside the tiles
  int64_t columns_at_once = 0;  // so few that their terms of one block stay in the second-level cache
};

struct KernelPlan {
  std::vector<NestPlan> nests;
  std::vector<bool> split_scratch;  // per buffer: scratch whose lanes have the order of main loops with split lanes
  unsigned outer_lanes = 0;  // kernels of outer lanes: how many points the main loop takes at once
  TilePlan tiles;  // kernels in tiles
  ProductPlan product;  // kernels of a product, whose nest has no plan
};

// Sums of floats start anew in each block; other carried values continue.
bool is_float_sum(const LoopInst& inst);

KernelPlan plan_kernel(const Kernel& kernel, const TargetInfo& target);
std::string print(const KernelPlan& plan, const Kernel& kernel, const TargetInfo& target);

}  // namespace framejit::inductor
