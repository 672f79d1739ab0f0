// inductor/cpu/nest_emitter.h — one nest of a kernel as LLVM IR, vectorised as it is written.
//
// Every instruction belongs to a level: the number of loops of its nest that it depends on. A level's instructions are
// emitted where that loop's body begins, so loop-invariant work is outside without any pass. The loop over the vector
// dimension is emitted twice: a main loop of `lanes * unroll` lanes (wide vectors, which code generation splits into
// registers: that is the unrolling) and a masked tail. Reductions are carried as phis, one set for the main loop and
// one for the tail; they meet in a fixed tree, so that results depend neither on threads nor on the place of the tail.
// Long sums of floats are cut into blocks: see sum_blocks.h.
// Scans are carried as reductions are, never along the lanes.
#pragma once

#include "inductor/cpu/emitter.h"
#include "inductor/cpu/function_state.h"

namespace framejit::inductor {

struct Accumulator {  // of one reduction or scan
  llvm::Value *value = nullptr;
  llvm::Value *position = nullptr;  // argmax and argmin
  llvm::Value *lost = nullptr;      // of a compensated sum: what rounding took from `value`
};
using Accumulators = std::vector<Accumulator>;

class NestEmitter {
 public:
  NestEmitter(FunctionState& state, const Kernel& kernel, size_t n, const EmitOptions& options);
  void run();

 private:
  using Value = llvm::Value;
  using LoopBody = llvm::function_ref<void(Value* index)>;
  using Sets = std::vector<Accumulators*>;  // the accumulators that a loop carries

  bool lanes_are_reduced() const { return plan_.lanes.is_reduced; }
  bool in_vector() const { return lanes_ != 0; }
  DType operand_dtype(const LoopInst& inst) const { return nest_.body[inst.operands[0]].dtype; }
  llvm::Value* rounded(InstId i, llvm::Value* value);

  // Levels and loops: nest_emitter.cpp
  void emit_level(size_t level, Accumulators& main, Accumulators& tail);
  void emit_results(Accumulators& main, Accumulators& tail);
  void emit_deeper(size_t level, Accumulators& main, Accumulators& tail);
  void emit_insts(size_t level, Accumulators& main);
  void emit_loop(Value* from, Value* to, Value* step, const Sets& sets, LoopBody body);
  void emit_blocks(const SumBlocks& blocks, int depth, Value* from, Value* to, int64_t step, const Sets& sets,
                   LoopBody body);
  void emit_scalar_loop(size_t level, Accumulators& main, Accumulators& tail);
  Value* emit_walk(uint64_t points, Value* from, Value* to, const Sets& sets, LoopBody point);
  Value* emit_streams(size_t level, Value* from, Value* to);
  Value* emit_main_loop(size_t level, Value* from, Value* to, Accumulators& main, Accumulators& tail);
  void emit_vector_loop(size_t level, Accumulators& main, Accumulators& tail);

  // Reductions: nest_reductions.cpp
  Accumulators neutral(unsigned lanes);
  void accumulate(Accumulators& set);
  void scan(InstId i, Accumulators& set);
  void step(InstId i, Accumulators& set);
  void take(Value* takes, Accumulator& a, Value* x, Value* position);
  void take_if(Value* takes, Accumulator& a, Value* x, Value* position);
  void pick(const LoopInst& inst, Accumulator& a, Value* x, Value* position, Value* active);
  void for_each_carried(const Accumulators& set, llvm::function_ref<void(size_t k, const LoopInst& inst)> body);
  Accumulators restarted(const Accumulators& set);
  Accumulators joined(const Accumulators& total, const Accumulators& block);
  Value* finished(const Accumulator& a);
  Value* position_zero();
  Value* reduced_position();
  Value* whole_positions(const Accumulator& a);
  void finish_reductions(Accumulators& main, Accumulators& tail);
  Value* best_position(const LoopInst& inst, const Accumulator& main, const Accumulator& tail);

  // Columns that are added up: nest_columns.cpp
  struct ColumnStack {  // accumulators of the columns that a walk takes at once: where they lie, and values of their
                        // types
    Accumulators place, like;
  };
  ColumnStack on_stack(const Accumulators& set, int64_t columns, int64_t& offset);
  Accumulators taken(const ColumnStack& stack, Value* at);
  void put(const ColumnStack& stack, const Accumulators& set, Value* at);
  void each_column(Value* from, Value* to, llvm::function_ref<void(Value* at)> body);
  void emit_slabs(const ColumnStack& stack, Value* first_row, Value* last_row, Value* from, Value* to);
  void emit_columns(Value* from, Value* to);

