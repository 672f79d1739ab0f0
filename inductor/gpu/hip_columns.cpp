// inductor/gpu/hip_columns.cpp — one nest whose kept dimensions are contiguous and whose reduced ones are not.
//
// A thread takes a run of adjacent columns, 16 bytes of each row, and the lanes of a block take adjacent runs. Several
// threads share a run: each takes every n-th row. Their partial results meet in shared memory and are added in the
// order of the threads. If there are few columns, runs are shorter, so that there are enough blocks.
#include <algorithm>

#include "inductor/gpu/hip_runs.h"
#include "inductor/gpu/hip_writer.h"

namespace framejit::inductor {
namespace {

class Columns {
 public:
  Columns(const Kernel& kernel, const Costs& costs)
      : kernel_(kernel),
        costs_(costs),
        n_(kernel.nests[0]),
        symbols_(kernel.symbol_count),
        text_(kernel, n_.nest),
        after_(kernel, n_.nest),
        w_(kernel, costs),
        dims_(outer_dims(kernel)) {
    for (size_t d : kept_dims(n_)) dims_.push_back(d);
  }

  HipProgram run() {
    choose_shape();
    const size_t last = dims_.back();
    const std::vector<size_t> others(dims_.begin(), dims_.end() - 1);
    const SymExpr extent = n_.nest.extent(last);
    const SymExpr runs = SymExpr::floor_div(extent + SymExpr(width_ - 1), width_);
    if (!(SymExpr::mod(extent, width_) == SymExpr(0))) {
      end_ = text_.expr(extent);
      rest_ = ", " + end_ + " - at";
    }
    program_.extent = count(n_.nest, others) * runs;
    program_.threads = parts_ * lanes_;
    program_.per_block = lanes_;
    const std::string lanes = std::to_string(lanes_);
    choose_runs(last);
    if (parts_ > 1)
      w_.line("__shared__ u64 scratch[" + std::to_string(width_ * program_.threads * bytes_of_a_part() / 8) + "];");
    w_.line("const index p = (index)blockIdx.x * " + lanes + " + (index)threadIdx.x % " + lanes + ";");
    w_.line("const bool live = p < extent;");
    if (width_ > 1) w_.line(wide_text_);
    w_.line("const index column = live ? p : 0;");
    const std::string many = text_.factor(runs), times = width_ > 1 ? " * " + std::to_string(width_) : "";
    w_.line("const index at = column" + (others.empty() ? "" : " % " + many) + times + ";");
    w_.take_apart(text_, n_.nest, others, "(column / " + many + ")");
    own_ = text_.dim(last);
    reduce();
    results();
    program_.text = w_.text();
    return std::move(program_);
  }

 private:
  int64_t threads_of_a_column(int64_t rows) const {
    if (rows >= costs_.long_columns) return costs_.long_column_threads;
    if (rows >= costs_.middle_columns) return costs_.middle_column_threads;
    return rows >= costs_.short_columns ? costs_.short_column_threads : 1;
  }

  void choose_shape() {
    const int64_t rows = hinted(kernel_, count(n_.nest, reduced_dims(n_.nest)), costs_.unknown_rows);
    const int64_t columns = hinted(kernel_, count(n_.nest, dims_), costs_.unknown_points);
    parts_ = threads_of_a_column(rows);
    width_ = run_width(kernel_, {&n_.nest}, dims_.back(), true);
    const auto blocks = [&](int64_t lanes) { return columns / (lanes * width_); };
    while (width_ > 1 && blocks(parts_ == 1 ? costs_.block_threads : costs_.column_lanes) < costs_.column_blocks)
      width_ /= 2;
    if (width_ > 1 && parts_ > 1) parts_ = std::max(costs_.run_threads, width_);
    lanes_ = parts_ == 1 ? costs_.block_threads : costs_.column_lanes;
  }

  // The size of a thread's partial result for one column.
  int64_t bytes_of_a_part() const {
    int64_t bytes = 1;
    HipWriter::for_each_reduction(n_.nest, [&](InstId i) {
      const int64_t own = row_of(n_.nest.body[n_.nest.body[i].operands[0]].dtype).bytes;
      bytes = std::max(bytes, text_.is_position(i) ? 2 * std::max<int64_t>(own, 8) : own);
    });
    return bytes;
  }

