// inductor/schedule/body_copy.h — copies a nest's body into another nest, its dimensions replaced by expressions.
#pragma once

#include <functional>

#include "inductor/loop/nest_builder.h"

namespace framejit::inductor {

class BodyCopy {
 public:
  // `dims`: for each dimension of `from`, its value in the target nest.
  BodyCopy(NestBuilder& to, const Nest& from, std::vector<SymExpr> dims)
      : to_(to), from_(from), dims_(std::move(dims)), bounds_(to.bounds()) {}

  // Answers with the value that stands for a load (its index already in terms of the target), or nothing to keep the
  // load.
  std::function<std::optional<InstId>(const LoopInst& load)> replace_load;
  bool with_stores = true;
  // A value of the target: what is loaded is read only where it holds, and zero elsewhere.
  std::optional<InstId> condition;
  // Instructions that are not copied; nothing that is copied may use them.
  std::function<bool(InstId)> leave_out;
  // The value that stands for a reduction.
  std::function<InstId(InstId)> replace_reduction;

  // Copies everything; map()[i] is instruction i in the target (kNoInst for stores).
  void run();
  const std::vector<InstId>& map() const { return map_; }
  // The copied value that instruction i of the source stores, and where.
  LoopInst translate(const LoopInst& inst) const;

 private:
  void add_condition(LoopInst& load);
  NestBuilder& to_;
  const Nest& from_;
  std::vector<SymExpr> dims_;
  DimBounds bounds_;
  std::vector<InstId> map_;
};

}  // namespace framejit::inductor