  // Extrema by blocks: nest_searches.cpp
  void emit_search(size_t level, Value* from, Value* to, Accumulator& found);
  void search_block(ReduceOp better, DType dtype, Value* x, Value* index, Accumulator& best);

  // Tiles: nest_tiles.cpp
  void fill_tiles();
  void fill_tile(InstId i);
  struct TiledLoad {
    const LoopInst& inst;
    Value *row_step, *last_lane;  // from lane to lane, in elements; the last one that is on, null: all are
  };
  TiledLoad tiled_load(InstId i);
  std::vector<Value*> of_each_lane(const TiledLoad& load, Value* point, unsigned first_lane,
                                   llvm::function_ref<Value*(Value* address)> read);
  std::vector<Value*> tile_block(const TiledLoad& load, Value* point, unsigned first_lane);
  Value* tile_column(const TiledLoad& load, Value* point, unsigned first_lane);
  void each_tile_block(llvm::function_ref<void(Value* point)> block, llvm::function_ref<void(Value* point)> single);
  void emit_points_in_registers(InstId i, size_t level, Accumulators& main, Accumulators& tail);
  Value* tile_address(InstId i, Value* point, unsigned lane);
  Value* tile_row(InstId i);

  // Order of lanes: nest_lane_order.cpp
  bool is_split() const { return plan_.lanes.is_split && in_vector() && !in_tail_; }
  Value* load_split(const LoopInst& inst, Value* address);
  void store_split(const LoopInst& inst, Value* address, Value* value, Bf16Rounding rounding);
  Value* iota(unsigned lanes, bool is_split) {
    return is_split ? ops_.split_lanes(ops_.iota(lanes)) : ops_.iota(lanes);
  }

  // Masked loads: nest_masks.cpp
  struct Lanes {  // of a mask: whether none or all of them hold, as far as that is known before it is computed
    Value *any = nullptr, *all = nullptr;
  };
  Value* border(const LoopInst& inst);
  Lanes lanes_of_mask(InstId i);
  Value* mask_value(InstId i);
  Value* either(Value* condition, llvm::function_ref<Value*()> yes, llvm::function_ref<Value*()> no);
  void emit_masked_load(InstId i);

  // Prefetches: nest_prefetch.cpp
  void prefetch(Value* address, uint64_t bytes);
  void prefetch(DType dtype, Value* address, const SymExpr& elements);
  void prefetch_ahead(InstId i, Value* address);
  void prefetch_next_row();

  // Expressions and instructions: nest_instructions.cpp
  struct Address {
    Value* base = nullptr;     // scalar address
    Value* offsets = nullptr;  // from there, of each lane: where each has an address of its own
  };
  Value* extent(size_t d) { return eval(nest_.extent(d)); }
  bool is_vector_symbol(graph::SymbolId id) const;
  Value* eval(const SymExpr& e);
  Value* eval_symbol(graph::SymbolId id);
  Address address_of(const LoopInst& inst, Access access);
  Value* all_lanes();
  Value* all_or_mask();
  Value* loaded(InstId i, Value* mask);
  void emit_load(InstId i);
  void emit_store(InstId i);
  void emit_check(InstId i);
  void emit_inst(InstId i);

  FunctionState& s_;
  llvm::IRBuilder<>& b_;
  LaneOps& ops_;
  const Kernel& kernel_;
  const KernelNest& n_;
  const Nest& nest_;
  const NestPlan& plan_;
  NestSymbols symbols_;
  const TargetInfo& target_;
  const Costs& costs_;
  const unsigned width_;  // lanes of a register
  std::vector<Value*> values_, dims_;
  std::vector<Value*> tiles_;  // per instruction: the block of a tiled load, transposed
  Value* tile_value_ =
      nullptr;  // of the one load whose block stays in registers: the lanes of the point that is emitted
  unsigned lanes_ = 0;     // of the vector dimension here; 0 outside its loop
  Value* mask_ = nullptr;  // active lanes; null: all
  bool in_tail_ = false;
};

}  // namespace framejit::inductor
