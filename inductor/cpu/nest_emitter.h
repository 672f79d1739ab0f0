// inductor/cpu/nest_emitter.h — one nest of a kernel as LLVM IR, vectorised as it is written.
//
// Every instruction belongs to a level: the number of loops of its nest that it depends on. A level's instructions are emitted
// where that loop's body begins, so loop-invariant work is outside without any pass. The loop over the vector dimension is emitted
// twice: a main loop of `lanes * unroll` lanes (wide vectors, which code generation splits into registers: that is the unrolling)
// and a masked tail. Reductions are carried as phis, one set for the main loop and one for the tail; they meet in a fixed tree, so
// that results depend neither on threads nor on the place of the tail. Long sums of floats are cut into blocks: see sum_blocks.h.
// Scans are carried as reductions are, never along the lanes.
#pragma once

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "inductor/cpu/emitter.h"
#include "inductor/cpu/lane_ops.h"
#include "inductor/cpu/sum_blocks.h"

namespace framejit::inductor {

struct Accumulator {  // of one reduction or scan
  llvm::Value *value = nullptr;
  llvm::Value *position = nullptr;  // argmax and argmin
  llvm::Value *lost = nullptr;      // of a compensated sum: what rounding took from `value`
};
using Accumulators = std::vector<Accumulator>;

// State that all nests of a kernel share.
struct FunctionState {
  FunctionState(llvm::Module& m, llvm::Function* f) : module(m), function(f), b(m.getContext()), ops(b, m) {}
  llvm::Module& module;
  llvm::Function* function;
  llvm::IRBuilder<> b;
  LaneOps ops;
  std::vector<llvm::Value*> buffers;
  std::vector<llvm::Value*> symbols;  // by symbol id: sizes
  std::vector<llvm::Value*> outer;    // outer dimensions
  llvm::Value *begin = nullptr, *end = nullptr;
  unsigned lanes = 0;                 // kernels of outer lanes: how many points are side by side, of which `mask` (null: all) exist
  llvm::Value* mask = nullptr;
  llvm::Value* tile_end = nullptr;    // kernels in tiles: the last outer dimension runs from outer.back() to here
  llvm::BasicBlock* failed = nullptr;
};

// Points of the last outer dimension that a kernel in tiles takes at once: as many as fill a cache line of what it loads in tiles,
// and no more: each is a stream of its own for everything else, and hardware follows few.
int64_t tile_points(const Kernel& kernel);

class NestEmitter {
 public:
  NestEmitter(FunctionState& state, const Kernel& kernel, const KernelNest& n, const EmitOptions& options);
  void run();
  unsigned unroll() const { return unroll_; }

 private:
  using Value = llvm::Value;
  using LoopBody = llvm::function_ref<void(Value* index)>;
  using Sets = std::vector<Accumulators*>;  // the accumulators that a loop carries

  bool has_vector() const { return n_.vector_dim != SIZE_MAX; }
  bool vector_is_reduced() const { return has_vector() && n_.vector_dim >= nest_.ranges.size(); }
  bool in_vector() const { return lanes_ != 0; }
  DType operand_dtype(const LoopInst& inst) const { return nest_.body[inst.operands[0]].dtype; }
  DType accumulator_dtype(const LoopInst& inst) const;
  llvm::Value* rounded(const LoopInst& inst, llvm::Value* value);

  // Levels and loops: nest_emitter.cpp
  void find_levels();
  size_t level_of_dim(size_t d) const;
  bool is_over_columns() const;
  bool has_few_points() const;
  void choose_unroll();
  void choose_slices();
  bool is_contiguous(const LoopInst& inst) const;
  void emit_level(size_t level, Accumulators& main, Accumulators& tail);
  void each_slice(Accumulators& set, llvm::function_ref<void(Accumulators& part)> body);
  void emit_deeper(size_t level, Accumulators& main, Accumulators& tail);
  void emit_loop(Value* from, Value* to, Value* step, const Sets& sets, LoopBody body);
  void emit_blocks(const SumBlocks& blocks, int depth, Value* from, Value* to, int64_t step, const Sets& sets, LoopBody body);
  void emit_scalar_loop(size_t level, Accumulators& main, Accumulators& tail);
  bool is_walk(size_t level) const;
  Value* emit_walk(Value* from, Value* to, const Sets& sets, LoopBody point);
  bool has_streams() const;
  Value* emit_streams(size_t level, Value* from, Value* to);
  void emit_vector_loop(size_t level, Accumulators& main, Accumulators& tail);

