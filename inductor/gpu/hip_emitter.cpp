// inductor/gpu/hip_emitter.cpp — which threads take which points, and the loops around the statements.
//
// Three shapes. Points: one nest without a reduction, a thread for each point. Columns: one nest whose kept dimensions
// are contiguous and whose reduced ones are not: neighbouring threads take neighbouring columns, several threads share
// a column and meet in shared memory. Rows: everything else: a block for each outer point; the block's threads step
// through a nest's inner points together, a barrier stands between nests, scratch lies in shared memory. Sums are added
// in an order that depends on the kernel alone.
#include "inductor/gpu/hip_emitter.h"

#include <algorithm>

#include "inductor/gpu/hip_text.h"

namespace framejit::inductor {

std::string_view hip_prelude() {
  static constexpr std::string_view text =
#include "inductor/gpu/prelude.hip"
      ;
  return text.substr(1);
}

namespace {

int64_t power_of_two_from(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

class HipEmitter {
 public:
  HipEmitter(const Kernel& kernel, const Costs& costs) : kernel_(kernel), costs_(costs) {
    program_.threads = costs.block_threads;
  }

  Result<HipProgram> run() {
    for (const KernelNest& n : kernel_.nests)
      for (const LoopInst& inst : n.nest.body)
        if (inst.op == LoopOp::kCheck) return Error{Reason::gpu, "a checked index has no GPU form"};
    const KernelNest& first = kernel_.nests[0];
    if (kernel_.nests.size() == 1 && !first.nest.is_reduction()) {
      emit_points(first);
    } else if (kernel_.nests.size() == 1 && first.vector_dim < first.nest.ranges.size()) {
      emit_columns(first);
    } else {
      FJ_CHECK(!kernel_.is_flat, "a flat kernel is one nest");
      emit_rows();
    }
    program_.text = head() + text_ + "}\n";
    return std::move(program_);
  }

 private:
  std::string head() const {
    std::string text = fits_in_32_bits(kernel_) ? "typedef int index;\n" : "typedef i64 index;\n";
    text += "KERNEL(" + std::to_string(program_.threads) + ")(";
    for (size_t k = 0; k < kernel_.buffers.size(); ++k) {
      const KernelBuffer& b = kernel_.buffers[k];
      if (b.is_local) continue;
      text += (b.is_written ? "" : "const ") + memory_type_text(b.dtype) + (b.is_written ? "* b" : "* __restrict__ b") +
              std::to_string(k) + ", ";
    }
    for (graph::SymbolId s : kernel_.symbols) text += "i64 s" + std::to_string(s) + ", ";
    return text + "i64 extent) {\n";
  }

  void line(const std::string& statement) { text_ += std::string(2 * depth_, ' ') + statement + "\n"; }
  void open(const std::string& statement) {
    line(statement + (statement.empty() ? "{" : " {"));
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }

  // Product of the extents of some dimensions.
  static SymExpr count(const Nest& nest, const std::vector<size_t>& dims) {
    SymExpr n = 1;
    for (size_t d : dims) n = n * nest.extent(d);
    return n;
  }

  // Declares dimensions from their linear index, the last one fastest.
  void take_apart(const NestText& t, const Nest& nest, const std::vector<size_t>& dims, std::string linear) {
    for (size_t k = dims.size(); k-- > 0;) {
      const std::string extent = t.expr(nest.extent(dims[k]));
      line("const index " + t.dim(dims[k]) + " = " + (k == 0 ? linear : linear + " % " + extent) + ";");
      linear = "(" + linear + " / " + extent + ")";
    }
  }

  static std::vector<size_t> reduced_dims(const Nest& nest) {
    std::vector<size_t> dims;
    for (size_t d = nest.ranges.size(); d < nest.dim_count(); ++d) dims.push_back(d);
    return dims;
  }
  static std::vector<size_t> kept_dims(const KernelNest& n) {  // those that the nest itself loops over
    std::vector<size_t> dims;
    for (size_t d : n.order)
      if (d < n.nest.ranges.size()) dims.push_back(d);
    return dims;
  }
  std::vector<size_t> outer_dims() const {
    std::vector<size_t> dims;
    for (size_t d = 0; d < kernel_.outer.size(); ++d) dims.push_back(d);
    return dims;
  }

  enum class Part { kBefore, kInside, kAfter };
  void emit_part(const NestText& t, const Nest& nest, Part part, const std::string& guard) {
    const NestSymbols symbols(kernel_.symbol_count);
    const auto inner = inner_insts(nest, symbols), after = after_reduction(nest, symbols);
    for (InstId i = 0; i < nest.body.size(); ++i) {
      const Part own = after[i] ? Part::kAfter : inner[i] ? Part::kInside : Part::kBefore;
      if (own == part && nest.body[i].op != LoopOp::kReduce) line(t.inst(i, part == Part::kInside ? "" : guard));
    }
  }

  template <class Visit>
  static void for_each_reduction(const Nest& nest, Visit visit) {
    for (InstId i = 0; i < nest.body.size(); ++i)
      if (nest.body[i].op == LoopOp::kReduce) visit(i);
  }

  // Accumulators over reduced points `from`, `from` + `step`, ...
  void emit_reduced_loop(const NestText& t, const Nest& nest, const std::string& from, const std::string& step) {
    for_each_reduction(nest, [&](InstId i) { line(t.declare_accumulator(i)); });
    line("#pragma unroll 4");
    open("for (index q = " + from + "; q < " + t.expr(count(nest, reduced_dims(nest))) + "; q += " + step + ")");
    take_apart(t, nest, reduced_dims(nest), "q");
    emit_part(t, nest, Part::kInside, "");
    for_each_reduction(nest, [&](InstId i) { line(t.accumulate(i, "q")); });
    close();
  }

  // The reduction's value from what `function` makes of the threads' accumulators; without one they are whole.
  void emit_results(const NestText& t, const Nest& nest, const std::string& function, const std::string& arguments) {
    for_each_reduction(nest, [&](InstId i) {
      const std::string own = "a" + std::to_string(i);
      const std::string whole =
          function.empty() ? own : function + "<" + t.operation(i) + ">(" + own + ", " + arguments + ")";
      line("const " + value_type_text(nest.body[i].dtype) + " v" + std::to_string(i) + " = " + whole +
           (t.is_position(i) ? ".at;" : ";"));
    });
  }

  void emit_points(const KernelNest& n) {
    const NestText t(kernel_, n.nest);
    std::vector<size_t> dims = outer_dims();
    for (size_t d : kept_dims(n)) dims.push_back(d);
    program_.extent = count(n.nest, dims);
    const int64_t points = program_.extent.as_constant().value_or(costs_.many_points);
    const int64_t each = points >= costs_.many_points ? costs_.thread_points : 1;
    program_.per_block = program_.threads * each;
    depth_ = 1;
    line("#pragma unroll");
    open("for (int k = 0; k < " + std::to_string(each) + "; ++k)");
    line("const index p = (index)blockIdx.x * " + std::to_string(program_.per_block) + " + k * " +
         std::to_string(program_.threads) + " + (index)threadIdx.x;");
    line("if (p >= extent) return;");
    take_apart(t, n.nest, dims, "p");
    emit_part(t, n.nest, Part::kBefore, "");
    close();
  }

  int64_t threads_of_a_column(int64_t rows) const {
    if (rows >= costs_.long_columns) return costs_.long_column_threads;
    if (rows >= costs_.middle_columns) return costs_.middle_column_threads;
    return rows >= costs_.short_columns ? costs_.short_column_threads : 1;
  }

  void emit_columns(const KernelNest& n) {
    const NestText t(kernel_, n.nest);
    std::vector<size_t> dims = outer_dims();
    for (size_t d : kept_dims(n)) dims.push_back(d);
    program_.extent = count(n.nest, dims);
    const int64_t parts =
        threads_of_a_column(count(n.nest, reduced_dims(n.nest)).as_constant().value_or(costs_.unknown_rows));
    const int64_t lanes = parts == 1 ? costs_.block_threads : costs_.column_lanes;
    program_.threads = parts * lanes;
    program_.per_block = lanes;
    depth_ = 1;
    if (parts > 1) line("__shared__ u64 scratch[" + std::to_string(2 * program_.threads) + "];");
    line("const index p = (index)blockIdx.x * " + std::to_string(lanes) + " + (index)threadIdx.x % " +
         std::to_string(lanes) + ";");
    line("const bool live = p < extent;");
    line("const index column = live ? p : 0;");
    take_apart(t, n.nest, dims, "column");
    const std::string guard = parts == 1 ? "if (live) " : "if (live && threadIdx.x < " + std::to_string(lanes) + ") ";
    emit_part(t, n.nest, Part::kBefore, guard);
    emit_reduced_loop(t, n.nest, "(index)threadIdx.x / " + std::to_string(lanes), std::to_string(parts));
    emit_results(t, n.nest, parts == 1 ? "" : "column_reduce", "scratch, " + std::to_string(lanes));
    emit_part(t, n.nest, Part::kAfter, guard);
  }

  // Work of one outer point in its largest nest.
  int64_t work_of_a_row() const {
    int64_t most = 1;
    for (const KernelNest& n : kernel_.nests) {
      const auto kept = kept_dims(n);
      const SymExpr points = kept.empty() ? count(n.nest, reduced_dims(n.nest)) : count(n.nest, kept);
      most = std::max(most, points.as_constant().value_or(costs_.unknown_points));
    }
    return most;
  }

  void emit_rows() {
    program_.extent = kernel_.extent;
    const bool few_rows = kernel_.extent.as_constant().value_or(costs_.unknown_points) < costs_.few_rows;
    const int64_t work = work_of_a_row(), each = costs_.row_points;
    const int64_t most = few_rows || work >= costs_.long_row ? costs_.most_row_threads : costs_.block_threads;
    program_.threads = std::clamp<int64_t>(power_of_two_from((work + each - 1) / each), costs_.least_row_threads, most);
    depth_ = 1;
    line("__shared__ u64 scratch[64];");
    for (size_t k = 0; k < kernel_.buffers.size(); ++k)
      if (kernel_.buffers[k].is_local)
        line("__shared__ " + memory_type_text(kernel_.buffers[k].dtype) + " b" + std::to_string(k) + "[" +
             std::to_string(kernel_.buffers[k].local_elements) + "];");
    line("const index row = (index)blockIdx.x;");
    for (size_t k = 0; k < kernel_.nests.size(); ++k) {
      if (k > 0) line("__syncthreads();");
      open("");
      emit_row_nest(kernel_.nests[k]);
      close();
    }
  }

  void emit_row_nest(const KernelNest& n) {
    const NestText t(kernel_, n.nest);
    take_apart(t, n.nest, outer_dims(), "row");
    const std::vector<size_t> kept = kept_dims(n);
    const std::string threads = std::to_string(program_.threads);
    if (kept.empty() && !n.nest.is_reduction()) {
      open("if (threadIdx.x == 0)");
      emit_part(t, n.nest, Part::kBefore, "");
      return close();
    }
    if (kept.empty()) return emit_shared_reduction(t, n.nest);
    const SymExpr points = count(n.nest, kept);
    const bool together = n.nest.is_reduction() &&
                          points.as_constant().value_or(costs_.unknown_points) * costs_.together <= program_.threads;
    open("for (index p = " + std::string(together ? "0" : "(index)threadIdx.x") + "; p < " + t.expr(points) +
         "; p += " + (together ? "1" : threads) + ")");
    take_apart(t, n.nest, kept, "p");
    if (together) {
      emit_shared_reduction(t, n.nest);
    } else {
      emit_part(t, n.nest, Part::kBefore, "");
      if (n.nest.is_reduction()) {
        emit_reduced_loop(t, n.nest, "0", "1");
        emit_results(t, n.nest, "", "");
        emit_part(t, n.nest, Part::kAfter, "");
      }
    }
    close();
  }

  // All threads of the block reduce together; what is stored once is stored by the first.
  void emit_shared_reduction(const NestText& t, const Nest& nest) {
    const std::string guard = "if (threadIdx.x == 0) ";
    emit_part(t, nest, Part::kBefore, guard);
    emit_reduced_loop(t, nest, "(index)threadIdx.x", std::to_string(program_.threads));
    emit_results(t, nest, "block_reduce", "scratch");
    emit_part(t, nest, Part::kAfter, guard);
  }

  const Kernel& kernel_;
  const Costs& costs_;
  HipProgram program_;
  std::string text_;
  size_t depth_ = 0;
};

}  // namespace

Result<HipProgram> emit_hip(const Kernel& kernel, const TargetInfo& target) {
  return HipEmitter(kernel, target.costs).run();
}

}  // namespace framejit::inductor
