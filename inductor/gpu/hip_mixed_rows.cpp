// inductor/gpu/hip_mixed_rows.cpp — a block for each outer point, whose nests may run over different points.
//
// The threads of a block step through a nest's inner points together, with a barrier between nests. Scratch lies in
// shared memory.
#include <algorithm>

#include "inductor/gpu/hip_writer.h"

namespace framejit::inductor {
namespace {

class MixedRows {
 public:
  MixedRows(const Kernel& kernel, const Costs& costs) : kernel_(kernel), costs_(costs), w_(kernel, costs) {}

  HipProgram run() {
    HipProgram program;
    program.extent = kernel_.extent;
    const bool few_rows = hinted(kernel_, kernel_.extent, costs_.unknown_points) < costs_.few_rows;
    const int64_t work = work_of_a_row(), each = costs_.row_points;
    const int64_t most = few_rows || work >= costs_.long_row ? costs_.most_row_threads : costs_.block_threads;
    threads_ = std::clamp<int64_t>(power_of_two_from((work + each - 1) / each), costs_.least_row_threads, most);
    w_.line("__shared__ u64 scratch[64];");
    for (size_t k = 0; k < kernel_.buffers.size(); ++k)
      if (kernel_.buffers[k].is_local)
        w_.line("__shared__ " + memory_type_text(kernel_.buffers[k].dtype) + " b" + std::to_string(k) + "[" +
                std::to_string(kernel_.buffers[k].local_elements) + "];");
    w_.line("const index row = (index)blockIdx.x;");
    for (size_t k = 0; k < kernel_.nests.size(); ++k) {
      if (k > 0) w_.line("__syncthreads();");
      w_.open("");
      nest(kernel_.nests[k]);
      w_.close();
    }
    program.threads = threads_;
    program.text = w_.text();
    return program;
  }

 private:
  // Work of one outer point in its largest nest.
  int64_t work_of_a_row() const {
    int64_t most = 1;
    for (const KernelNest& n : kernel_.nests) {
      const auto kept = kept_dims(n);
      const SymExpr points = kept.empty() ? count(n.nest, reduced_dims(n.nest)) : count(n.nest, kept);
      most = std::max(most, hinted(kernel_, points, costs_.unknown_points));
    }
    return most;
  }

  void nest(const KernelNest& n) {
    const NestText t(kernel_, n.nest);
    w_.take_apart(t, n.nest, outer_dims(kernel_), "row");
    const std::vector<size_t> kept = kept_dims(n);
    const std::string threads = std::to_string(threads_);
    if (kept.empty() && !n.nest.is_reduction()) {
      w_.open("if (threadIdx.x == 0)");
      w_.part(t, n.nest, Part::kBefore, "");
      return w_.close();
    }
    if (kept.empty()) return shared_reduction(t, n.nest);
    const SymExpr points = count(n.nest, kept);
    const bool together =
        n.nest.is_reduction() && hinted(kernel_, points, costs_.unknown_points) * costs_.together <= threads_;
    w_.open("for (index p = " + std::string(together ? "0" : "(index)threadIdx.x") + "; p < " + t.expr(points) +
            "; p += " + (together ? "1" : threads) + ")");
    w_.take_apart(t, n.nest, kept, "p");
    if (together) {
      shared_reduction(t, n.nest);
    } else {
      w_.part(t, n.nest, Part::kBefore, "");
      if (n.nest.is_reduction()) {
        w_.reduced_loop(t, n.nest, "0", "1");
        HipWriter::for_each_reduction(n.nest,
                                      [&](InstId i) { w_.result(t, n.nest, i, "a" + std::to_string(i)); });
        w_.part(t, n.nest, Part::kAfter, "");
      }
    }
    w_.close();
  }

  // All threads of the block reduce together. The first one does the stores.
  void shared_reduction(const NestText& t, const Nest& nest) {
    const std::string guard = "if (threadIdx.x == 0) ";
    w_.part(t, nest, Part::kBefore, guard);
    w_.reduced_loop(t, nest, "(index)threadIdx.x", std::to_string(threads_));
    HipWriter::for_each_reduction(nest, [&](InstId i) {
      w_.result(t, nest, i, "block_reduce<" + t.operation(i) + ">(a" + std::to_string(i) + ", scratch)");
    });
    w_.part(t, nest, Part::kAfter, guard);
  }

  const Kernel& kernel_;
  const Costs& costs_;
  HipWriter w_;
  int64_t threads_ = 1;
};

}  // namespace

HipProgram emit_mixed_rows(const Kernel& kernel, const Costs& costs) { return MixedRows(kernel, costs).run(); }

}  // namespace framejit::inductor