  // Reductions: nest_reductions.cpp
  Accumulators neutral(unsigned lanes);
  void accumulate(Accumulators& set);
  InstId twin_of(InstId i) const;
  Accumulator& accumulator_of(InstId i, Accumulators& set) const;
  void scan(InstId i, Accumulators& set);
  void step(InstId i, Accumulators& set);
  void take(Value* takes, Accumulator& a, Value* x, Value* position);
  void take_if(Value* takes, Accumulator& a, Value* x, Value* position);
  void pick(const LoopInst& inst, Accumulator& a, Value* x, Value* position, Value* active);
  void for_each_carried(size_t count, llvm::function_ref<void(size_t k, const LoopInst& inst)> body);
  Accumulators restarted(const Accumulators& set);
  Accumulators joined(const Accumulators& total, const Accumulators& block);
  Value* finished(const Accumulator& a);
  void choose_positions();
  Value* position_zero();
  Value* reduced_position();
  Value* whole_positions(const Accumulator& a);
  void finish_reductions(Accumulators& main, Accumulators& tail);
  Value* best_position(const LoopInst& inst, const Accumulator& main, const Accumulator& tail);

  // Tiles: nest_tiles.cpp
  bool is_tiled(const LoopInst& inst) const;
  void fill_tiles();
  void fill_tile(InstId i);
  Value* tile_row(InstId i);

  // Masked loads: nest_masks.cpp
  struct Lanes {  // of a mask: whether none or all of them hold, as far as that is known before it is computed
    Value *any = nullptr, *all = nullptr;
  };
  bool is_border(const LoopInst& inst) const;
  std::vector<bool> only_borders() const;
  Value* border(const LoopInst& inst);
  std::optional<Lanes> lanes_of_mask(InstId i);
  Value* mask_value(InstId i);
  Value* either(Value* condition, llvm::function_ref<Value*()> yes, llvm::function_ref<Value*()> no);
  void emit_masked_load(InstId i);

  // Expressions and instructions: nest_instructions.cpp
  struct Address {
    Value* base = nullptr;     // scalar address, contiguous for lanes when has_lanes
    Value* offsets = nullptr;  // else: per lane
    bool has_lanes = false;
  };
  Value* extent(size_t d) { return eval(nest_.extent(d)); }
  bool is_vector_symbol(graph::SymbolId id) const;
  Value* eval(const SymExpr& e);
  Value* eval_symbol(graph::SymbolId id);
  bool has_lanes_at(const LoopInst& inst) const;
  Address address_of(const LoopInst& inst);
  Value* all_lanes();
  Value* all_or_mask();
  void prefetch(const LoopInst& inst, Value* address);
  Value* loaded(const LoopInst& inst, Value* mask);
  void emit_load(InstId i);
  bool is_bf16(InstId i) const;
  void emit_store(const LoopInst& inst);
  void emit_check(InstId i);
  void emit_inst(InstId i);

  FunctionState& s_;
  llvm::IRBuilder<>& b_;
  LaneOps& ops_;
  const Kernel& kernel_;
  const KernelNest& n_;
  const Nest& nest_;
  NestSymbols symbols_;
  const unsigned width_;
  unsigned unroll_ = 1;
  unsigned slices_ = 1;  // of columns that are added up: pieces of lanes * unroll that a turn of the main loop takes, so that it reads more of a row
  bool is_light_ = false;
  bool is_masked_only_ = false;  // masks cost nothing beside the body: one loop, half the code
  std::vector<size_t> order_;    // of the loops; in tiles, the tile dimension is the innermost
  size_t range_levels_ = 0;
  std::vector<size_t> level_;
  std::vector<SumBlocks> blocks_;  // per level of `order`
  bool is_compensated_ = false;
  bool positions_count_up_ = false;   // of argmax and argmin: in each lane; they are carried without what the lane adds
  bool has_short_positions_ = false;  // carried in 32 bits
  std::vector<bool> after_;
  std::vector<Value*> values_, dims_;
  std::vector<Value*> tiles_;  // per instruction: the block of a tiled load, transposed
  unsigned lanes_ = 0;     // of the vector dimension here; 0 outside its loop
  Value* mask_ = nullptr;  // active lanes; null: all
  bool in_tail_ = false;
};

}  // namespace framejit::inductor
