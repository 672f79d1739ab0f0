// inductor/cpu/plan/nest_plan.h — what the code of a kernel does, decided before any of it is emitted.
//
// In: kernel IR and the target, of which registers, caches and costs count. Out: for each nest its loops and lanes, and
// for each of its instructions where it is computed and how it reaches memory. A plan is data: it names no LLVM type,
// and equal kernels have equal plans for equal targets. It prints as one line a decision (channel `output_code`).
// Emission reads it and decides nothing that the time of a kernel depends on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inductor/cpu/plan/bf16_values.h"
#include "inductor/cpu/plan/sum_blocks.h"
#include "inductor/kernel/kernel_ir.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// How an instruction reaches memory.
enum class Access : uint8_t {
  kNone,  // it does not
  kOne,  // one element, whatever the lane
  kContiguous,  // lanes side by side
  kOfLane,  // scratch that each lane has for itself, interleaved
  kScattered,  // each lane has an address of its own
  kTile,  // from a block that was read along the tile's points and transposed
};

// What a load knows of its mask.
enum class MaskKind : uint8_t {
  kNone,  // no mask
  kShared,  // one condition for all lanes: a branch
  kBorder,  // whether none or all of its lanes hold is known before it is computed: branches around the lanes in
            // between
  kLanes,  // nothing: it is computed
};

struct InstPlan {
  size_t level = 0;  // how many loops it is inside of; after a reduction: at the end of that level
  bool is_after = false;  // needs the result of a reduction
  bool has_lanes = false;  // its value differs from lane to lane
  bool is_border = false;  // compares a place that lanes step through one by one with one that they share
  Access access = Access::kNone;
  MaskKind mask = MaskKind::kNone;
  Bf16Rounding bf16 = Bf16Rounding::kAny;
  // Of loads whose lanes are side by side.
  int64_t elements_ahead = 0;  // that main loops ask memory for in advance
  // Of what is carried.
  size_t place = 0;  // among the accumulators
  DType accumulator = DType::kFloat32;
  InstId twin = kNoInst;  // of a scan: the one with which it steps as one (a maximum and where it stands)
};

struct LoopPlan {
  size_t dim = 0;
  int64_t points = 1;  // a turn, where a loop has no lanes; of a tile in registers: of a block
  SumBlocks blocks;  // of the sums that it carries
};

enum class MainLoop : uint8_t {
  kNone,  // too few points: the tail takes them
  kTurns,  // one body after the other, in blocks of sums
  kStreams,  // several bodies a turn, each on a stream of its own where the range is long
  kSearch,  // argmax and argmin: blocks of lanes are asked for anything better
  kSlabs,  // lanes are columns: rows in slabs, accumulators on the stack
};

// The loop over the vector dimension. The main loop takes width * unroll lanes; the tail takes the rest, masked.
struct LanesPlan {
  size_t dim = SIZE_MAX;  // SIZE_MAX: the nest has no lanes
  unsigned width = 0;  // lanes of a register; of the tail
  unsigned unroll = 1;  // registers of each value in the main loop
  unsigned main_lanes = 0;  // of one body there: width * unroll, or what one stream takes
  bool is_reduced = false;  // lanes are added up
  bool is_split = false;  // the main loop holds its even lanes first, then the odd ones
  bool is_part = false;  // of a flat kernel: from begin to end of the call
  MainLoop main = MainLoop::kNone;
  std::optional<int64_t> main_end;  // where the main loop ends, if it is a number
  bool is_even = false;  // it ends where the range does, whatever number that is
  bool has_tail = true;
  unsigned wide() const { return width * unroll; }
  bool has_lanes() const { return dim != SIZE_MAX; }
};

inline constexpr int64_t kStackBytes = 48 << 10;  // for accumulators of columns: threads may have small stacks

struct SlabPlan {  // MainLoop::kSlabs
  int64_t rows = 0, columns = 0;  // of a slab; columns that have room on the stack at once
};

// A load of the first nest over a row that the second one asks for a row ahead.
struct RowAhead {
  InstId load;
  SymExpr elements;
};

struct NestPlan {
  std::vector<LoopPlan> loops;  // outermost first; in tiles, the points of the tile are the innermost
  size_t range_levels = 0;  // how many of them come before the first reduced one
  LanesPlan lanes;
  SlabPlan slabs;
  std::vector<InstPlan> insts;
  bool is_light = false;  // waits for memory and not for what it computes
  bool is_compensated = false;  // some sums keep what rounding takes from them
  bool positions_count_up = false;  // of argmax and argmin, in each lane; they are carried without what the lane adds
  bool has_short_positions = false;  // carried in 32 bits
  std::optional<InstId> register_tile;  // the tiled load whose blocks stay in registers; else they lie on the stack
  std::vector<RowAhead> rows_ahead;
  bool is_inside_lanes(size_t level) const;  // whether the loop over lanes is among the first `level` ones
  bool has_outer_lanes = false;  // lanes are outer points: everything is inside
};

// Blocks that are read in tiles.
struct TilePlan {
  int64_t points = 0;  // of the last outer dimension at once
  int64_t lanes_ahead = 0;  // tiles beyond caches: how many turns of the lanes' loop ahead memory is asked
};

// A kernel of a product: lanes lie along what is summed.
struct ProductPlan {
  unsigned rows = 0, columns = 0;  // of a tile of sums in registers
  int64_t blocks = 0, terms = 0;  // of what is summed; terms of a block
  bool has_whole_columns = false;  // no column is left beside the tiles
};

struct KernelPlan {
  std::vector<NestPlan> nests;
  std::vector<bool> split_scratch;  // per buffer: scratch whose lanes lie as main loops of split lanes hold them
  unsigned outer_lanes = 0;  // kernels of outer lanes: how many points the main loop takes side by side
  TilePlan tiles;  // kernels in tiles
  ProductPlan product;  // kernels of a product, whose nest has no plan
};

// Sums of floats start anew in each block; whatever else is carried goes on.
bool is_float_sum(const LoopInst& inst);

KernelPlan plan_kernel(const Kernel& kernel, const TargetInfo& target);
std::string print(const KernelPlan& plan, const Kernel& kernel, const TargetInfo& target);

}  // namespace framejit::inductor
