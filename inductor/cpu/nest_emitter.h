// inductor/cpu/nest_emitter.h — one nest of a kernel as LLVM IR, vectorised as it is written.
//
// Every instruction belongs to a level: the number of loops of its nest that it depends on. A level's instructions are
// emitted at the beginning of that loop's body, so loop-invariant work is outside without any pass. The loop over the
// vector dimension is emitted twice: a main loop of `lanes * unroll` lanes (wide vectors, which code generation splits
// into registers; that is the unrolling) and a masked tail. Reductions are carried as phis, one set for the main loop
// and one for the tail. They are combined in a fixed tree, so results depend neither on threads nor on where the tail
// begins. Long sums of floats are cut into blocks: see sum_blocks.h.
// Scans are carried like reductions, never along the lanes.
#pragma once

#include "inductor/cpu/emitter.h"
#include "inductor/cpu/nest_instructions.h"
#include "inductor/cpu/nest_reductions.h"
#include "inductor/cpu/nest_scans.h"

namespace framejit::inductor {

// Levels and loops; the emitters that it owns do everything else.
class NestEmitter : NestPart {
 public:
  explicit NestEmitter(NestState& state);
  void run();

 private:
  void emit_level(size_t level, Accumulators& main, Accumulators& tail);
  void emit_results(Accumulators& main, Accumulators& tail);
  void emit_deeper(size_t level, Accumulators& main, Accumulators& tail);
  void emit_insts(size_t level, Accumulators& main);
  void emit_blocks(const SumBlocks& blocks, int depth, Value* from, Value* to, int64_t step, const Sets& sets,
                   LoopBody body);
  void emit_scalar_loop(size_t level, Accumulators& main, Accumulators& tail);
  Value* emit_walk(uint64_t points, Value* from, Value* to, const Sets& sets, LoopBody point);
  Value* emit_streams(size_t level, Value* from, Value* to);
  Value* emit_main_loop(size_t level, Value* from, Value* to, Accumulators& main, Accumulators& tail);
  void emit_vector_loop(size_t level, Accumulators& main, Accumulators& tail);

  NestState& state_;
  Indices indices_;
  Prefetches prefetches_;
  Masks masks_;
  Tiles tiles_;
  Memory memory_;
  Instructions instructions_;
  Positions positions_;
  Reductions reductions_;
  Scans scans_;
};

}  // namespace framejit::inductor
