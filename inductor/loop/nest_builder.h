// inductor/loop/nest_builder.h — makes nest bodies; merges equal instructions and folds constants during emission.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "inductor/loop/index_expr.h"

namespace framejit::inductor {

class NestBuilder {
 public:
  NestBuilder(uint32_t symbol_count, std::string name, SymSizes ranges, SymSizes reduced = {});

  SymExpr dim(size_t d) const { return symbols_.dim(d); }
  std::vector<SymExpr> range_dims() const;
  const NestSymbols& symbols() const { return symbols_; }
  DimBounds bounds() const { return bounds_of(nest_, symbols_); }
  const Nest& peek() const { return nest_; }
  DType dtype(InstId inst) const { return nest_.body[inst].dtype; }

  InstId constant(double value, DType dtype);     // integers and bools convert exactly
  InstId integer(int64_t value, DType dtype);
  InstId index(SymExpr value);                     // int64
  InstId load(LoopBufferId buffer, DType buffer_dtype, std::vector<SymExpr> index, InstId mask = kNoInst,
              InstId other = kNoInst);
  void store(LoopBufferId buffer, std::vector<SymExpr> index, InstId value, StoreMode mode = StoreMode::kPlain,
             ReduceOp op = ReduceOp::kSum);
  SymExpr checked_index(InstId value, SymExpr extent, bool wrap);  // for use in load indices
  InstId scalar(ScalarOp op, std::initializer_list<InstId> operands);
  InstId cast(InstId value, DType dtype);
  InstId reduce(ReduceOp op, InstId value);
  InstId scan(ReduceOp op, InstId value);
  InstId round_to(InstId value, DType dtype);      // f32 rounded to a half-precision dtype; others unchanged
  // Copies an instruction whose operands and expressions already belong to this nest.
  InstId emit(LoopInst inst);
  void add_origins(const std::vector<uint32_t>& nodes);
  Nest build() { return std::move(nest_); }

 private:
  InstId carried(LoopOp kind, ReduceOp op, InstId value);
  bool fold(LoopInst& inst, InstId& existing) const;
  std::optional<InstId> find_equal(const LoopInst& inst, size_t& at) const;
  void grow();
  NestSymbols symbols_;
  Nest nest_;
  // A hash table of candidates for an equal instruction.
  std::vector<InstId> slots_ = std::vector<InstId>(64, kNoInst);
  std::vector<InstId> stores_;
};

}  // namespace framejit::inductor
