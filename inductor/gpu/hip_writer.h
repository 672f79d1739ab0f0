// inductor/gpu/hip_writer.h — lines of HIP text, and what every shape of kernel writes: dimensions taken apart, parts
// of a body, accumulators.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inductor/gpu/hip_emitter.h"
#include "inductor/gpu/hip_text.h"

namespace framejit::inductor {

// Product of the extents of some dimensions.
SymExpr count(const Nest& nest, const std::vector<size_t>& dims);
std::vector<size_t> reduced_dims(const Nest& nest);
std::vector<size_t> kept_dims(const KernelNest& n);  // those that the nest itself loops over, in its order
std::vector<size_t> outer_dims(const Kernel& kernel);
int64_t power_of_two_from(int64_t n);  // the smallest that is at least n
// The value of `e` in the call that the kernel was made for; `unknown` if it has symbols and there are no hints.
int64_t hinted(const Kernel& kernel, const SymExpr& e, int64_t unknown);

enum class Part { kBefore, kInside, kAfter };  // the reduced loop; a nest without one is all kBefore

class HipWriter {
 public:
  HipWriter(const Kernel& kernel, const Costs& costs) : kernel_(kernel), costs_(costs) {}

  void line(const std::string& statement);
  void open(const std::string& statement);
  void close();
  // `for (name = 0; name < turns; ++name)`, unrolled.
  void open_unrolled(const std::string& name, int64_t turns);
  const std::string& text() const { return text_; }
  const Kernel& kernel() const { return kernel_; }
  const Costs& costs() const { return costs_; }

  // Declares dimensions from their linear index, the last one fastest.
  void take_apart(const NestText& t, const Nest& nest, const std::vector<size_t>& dims, std::string linear);
  // The statements of a part, except reductions. `guard` is put before each store.
  void part(const NestText& t, const Nest& nest, Part part, const std::string& guard);
  template <class Visit>
  static void for_each_reduction(const Nest& nest, Visit visit) {
    for (InstId i = 0; i < nest.body.size(); ++i)
      if (nest.body[i].op == LoopOp::kReduce) visit(i);
  }
  // Declares accumulators, and reduces points `from`, `from` + `step`, ...
  void reduced_loop(const NestText& t, const Nest& nest, const std::string& from, const std::string& step);
  // Declares the value of reduction i; `whole` is the expression of its result.
  void result(const NestText& t, const Nest& nest, InstId i, const std::string& whole);

 private:
  const Kernel& kernel_;
  const Costs& costs_;
  std::string text_;
  size_t depth_ = 1;
};

// Declares a buffer that lives for one outer point, in shared memory; nothing for any other buffer.
void declare_scratch(HipWriter& w, LoopBufferId b);
// What a nest does at the outer point "row": the threads of a block step through its points together, from thread
// `first` on. Without barriers before and after it.
void write_inner_nest(HipWriter& w, const KernelNest& n, int64_t threads, int64_t first = 0);

// The shapes (see hip_emitter.cpp): body text, and how to launch it. Nothing if the kernel does not have the shape.
HipProgram emit_points(const Kernel& kernel, const Costs& costs);
std::optional<HipProgram> emit_tiles(const Kernel& kernel, const Costs& costs);
HipProgram emit_columns(const Kernel& kernel, const Costs& costs);
std::optional<HipProgram> emit_attention(const Kernel& kernel, const TargetInfo& target);
std::optional<HipProgram> emit_rows(const Kernel& kernel, const TargetInfo& target);
std::optional<HipProgram> emit_products(const Kernel& kernel, const TargetInfo& target);
HipProgram emit_mixed_rows(const Kernel& kernel, const Costs& costs);

}  // namespace framejit::inductor
