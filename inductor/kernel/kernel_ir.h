// inductor/kernel/kernel_ir.h — one kernel: nests with linear addresses, their loop order, and which dimension the
// lanes take.
//
// In: a group of the schedule.  Out: exactly what an emitter needs. Buffers are numbered as the kernel's arguments,
// then the local ones (scratch that lives for one outer point). Loads and stores carry one index, in elements.
// Dimensions [0, outer_count) of every nest are the outer point: the parallel range is their linear index. In a flat
// kernel (one nest, outer_count 0) the parallel range is the vector dimension itself. The layout of lanes and tiles
// does not change results. Equal text means equal machine code: the text is the cache key.
#pragma once

#include "inductor/schedule/schedule.h"

namespace framejit::inductor {

struct KernelBuffer {
  LoopBufferId source = 0;
  DType dtype = DType::kFloat32;
  bool is_written = false;
  bool is_local = false;
  int64_t local_elements = 0;
  bool is_settled = false;  // no step of the plan writes it
  bool is_private = false;  // only this kernel reads it, so what it stores there may stay in registers
};

struct KernelNest {
  Nest nest;
  std::vector<size_t> order;  // dimensions that this nest loops over, outermost first; reduced ones last, except the
                              // lanes of rows that are stored in order
  size_t vector_dim = SIZE_MAX;
};

inline constexpr int64_t kFlatUnit = 64;
inline constexpr int64_t kProductUnit = 12;  // a multiple of the columns that registers hold: three or four

// How far kernels deviate from the cost model's decision, as powers of two.
struct KernelTuning {
  int8_t unroll = 0;  // registers per value in the innermost loop
  int8_t grain = 0;   // least work that is worth a thread
};

struct Kernel {
  std::string name;  // which part of a program it computes, as part of a symbol; not in the text
  uint32_t symbol_count = 0;
  std::vector<KernelBuffer> buffers;
  std::vector<graph::SymbolId> symbols;  // those used: sizes argument k is symbols[k]
  // By symbol, rounded up to powers of two, for the emitter's choice of launches. Empty if nothing depends on sizes.
  std::vector<int64_t> size_hints;
  SymSizes outer;
  bool is_flat = false;
  // The last outer dimension is every nest's vector dimension: lanes are outer points side by side.
  bool lanes_outer = false;
  // One nest [n, m] x [k] that sums left[m, k] * right[n, k]: several m and n at a time stay in registers.
  bool is_product = false;
  // The last four nests are attention of one query (inductor/schedule/attention_nests.h). Several blocks may share an
  // outer point, each of which runs all nests before them.
  bool is_attention = false;
  bool in_tiles = false;  // some loads are strided along the lanes and contiguous along the last outer dimension
  std::vector<KernelNest> nests;
  SymExpr extent = 1;    // of the parallel range
  // Least part that is worth a thread; 0: one thread runs all of it; -1: it does, and no call may ask for a part.
  int64_t grain = 0;
  int8_t unroll = 0;     // KernelTuning::unroll

  // A flat kernel that is called once, for its whole extent, which is a constant.
  bool is_whole() const { return grain < 0; }
  // Parts of the range begin at multiples of the unit, and end at a multiple or at the range's end. If the range's end
  // is a multiple too, no part has a tail.
  int64_t unit() const { return is_flat ? kFlatUnit : is_product ? kProductUnit
                                                                 : 1; }
};

// `is_private[b]`: only this group touches buffer b, which need not outlive the group; it becomes scratch if it fits
// into the target's.
Kernel make_kernel(const LoopProgram& program, const Group& group, const std::vector<bool>& is_private,
                   const SizeHints& hints, const TargetInfo& target, KernelTuning tuning = {});
// Whether its nests verify, and address nothing outside the program's buffers and the scratch. `hints`: see verify() of
// a loop program.
Result<void> verify(const Kernel& kernel, const LoopProgram& program, std::span<const int64_t> hints);
std::string print(const Kernel& kernel);

}  // namespace framejit::inductor