  static std::string run_of(InstId i) { return "x" + std::to_string(i); }
  std::string declared_run(InstId i) const {
    return run_type_text(kernel_.buffers[n_.nest.body[i].buffer].dtype, width_) + run_of(i) + ";";
  }
  std::string loaded_run(InstId i, const std::string& rest) const {
    return "load_run(" + run_of(i) + ", &" + after_.access(n_.nest.body[i]) + ", " + wide() + rest + ");";
  }
  std::string wide() const { return width_ > 1 ? "wide" : "false"; }

  void choose_runs(size_t last) {
    if (width_ == 1) return;
    WideAccess wide(width_);
    std::set<LoopBufferId> written;
    for (const LoopInst& inst : n_.nest.body)
      if (inst.op == LoopOp::kStore) written.insert(inst.buffer);
    const auto inner = inner_insts(n_.nest, symbols_), after = after_reduction(n_.nest, symbols_);
    for (InstId i = 0; i < n_.nest.body.size(); ++i) {
      const LoopInst& inst = n_.nest.body[i];
      const bool is_load = inst.op == LoopOp::kLoad;
      if (after[i] || !is_side_by_side(inst, symbols_, last) || (!is_load && !inner[i])) continue;
      if (is_load && written.count(inst.buffer) != 0) continue;
      if (!wide.add(text_, symbols_, n_.nest, inst, last)) continue;
      (inner[i] ? inside_ : before_).push_back(i);
      text_.stand_in(i, is_load ? run_of(i) + ".get(j)" : "put_run(" + run_of(i) + ", j, ", ");");
    }
    wide_text_ = wide.declaration();
  }

  void open_columns() {
    if (width_ > 1) {
      w_.open_unrolled("j", width_);
      w_.line("const index " + own_ + " = at + j;");
    } else {
      w_.open("");
      w_.line("const index " + own_ + " = at;");
    }
  }

  // Stores outside the reduced loop are left to results().
  void values(Part part) {
    const auto inner = inner_insts(n_.nest, symbols_), after = after_reduction(n_.nest, symbols_);
    for (InstId i = 0; i < n_.nest.body.size(); ++i) {
      const LoopInst& inst = n_.nest.body[i];
      if (after[i] || inst.op == LoopOp::kReduce || inner[i] != (part == Part::kInside)) continue;
      if (inst.op != LoopOp::kStore || inner[i]) w_.line(text_.inst(i, "if (live) "));
    }
  }

  void reduce() {
    const Nest& nest = n_.nest;
    const std::string width = std::to_string(width_);
    HipWriter::for_each_reduction(nest, [&](InstId i) {
      w_.line(text_.accumulator_type(i) + " a" + std::to_string(i) + "[" + width + "];");
      w_.line("for (auto& a : a" + std::to_string(i) + ") a = " + text_.start(i) + ";");
    });
    w_.open("");
    w_.line("const index " + own_ + " = at;");
    for (InstId i : before_) {
      w_.line(declared_run(i));
      w_.line(loaded_run(i, rest_));
    }
    if (end_.empty()) {
      rows(false);
    } else {  // two loops: most sizes divide into whole runs
      w_.open("if (" + text_.factor(nest.extent(dims_.back())) + " % " + width + " == 0)");
      rows(false);
      w_.close();
      w_.open("else");
      rows(true);
      w_.close();
    }
    w_.close();
  }

