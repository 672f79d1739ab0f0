// inductor/gpu/hip_text.h — instructions and index expressions of a nest as C text.
#pragma once

#include <string>

#include "inductor/kernel/kernel_ir.h"

namespace framejit::inductor {

std::string value_type_text(DType dtype);   // of values: "float", "i64"
std::string memory_type_text(DType dtype);  // of elements in memory: "bf16m"
std::string constant_text(DType dtype, graph::ScalarValue value);

// Whether all index arithmetic of the kernel stays below 2^31.
bool fits_in_32_bits(const Kernel& kernel);

// Dimensions are i0, i1, ... and r0, r1, ... as in the IR's own text, sizes s0, values v0, accumulators a0.
class NestText {
 public:
  NestText(const Kernel& kernel, const Nest& nest) : kernel_(kernel), nest_(nest), symbols_(kernel.symbol_count) {}

  std::string dim(size_t d) const;
  std::string expr(const SymExpr& e) const;
  // One statement; a store by one thread only is behind `guard`.
  std::string inst(InstId i, const std::string& guard) const;
  // Reductions: the accumulator's declaration, a step of it, and the name of its operation and type.
  std::string declare_accumulator(InstId i) const;
  std::string accumulate(InstId i, const std::string& position) const;
  std::string operation(InstId i) const;
  bool is_position(InstId i) const;

 private:
  std::string access(const LoopInst& inst) const;
  std::string scalar(const LoopInst& inst) const;
  const Kernel& kernel_;
  const Nest& nest_;
  NestSymbols symbols_;
};

}  // namespace framejit::inductor
