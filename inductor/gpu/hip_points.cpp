// inductor/gpu/hip_points.cpp — one nest without a reduction. A thread takes a run of adjacent points of the last
// dimension, if that divides into runs. A run that does not begin at a whole word is accessed element by element.
#include <algorithm>

#include "inductor/gpu/hip_runs.h"
#include "inductor/gpu/hip_writer.h"

namespace framejit::inductor {
namespace {

class Points {
 public:
  Points(const Kernel& kernel, const Costs& costs)
      : kernel_(kernel),
        costs_(costs),
        n_(kernel.nests[0]),
        symbols_(kernel.symbol_count),
        text_(kernel, n_.nest),
        w_(kernel, costs),
        dims_(outer_dims(kernel)) {
    for (size_t d : kept_dims(n_)) dims_.push_back(d);
  }

  HipProgram run() {
    const int64_t points = hinted(kernel_, count(n_.nest, dims_), costs_.many_points);
    // If a row is not a whole number of runs, the next row starts between words. A nest of one dimension has one row.
    const bool is_line = dims_.size() == 1;
    if (!dims_.empty()) width_ = run_width(kernel_, {&n_.nest}, dims_.back(), !is_line);
    program_.threads = points >= costs_.many_points ? costs_.block_threads : costs_.few_points_threads;
    if (width_ == 1) {
      singly(points);
    } else {
      in_runs();
    }
    program_.text = w_.text();
    return std::move(program_);
  }

 private:
  void singly(int64_t points) {
    program_.extent = count(n_.nest, dims_);
    const int64_t each = points >= costs_.many_points ? points_of_a_thread() : 1;
    const std::string threads = std::to_string(program_.threads), block = std::to_string(program_.threads * each);
    program_.per_block = program_.threads * each;
    w_.line("const index first = (index)blockIdx.x * " + block + " + (index)threadIdx.x;");
    if (each == 1) {
      w_.line("if (first >= extent) return;");
      return point("first");
    }
    // Without a check between them, the loads of all points are in flight together.
    w_.open("if (first + " + std::to_string(program_.per_block - program_.threads) + " < extent)");
    w_.open_unrolled("k", each);
    point("(first + k * " + threads + ")");
    w_.close();
    w_.close();
    w_.open("else");
    w_.line("#pragma unroll 1");
    w_.open("for (index p = first; p < extent; p += " + threads + ")");
    point("p");
    w_.close();
    w_.close();
  }
  void point(const std::string& p) {
    w_.take_apart(text_, n_.nest, dims_, p);
    w_.part(text_, n_.nest, Part::kBefore, "");
  }
  // More points if elements are narrow, so that a thread has as many bytes in flight.
  int64_t points_of_a_thread() const {
    int64_t widest = 1;
    for (const KernelBuffer& b : kernel_.buffers) widest = std::max<int64_t>(widest, row_of(b.dtype).bytes);
    return widest <= 2 ? 2 * costs_.thread_points : costs_.thread_points;
  }

  void in_runs() {
    const size_t last = dims_.back();
    const std::vector<size_t> rows(dims_.begin(), dims_.end() - 1);
    const SymExpr extent = n_.nest.extent(last);
    const std::string width = std::to_string(width_), name = text_.dim(last);
    const SymExpr runs = SymExpr::floor_div(extent + SymExpr(width_ - 1), width_);
    const bool has_part = !(SymExpr::mod(extent, width_) == SymExpr(0));
    program_.extent = count(n_.nest, rows) * runs;
    program_.per_block = program_.threads;
    choose_runs(last);
    w_.line("const index p = (index)blockIdx.x * " + std::to_string(program_.threads) + " + (index)threadIdx.x;");
    w_.line("if (p >= extent) return;");
    w_.line(wide_text_);
    if (rows.empty()) {
      w_.line("const index at = p * " + width + ";");
    } else {
      w_.line("const index at = p % " + text_.factor(runs) + " * " + width + ";");
      w_.take_apart(text_, n_.nest, rows, "(p / " + text_.factor(runs) + ")");
    }
    const std::string end = text_.expr(extent);
    w_.open("if (wide" + (has_part ? " && at + " + width + " <= " + end : "") + ")");
    whole_run(name);
    w_.close();
    w_.open("else");
    w_.line("#pragma unroll 1");
    w_.open("for (int j = 0; j < " + width + "; ++j)");
    if (has_part) w_.line("if (at + j >= " + end + ") break;");
    w_.line("const index " + name + " = at + j;");
    w_.part(NestText(kernel_, n_.nest), n_.nest, Part::kBefore, "");
    w_.close();
    w_.close();
  }

  // All loads come first, so that a thread waits for them together.
  void whole_run(const std::string& name) {
    w_.line("const index " + name + " = at;");
    for (InstId i : runs_) {
      const LoopInst& inst = n_.nest.body[i];
      const std::string run = "x" + std::to_string(i);
      w_.line(run_type_text(kernel_.buffers[inst.buffer].dtype, width_) + run + ";");
      if (inst.op == LoopOp::kLoad) w_.line("load_run(" + run + ", &" + text_.access(inst) + ", true);");
    }
    w_.open_unrolled("j", width_);
    w_.line("const index " + name + " = at + j;");
    w_.part(text_, n_.nest, Part::kBefore, "");
    w_.close();
    for (InstId i : runs_)
      if (n_.nest.body[i].op == LoopOp::kStore)
        w_.line("store_run(&" + text_.access(n_.nest.body[i]) + ", x" + std::to_string(i) + ", true);");
  }

  // Buffers that are read after a write are not accessed in runs.
  void choose_runs(size_t last) {
    WideAccess wide(width_);
    for (InstId i = 0; i < n_.nest.body.size(); ++i) {
      const LoopInst& inst = n_.nest.body[i];
      if (!is_side_by_side(inst, symbols_, last) || !is_free(inst.buffer)) continue;
      if (!wide.add(text_, symbols_, n_.nest, inst, last)) continue;
      runs_.push_back(i);
      const std::string run = "x" + std::to_string(i);
      text_.stand_in(i, inst.op == LoopOp::kLoad ? run + ".get(j)" : "put_run(" + run + ", j, ", ");");
    }
    wide_text_ = wide.declaration();
  }

  // No load of the buffer comes after a store into it, and there is one store at most.
  bool is_free(LoopBufferId buffer) const {
    int stores = 0;
    for (const LoopInst& inst : n_.nest.body) {
      if (inst.op == LoopOp::kLoad && inst.buffer == buffer && stores > 0) return false;
      if (inst.op == LoopOp::kStore && inst.buffer == buffer) ++stores;
    }
    return stores <= 1;
  }

  const Kernel& kernel_;
  const Costs& costs_;
  const KernelNest& n_;
  const NestSymbols symbols_;
  NestText text_;
  HipWriter w_;
  std::vector<size_t> dims_;
  HipProgram program_;
  int64_t width_ = 1;
  std::vector<InstId> runs_;
  std::string wide_text_;
};

}  // namespace

HipProgram emit_points(const Kernel& kernel, const Costs& costs) { return Points(kernel, costs).run(); }

}  // namespace framejit::inductor
