// inductor/gpu/hip_text.h — instructions and index expressions of a nest as C text.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "inductor/kernel/kernel_ir.h"

namespace framejit::inductor {

std::string value_type_text(DType dtype);   // of values: "float", "i64"
std::string memory_type_text(DType dtype);  // of elements in memory: "bf16m"
std::string constant_text(DType dtype, graph::ScalarValue value);

// Whether all index arithmetic of the kernel stays below 2^31. over_the_end: how far the last threads may step past the
// end.
bool fits_in_32_bits(const Kernel& kernel, int64_t over_the_end);

// Dimensions are i0, i1, ... and r0, r1, ... as in the IR's own text, sizes s0, values v0, accumulators a0.
class NestText {
 public:
  NestText(const Kernel& kernel, const Nest& nest) : kernel_(kernel), nest_(nest), symbols_(kernel.symbol_count) {}

  std::string dim(size_t d) const;
  std::string expr(const SymExpr& e) const;
  std::string factor(const SymExpr& e) const;  // the same, as an operand of * / %
  // One statement. `guard` is put before a store that only one thread may do.
  std::string inst(InstId i, const std::string& guard) const;
  std::string access(const LoopInst& inst) const;
  // From now on, load i reads `before` instead of memory; store i is before + value + after, without a guard.
  void stand_in(InstId i, std::string before, std::string after = "") { stand_ins_[i] = {before, after}; }
  // From now on, u<i> is the reciprocal of value i.
  void divide_by(InstId i) { divisors_.insert(i); }
  // Local buffers are the thread's own: each thread stores into them.
  void own_locals() { has_own_locals_ = true; }
  // Reductions: the accumulator's type and first value, a step of it, and the name of its operation.
  std::string accumulator_type(InstId i) const;
  std::string start(InstId i) const;
  std::string declare_accumulator(InstId i) const;
  std::string accumulate(InstId i, const std::string& position, const std::string& element = "") const;
  std::string operation(InstId i) const;
  bool is_position(InstId i) const;

 private:
  std::string scalar(const LoopInst& inst) const;
  std::optional<InstId> reciprocal_root(const LoopInst& inst) const;
  std::string stored(InstId i, const std::string& guard) const;
  const Kernel& kernel_;
  const Nest& nest_;
  NestSymbols symbols_;
  std::map<InstId, std::pair<std::string, std::string>> stand_ins_;
  std::set<InstId> divisors_;
  bool has_own_locals_ = false;
};

}  // namespace framejit::inductor
