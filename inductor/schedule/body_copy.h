// inductor/schedule/body_copy.h — copies the body of a nest into another nest, with expressions in place of its
// dimensions.
#pragma once

#include <functional>

#include "inductor/loop/nest_builder.h"

namespace framejit::inductor {

class BodyCopy {
 public:
  // `dims`: for each dimension of `from`, its value in the target nest.
  BodyCopy(NestBuilder& to, const Nest& from, std::vector<SymExpr> dims)
      : to_(to), from_(from), dims_(std::move(dims)), bounds_(to.bounds()) {}

  // Returns the value that replaces a load (its index is already in terms of the target), or nothing to keep the load.
  std::function<std::optional<InstId>(const LoopInst& load)> replace_load;
  bool with_stores = true;
  // A value of the target: loads read only where it holds, and are zero elsewhere.
  std::optional<InstId> condition;
  // Instructions that are not copied; no copied instruction may use them.
  std::function<bool(InstId)> leave_out;
  // The value that replaces a reduction.
  std::function<InstId(InstId)> replace_reduction;

  // Copies everything; map()[i] is instruction i in the target (kNoInst for stores).
  void run();
  const std::vector<InstId>& map() const { return map_; }
  // The copied value that instruction i of the source stores, and where it stores it.
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
