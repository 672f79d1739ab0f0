// inductor/cpu/nest_state.h — one nest during emission: the state that its emitters share.
//
// Each emitter has one subject and reads the plan. The place among the loops, and the values computed so far, are a
// NestState, which loops change as they go.
#pragma once

#include <algorithm>
#include <vector>

#include "inductor/cpu/function_state.h"

namespace framejit::inductor {

struct NestState {
  NestState(FunctionState& f, const Kernel& k, size_t nest_index, const TargetInfo& t)
      : function(f),
        kernel(k),
        nest(k.nests[nest_index].nest),
        plan(f.plan.nests[nest_index]),
        target(t),
        symbols(k.symbol_count),
        values(nest.body.size(), nullptr),
        dims(nest.dim_count(), nullptr),
        lanes(k.lanes_outer ? f.lanes : 0),
        mask(k.lanes_outer ? f.mask : nullptr) {
    std::copy(f.outer.begin(), f.outer.end(), dims.begin());
  }

  FunctionState& function;
  const Kernel& kernel;
  const Nest& nest;
  const NestPlan& plan;
  const TargetInfo& target;
  const NestSymbols symbols;
  std::vector<llvm::Value*> values, dims;  // values of instructions; current indices of dimensions
  unsigned lanes;                          // of the vector dimension here; 0 outside its loop
  llvm::Value* mask;                       // active lanes; null: all
  bool in_tail = false;
};

// The part of the state that a nest's emitters see.
class NestPart {
 protected:
  using Value = llvm::Value;

  explicit NestPart(NestState& state)
      : s_(state.function),
        b_(state.function.b),
        ops_(state.function.ops),
        kernel_(state.kernel),
        nest_(state.nest),
        plan_(state.plan),
        target_(state.target),
        symbols_(state.symbols),
        values_(state.values),
        dims_(state.dims),
        lanes_(state.lanes),
        mask_(state.mask),
        in_tail_(state.in_tail) {}

  bool in_lanes() const { return lanes_ != 0; }
  bool is_split() const { return plan_.lanes.is_split && in_lanes() && !in_tail_; }
  unsigned width() const { return target_.registers.lanes; }
  DType operand_dtype(const LoopInst& inst) const { return nest_.body[inst.operands[0]].dtype; }
  Value* number(int64_t n) { return b_.getInt64(static_cast<uint64_t>(n)); }

  FunctionState& s_;
  llvm::IRBuilder<>& b_;
  LaneOps& ops_;
  const Kernel& kernel_;
  const Nest& nest_;
  const NestPlan& plan_;
  const TargetInfo& target_;
  const NestSymbols& symbols_;
  std::vector<Value*>&values_, &dims_;
  unsigned& lanes_;
  Value*& mask_;
  bool& in_tail_;
};

}  // namespace framejit::inductor