  // Long sums are sums of shorter sums, to bound their rounding error.
  void rows(bool has_parts_of_runs) {
    constexpr int64_t kChain = 32;  // additions in a chain
    const Nest& nest = n_.nest;
    const SymExpr all = count(nest, reduced_dims(nest));
    const std::string own = "(index)threadIdx.x / " + std::to_string(lanes_), end = text_.expr(all);
    if (all.is_constant() && all.constant() <= kChain * parts_) return rows(has_parts_of_runs, own, end);
    const std::string step = std::to_string(kChain * parts_), width = std::to_string(width_);
    const auto each = [&](InstId i, const std::string& to, const std::string& value) {
      w_.line("for (int j = 0; j < " + width + "; ++j) " + to + std::to_string(i) + "[j] = " + value + ";");
    };
    HipWriter::for_each_reduction(nest, [&](InstId i) {
      w_.line(text_.accumulator_type(i) + " w" + std::to_string(i) + "[" + width + "];");
      each(i, "w", text_.start(i));
    });
    w_.open("for (index from = 0; from < " + end + "; from += " + step + ")");
    HipWriter::for_each_reduction(nest, [&](InstId i) { each(i, "a", text_.start(i)); });
    w_.line("const index end = idx_min<index>(" + end + ", from + " + step + ");");
    rows(has_parts_of_runs, "from + " + own, "end");
    const auto joined = [](InstId i, const std::string& operation) {
      return operation + "::of(w" + std::to_string(i) + "[j], a" + std::to_string(i) + "[j])";
    };
    HipWriter::for_each_reduction(nest, [&](InstId i) { each(i, "w", joined(i, text_.operation(i))); });
    w_.close();
    HipWriter::for_each_reduction(nest, [&](InstId i) { each(i, "a", "w" + std::to_string(i) + "[j]"); });
  }

  void rows(bool has_parts_of_runs, const std::string& from, const std::string& end) {
    const Nest& nest = n_.nest;
    const std::string j = width_ > 1 ? "[j]" : "[0]", rest = has_parts_of_runs ? rest_ : "";
    w_.line("#pragma unroll 4");
    w_.open("for (index q = " + from + "; q < " + end + "; q += " + std::to_string(parts_) + ")");
    w_.take_apart(text_, nest, reduced_dims(nest), "q");
    for (InstId i : inside_) {
      w_.line(declared_run(i));
      if (nest.body[i].op == LoopOp::kLoad) w_.line(loaded_run(i, rest));
    }
    open_columns();
    if (has_parts_of_runs) w_.line("if (at + j >= " + end_ + ") break;");
    values(Part::kBefore);
    values(Part::kInside);
    HipWriter::for_each_reduction(nest, [&](InstId i) { w_.line(text_.accumulate(i, "q", j)); });
    w_.close();
    for (InstId i : inside_)
      if (nest.body[i].op == LoopOp::kStore)
        w_.line("if (live) store_run(&" + after_.access(nest.body[i]) + ", " + run_of(i) + ", wide" + rest + ");");
    w_.close();
  }

  // Several threads share a run. The first of them each finish one of its columns.
  void results() {
    const Nest& nest = n_.nest;
    const auto whole = [&](InstId i, const std::string& of) { w_.result(after_, nest, i, of); };
    std::string guard = "if (live) ";
    if (parts_ == 1) {
      open_columns();
      if (!end_.empty()) w_.line("if (at + j >= " + end_ + ") break;");
      HipWriter::for_each_reduction(
          nest, [&](InstId i) { whole(i, "a" + std::to_string(i) + (width_ > 1 ? "[j]" : "[0]")); });
    } else {
      w_.line("const index own = (index)threadIdx.x / " + std::to_string(lanes_) + ";");
      w_.line("const bool mine = live && own < " + std::to_string(width_) +
              (end_.empty() ? ";" : " && at + own < " + end_ + ";"));
      w_.line("const index " + own_ + " = at + (mine ? own : 0);");
      guard = "if (mine) ";
      HipWriter::for_each_reduction(nest, [&](InstId i) {
        whole(i, "column_reduce<" + after_.operation(i) + ">(a" + std::to_string(i) + ", scratch, " +
                     std::to_string(lanes_) + ")");
      });
    }
    w_.part(after_, nest, Part::kBefore, guard);
    w_.part(after_, nest, Part::kAfter, guard);
    if (parts_ == 1) w_.close();
  }

  const Kernel& kernel_;
  const Costs& costs_;
  const KernelNest& n_;
  const NestSymbols symbols_;
  NestText text_, after_;  // in the loop over rows, with runs; after it, with single columns
  HipWriter w_;
  std::vector<size_t> dims_;
  HipProgram program_;
  int64_t width_ = 1, parts_ = 1, lanes_ = 1;
  std::vector<InstId> before_, inside_;  // accesses in runs
  std::string wide_text_, own_, end_, rest_;
};

}  // namespace

HipProgram emit_columns(const Kernel& kernel, const Costs& costs) { return Columns(kernel, costs).run(); }

}  // namespace framejit::inductor
