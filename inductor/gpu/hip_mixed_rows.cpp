// inductor/gpu/hip_mixed_rows.cpp — a block for each outer point, whose nests may run over different points.
//
// The threads of a block step through a nest's inner points together, with a barrier between nests. Scratch lies in
// shared memory.
#include <algorithm>

#include "inductor/gpu/hip_writer.h"

namespace framejit::inductor {
namespace {

class InnerNest {
 public:
  InnerNest(HipWriter& w, const KernelNest& n, int64_t threads, int64_t first)
      : kernel_(w.kernel()), costs_(w.costs()), w_(w), n_(n), t_(kernel_, n.nest), threads_(threads), first_(first) {}

  void write() {
    const Nest& nest = n_.nest;
    w_.take_apart(t_, nest, outer_dims(kernel_), "row");
    const std::vector<size_t> kept = kept_dims(n_);
    const std::string threads = std::to_string(threads_);
    if (kept.empty() && !nest.is_reduction()) {
      w_.open("if (threadIdx.x == 0)");
      w_.part(t_, nest, Part::kBefore, "");
      return w_.close();
    }
    if (kept.empty()) return shared_reduction();
    const SymExpr points = count(nest, kept);
    const bool together =
        nest.is_reduction() && hinted(kernel_, points, costs_.unknown_points) * costs_.together <= threads_;
    const std::string own = "(index)threadIdx.x";
    const std::string start =
        first_ == 0 ? own : "(" + own + " + " + std::to_string(threads_ - first_) + ") % " + threads;
    w_.open("for (index p = " + (together ? "0" : start) + "; p < " + t_.expr(points) +
            "; p += " + (together ? "1" : threads) + ")");
    w_.take_apart(t_, nest, kept, "p");
    if (together) {
      shared_reduction();
    } else {
      w_.part(t_, nest, Part::kBefore, "");
      if (nest.is_reduction()) {
        w_.reduced_loop(t_, nest, "0", "1");
        HipWriter::for_each_reduction(nest, [&](InstId i) { w_.result(t_, nest, i, "a" + std::to_string(i)); });
        w_.part(t_, nest, Part::kAfter, "");
      }
    }
    w_.close();
  }

 private:
  // All threads of the block reduce together. The first one does the stores.
  void shared_reduction() {
    const std::string guard = "if (threadIdx.x == 0) ";
    const Nest& nest = n_.nest;
    w_.part(t_, nest, Part::kBefore, guard);
    w_.reduced_loop(t_, nest, "(index)threadIdx.x", std::to_string(threads_));
    HipWriter::for_each_reduction(nest, [&](InstId i) {
      w_.result(t_, nest, i, "block_reduce<" + t_.operation(i) + ">(a" + std::to_string(i) + ", scratch)");
    });
    w_.part(t_, nest, Part::kAfter, guard);
  }

  const Kernel& kernel_;
  const Costs& costs_;
  HipWriter& w_;
  const KernelNest& n_;
  const NestText t_;
  const int64_t threads_, first_;
};

// Points of one outer point in the largest nest.
int64_t points_of_a_row(const Kernel& kernel, const Costs& costs) {
  int64_t most = 1;
  for (const KernelNest& n : kernel.nests) {
    const auto kept = kept_dims(n);
    const SymExpr points = kept.empty() ? count(n.nest, reduced_dims(n.nest)) : count(n.nest, kept);
    most = std::max(most, hinted(kernel, points, costs.unknown_points));
  }
  return most;
}

}  // namespace

void declare_scratch(HipWriter& w, LoopBufferId b) {
  const KernelBuffer& buffer = w.kernel().buffers[b];
  if (!buffer.is_local) return;
  w.line("__shared__ " + memory_type_text(buffer.dtype) + " b" + std::to_string(b) + "[" +
         std::to_string(buffer.local_elements) + "];");
}

void write_inner_nest(HipWriter& w, const KernelNest& n, int64_t threads, int64_t first) {
  InnerNest(w, n, threads, first).write();
}

HipProgram emit_mixed_rows(const Kernel& kernel, const Costs& costs) {
  HipWriter w(kernel, costs);
  HipProgram program;
  program.extent = kernel.extent;
  const bool few_rows = hinted(kernel, kernel.extent, costs.unknown_points) < costs.few_rows;
  const int64_t points = points_of_a_row(kernel, costs), each = costs.row_points;
  const int64_t most = few_rows || points >= costs.long_row ? costs.most_row_threads : costs.block_threads;
  program.threads = std::clamp<int64_t>(power_of_two_from((points + each - 1) / each), costs.least_row_threads, most);
  w.line("__shared__ u64 scratch[64];");
  for (size_t b = 0; b < kernel.buffers.size(); ++b) declare_scratch(w, static_cast<LoopBufferId>(b));
  w.line("const index row = (index)blockIdx.x;");
  for (size_t k = 0; k < kernel.nests.size(); ++k) {
    if (k > 0) w.line("__syncthreads();");
    w.open("");
    write_inner_nest(w, kernel.nests[k], program.threads);
    w.close();
  }
  program.text = w.text();
  return program;
}

}  // namespace framejit::inductor
