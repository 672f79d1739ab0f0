// inductor/gpu/hip_products.cpp — one nest that reduces a few rows and many columns over the same points: a matrix
// product of few rows, with everything that is fused around it.
//
// Its time is the time to read the columns, so it must never wait for anything else. Blocks stay for the whole kernel:
// each works through consecutive columns. The threads of a column share its points, and a thread has the same points in
// every column, so it can hold the rows' values there in registers. It loads the next words of the columns while it
// computes with the current ones. No thread skips a load: past the end of a column, it reads the last word again and
// ignores it. The partial sums of many columns meet at once, in shared memory, in an order that depends on the kernel
// alone. Neighbouring threads then finish neighbouring columns, so their stores are contiguous.
#include <algorithm>
#include <optional>

#include "inductor/gpu/hip_runs.h"
#include "inductor/gpu/hip_writer.h"
#include "inductor/loop/number_text.h"

namespace framejit::inductor {
namespace {

std::string name(const char* of, InstId i) { return of + std::to_string(i); }

// Where a thread keeps its values of the rows from one column to the next.
enum class HeldRows : uint8_t { kValues, kWords, kMemory };

void write_wait(HipWriter& w, const HipProgram& program) {
  if (program.waits) w.line("after_previous();");
}

class Products {
 public:
  Products(const Kernel& kernel, const TargetInfo& target)
      : kernel_(kernel),
        costs_(target.costs),
        processors_(target.processors),
        nest_(kernel.nests[0].nest),
        symbols_(kernel.symbol_count),
        text_(kernel, nest_),
        inner_(inner_insts(nest_, symbols_)),
        after_(after_reduction(nest_, symbols_)),
        w_(kernel, target.costs) {
    program_.waits = target.traits.launches_overlap;
  }

  std::optional<HipProgram> run() {
    if (!is_plain() || !find_dims() || !find_streams()) return std::nullopt;
    find_row_values();
    choose_threads();
    choose_rows();
    choose_columns();
    write();
    program_.text = w_.text();
    return std::move(program_);
  }

 private:
  // One nest whose ranges are all outer, one reduced dimension of a known extent, results without positions.
  bool is_plain() const {
    if (kernel_.nests.size() != 1 || kernel_.is_flat || kernel_.outer.size() != nest_.ranges.size()) return false;
    if (nest_.reduced.size() != 1 || !nest_.reduced[0].is_constant()) return false;
    for (const SymExpr& e : nest_.ranges)
      if (!e.is_constant()) return false;
    for (InstId i = 0; i < nest_.body.size(); ++i) {
      const LoopInst& inst = nest_.body[i];
      if (inst.op == LoopOp::kScan || inst.op == LoopOp::kCheck || inst.mode != StoreMode::kPlain) return false;
      if (inst.op == LoopOp::kReduce && text_.is_position(i)) return false;
      if (inst.op == LoopOp::kStore && !after_[i]) return false;
      if (is_inner_load(i) && !is_side_by_side(inst, symbols_, points_dim())) return false;
    }
    return true;
  }
  size_t points_dim() const { return nest_.ranges.size(); }
  bool is_inner_load(InstId i) const { return inner_[i] && nest_.body[i].op == LoopOp::kLoad; }
  bool is_of(const SymExpr& e, const std::vector<size_t>& dims) const {
    return std::any_of(dims.begin(), dims.end(),
                       [&](size_t d) { return mentions(e, static_cast<graph::SymbolId>(symbols_.sizes + d)); });
  }
  std::vector<size_t> outer_dims_of(const LoopInst& inst) const {
    std::vector<size_t> dims;
    for (size_t d = 0; d < nest_.ranges.size(); ++d)
      if (is_of(inst.index[0], {d})) dims.push_back(d);
    return dims;
  }
  int64_t extent_of(const std::vector<size_t>& dims) const { return count(nest_, dims).constant(); }

  // The columns are the outer dimensions of the largest load.
  bool find_dims() {
    for (InstId i = 0; i < nest_.body.size(); ++i) {
      if (!is_inner_load(i)) continue;
      const std::vector<size_t> own = outer_dims_of(nest_.body[i]);
      if (!own.empty() && extent_of(own) > extent_of(column_dims_)) column_dims_ = own;
    }
    for (size_t d = 0; d < nest_.ranges.size(); ++d)
      if (std::find(column_dims_.begin(), column_dims_.end(), d) == column_dims_.end()) row_dims_.push_back(d);
    columns_ = extent_of(column_dims_);
    rows_ = extent_of(row_dims_);
    return !column_dims_.empty() && rows_ > 0 && rows_ <= std::max<int64_t>(costs_.few_product_rows, 1);
  }

  // False if columns cannot be read in whole words, or if a load depends on both row and column.
  bool find_streams() {
    int64_t least = kWordBytes;
    bool has_row_load = false;
    for (InstId i = 0; i < nest_.body.size(); ++i) {
      if (!is_inner_load(i)) continue;
      const LoopInst& inst = nest_.body[i];
      if (!is_of(inst.index[0], column_dims_)) {
        has_row_load = true;
        continue;
      }
      if (is_of(inst.index[0], row_dims_) || kernel_.buffers[inst.buffer].is_written) return false;
      streams_.push_back(i);
      least = std::min<int64_t>(least, row_of(kernel_.buffers[inst.buffer].dtype).bytes);
    }
    if (streams_.empty() || !has_row_load) return false;
    width_ = kWordBytes / least;
    points_ = nest_.reduced[0].constant();
    if (points_ == 0 || points_ % width_ != 0) return false;
    wide_ = WideAccess(width_);
    for (InstId i = 0; i < nest_.body.size(); ++i)
      if (is_inner_load(i) && !wide_.add(text_, symbols_, nest_, nest_.body[i], points_dim())) return false;
    return true;
  }

  // Finds the values that depend on points and rows only, and among them those that values of columns use.
  void find_row_values() {
    is_of_columns_.assign(nest_.body.size(), false);
    std::vector<bool> is_used(nest_.body.size(), false);
    for (InstId i = 0; i < nest_.body.size(); ++i) {
      const LoopInst& inst = nest_.body[i];
      std::vector<InstId> uses;
      collect_uses(inst, symbols_, uses);
      is_of_columns_[i] =
          std::any_of(inst.index.begin(), inst.index.end(), [&](const SymExpr& e) { return is_of(e, column_dims_); }) ||
          std::any_of(uses.begin(), uses.end(), [&](InstId use) { return is_of_columns_[use]; });
      if (inst.op == LoopOp::kReduce || (inner_[i] && is_of_columns_[i]))
        for (InstId use : uses) is_used[use] = true;
    }
    for (InstId i = 0; i < nest_.body.size(); ++i) {
      if (!is_row_value(i)) continue;
      if (is_used[i]) held_.push_back(i);
      if (is_inner_load(i)) row_loads_.push_back(i);
    }
  }
  bool is_row_value(InstId i) const { return inner_[i] && !is_of_columns_[i] && nest_.body[i].op != LoopOp::kReduce; }

  // ---- shape

  // Threads of a column: part of a wave, or whole waves of any GPU. Little waste and few words per thread matter most,
  // then a number close to product_threads.
  void choose_threads() {
    const int64_t words = points_ / width_, wave = costs_.wave_threads;
    threads_ = power_of_two_from(std::min(words, wave));
    int64_t best = INT64_MAX;
    for (int64_t threads = kWholeWaves; words > wave && threads <= costs_.most_row_threads; threads += kWholeWaves) {
      const int64_t turns = (words + threads - 1) / threads, waste = turns * threads - words;
      const int64_t many = std::max<int64_t>(turns - costs_.product_turns, 0);
      const int64_t distance = std::abs(threads - costs_.product_threads);
      const int64_t worst = many * 16 + 16 * waste / words, score = worst * costs_.most_row_threads * 2 + distance;
      if (score < best) {
        best = score;
        threads_ = threads;
      }
    }
    turns_ = (words + threads_ - 1) / threads_;
    is_even_ = turns_ * threads_ == words;
    groups_ = std::max<int64_t>(costs_.product_threads / threads_, 1);
    if (threads_ > wave) groups_ = 1;
    // Columns that are taken together share the loads and conversions of the rows.
    const int64_t words_of_a_column = turns_ * static_cast<int64_t>(streams_.size());
    const int64_t least = std::max<int64_t>(costs_.product_words / words_of_a_column, 1);
    const int64_t most = std::max<int64_t>(2 * costs_.product_words / words_of_a_column, least);
    together_ = std::clamp((rows_ + 1) / 2, least, most);
    program_.threads = threads_ * groups_;
  }

  int64_t streamed_words() const {
    int64_t bytes = 0;
    for (InstId i : streams_) bytes += width_ * row_of(kernel_.buffers[nest_.body[i].buffer].dtype).bytes;
    return together_ * turns_ * bytes / 4;
  }
  int64_t reductions() const {
    return std::count_if(nest_.body.begin(), nest_.body.end(),
                         [](const LoopInst& inst) { return inst.op == LoopOp::kReduce; });
  }

  void choose_rows() {
    const int64_t other = costs_.body_words + streamed_words() + together_ * rows_ * reductions();
    const int64_t residents = std::max(costs_.product_residents - costs_.product_threads, program_.threads);
    const int64_t free = std::min(costs_.row_words, costs_.register_words / residents - other);
    int64_t words = 0, values = 0;
    for (InstId i : row_loads_) words += (width_ * row_of(kernel_.buffers[nest_.body[i].buffer].dtype).bytes + 3) / 4;
    for (InstId i : held_) values += width_ * ((row_of(nest_.body[i].dtype).bytes + 3) / 4);
    words *= turns_ * rows_;
    values *= turns_ * rows_;
    kept_ = values <= free ? HeldRows::kValues : words <= free ? HeldRows::kWords : HeldRows::kMemory;
    registers_ = other + (kept_ == HeldRows::kValues ? values : kept_ == HeldRows::kWords ? words : 0);
  }

  void choose_columns() {
    const int64_t fit = costs_.register_words / (registers_ * program_.threads);
    program_.residents = std::max<int64_t>(std::min(costs_.product_residents / program_.threads, fit), 1);
    const int64_t blocks = processors_ * program_.residents, least = groups_ * together_;
    program_.extent = SymExpr(columns_);
    program_.per_block = std::max((columns_ + blocks - 1) / blocks, std::min(least, columns_));
    int64_t bytes_of_a_column = 0;
    HipWriter::for_each_reduction(nest_, [&](InstId i) {
      bytes_of_a_column +=
          rows_ * std::max<int64_t>(threads_ / costs_.wave_threads, 1) * row_of(nest_.body[i].dtype).bytes;
    });
    const int64_t fitting = std::max(costs_.scratch_bytes / bytes_of_a_column / least, int64_t{1}) * least;
    at_once_ = std::min((program_.per_block + least - 1) / least * least, fitting);
    is_at_once_ = at_once_ >= program_.per_block;
  }

  // ---- text

  void write() {
    const std::string blocks = number((columns_ + program_.per_block - 1) / program_.per_block);
    w_.line("__shared__ u64 scratch[64];");
    w_.line("enum { kWaves = " + number(threads_) + " > WAVE ? " + number(threads_) + " / WAVE : 1 };");
    HipWriter::for_each_reduction(nest_, [&](InstId i) {
      w_.line("__shared__ " + text_.accumulator_type(i) + " " + name("part", i) + "[" + number(at_once_ * rows_) +
              " * kWaves];");
    });
    w_.line(wide_.declaration());
    w_.line("const index first = (index)((i64)blockIdx.x * extent / " + blocks +
            "), last = (index)((i64)(blockIdx.x + 1) * extent / " + blocks + ");");
    w_.open("if (wide)");
    write_streams();
    w_.close();
    w_.open("else");
    write_wait(w_, program_);
    write_elements();
    w_.close();
  }

  std::string of_group() const { return groups_ == 1 ? "" : " + g * " + number(together_); }
  // The first point of the word of turn j.
  std::string point() const {
    const std::string turn = turns_ == 1 ? "t" : "j * " + number(threads_) + " + t";
    const std::string word =
        is_even_ ? "(" + turn + ")" : "idx_min<index>(" + turn + ", " + number(points_ / width_ - 1) + ")";
    return word + " * " + number(width_);
  }
  std::string point_name() const { return text_.dim(points_dim()); }
  std::string run_type(InstId i) const { return run_type_text(kernel_.buffers[nest_.body[i].buffer].dtype, width_); }
  std::string address(InstId i) const { return "&" + text_.access(nest_.body[i]); }

  void write_streams() {
    if (groups_ == 1) {
      w_.line("const index t = (index)threadIdx.x;");
    } else {
      w_.line("const index t = (index)threadIdx.x % " + number(threads_) + ", g = (index)threadIdx.x / " +
              number(threads_) + ";");
    }
    const bool are_settled = std::all_of(streams_.begin(), streams_.end(),
                                         [&](InstId i) { return kernel_.buffers[nest_.body[i].buffer].is_settled; });
    if (!are_settled) write_wait(w_, program_);
    for (InstId i : streams_)
      w_.line(run_type(i) + name("w", i) + "[" + number(together_) + "][" + number(turns_) + "];");
    w_.open_unrolled("r", together_);
    take_column("first" + of_group() + " + r");
    w_.open_unrolled("j", turns_);
    w_.line("const index " + point_name() + " = " + point() + ";");
    for (InstId i : streams_) w_.line("stream_run(" + name("w", i) + "[r][j], " + address(i) + ");");
    w_.close();
    w_.close();
    if (are_settled) write_wait(w_, program_);  // until here, the columns are on their way
    hold_rows();
    if (!is_at_once_) {
      w_.open("for (index from = first; from < last; from += " + number(at_once_) + ")");
      w_.line("const index end = idx_min<index>(from + " + number(at_once_) + ", last);");
    } else {
      w_.line("const index from = first, end = last;");
    }
    const std::string step = number(groups_ * together_);
    w_.open("for (index c = from; c < end; c += " + step + ")");
    write_columns(step);
    w_.close();
    w_.line("__syncthreads();");
    write_results();
    if (!is_at_once_) {
      w_.line("__syncthreads();");
      w_.close();
    }
  }

  // Indices past the block's last column are clamped to it.
  void take_column(const std::string& column) {
    w_.line("const index n = idx_min<index>(" + column + ", last - 1);");
    w_.take_apart(text_, nest_, column_dims_, "n");
  }

  // Loads the rows' words, or computes their values, at a thread's points.
  void hold_rows() {
    if (kept_ == HeldRows::kMemory) return;
    const std::string all = "[" + number(rows_) + "][" + number(turns_) + "]";
    if (kept_ == HeldRows::kWords)
      for (InstId i : row_loads_) w_.line(run_type(i) + name("x", i) + all + ";");
    else
      for (InstId i : held_)
        w_.line(value_type_text(nest_.body[i].dtype) + " " + name("h", i) + all + "[" + number(width_) + "];");
    open_rows();
    w_.open_unrolled("j", turns_);
    w_.line("const index q = " + point() + ";");
    if (kept_ == HeldRows::kWords) {
      w_.line("const index " + point_name() + " = q;");
      for (InstId i : row_loads_) w_.line("load_run(" + name("x", i) + "[m][j], " + address(i) + ", wide);");
    } else {
      load_rows("q");
      NestText t = text_;
      for (InstId i : row_loads_) t.stand_in(i, name("x", i) + ".get(e)");
      open_elements("q");
      statements(t, held_, HeldRows::kMemory);
      for (InstId i : held_) w_.line(name("h", i) + "[m][j][e] = " + name("v", i) + ";");
      w_.close();
    }
    w_.close();
    w_.close();
  }
  void open_rows() {
    w_.open_unrolled("m", rows_);
    w_.take_apart(text_, nest_, row_dims_, "m");
  }
  void open_elements(const std::string& from) {
    w_.open_unrolled("e", width_);
    w_.line("const index " + point_name() + " = " + from + " + e;");
  }
  void load_rows(const std::string& from) {
    for (InstId i : row_loads_) w_.line(run_type(i) + name("x", i) + ";");
    w_.open("");
    w_.line("const index " + point_name() + " = " + from + ";");
    for (InstId i : row_loads_) w_.line("load_run(" + name("x", i) + ", " + address(i) + ", wide);");
    w_.close();
  }

  // Emits `wanted` and everything that they depend on. Values of rows that are held in registers are read from there.
  void statements(const NestText& t, const std::vector<InstId>& wanted, HeldRows kept) {
    std::vector<bool> needed(nest_.body.size(), false);
    for (InstId i : wanted) needed[i] = true;
    const auto is_held = [&](InstId i) {
      return kept == HeldRows::kValues && std::find(held_.begin(), held_.end(), i) != held_.end();
    };
    for (size_t i = nest_.body.size(); i-- > 0;) {
      if (!needed[i] || is_held(static_cast<InstId>(i))) continue;
      std::vector<InstId> uses;
      collect_uses(nest_.body[i], symbols_, uses);
      for (InstId use : uses) needed[use] = true;
    }
    for (InstId i = 0; i < nest_.body.size(); ++i) {
      if (!needed[i]) continue;
      if (is_held(i))
        w_.line("const " + value_type_text(nest_.body[i].dtype) + " " + name("v", i) + " = " + name("h", i) +
                "[m][j][e];");
      else w_.line(t.inst(i, ""));
    }
  }

  // Emits one step over the columns, `together_` of each group. Each word is copied, its successor is loaded in its
  // place, and then the copy is used.
  void write_columns(const std::string& step) {
    HipWriter::for_each_reduction(nest_, [&](InstId i) {
      w_.line(text_.accumulator_type(i) + " " + name("a", i) + "[" + number(together_) + "][" + number(rows_) + "];");
    });
    w_.line("const bool more = c + " + step + " < last;");
    w_.open_unrolled("r", together_);
    w_.open_unrolled("m", rows_);
    HipWriter::for_each_reduction(nest_, [&](InstId i) { w_.line(name("a", i) + "[r][m] = " + text_.start(i) + ";"); });
    w_.close();
    w_.close();
    w_.open_unrolled("j", turns_);
    w_.line("const index q = " + point() + ";");
    for (InstId i : streams_) w_.line(run_type(i) + name("y", i) + "[" + number(together_) + "];");
    w_.open_unrolled("r", together_);
    for (InstId i : streams_) w_.line(name("y", i) + "[r] = " + name("w", i) + "[r][j];");
    w_.open("if (more)");
    take_column("c + " + step + of_group() + " + r");
    w_.line("const index " + point_name() + " = q;");
    for (InstId i : streams_) w_.line("stream_run(" + name("w", i) + "[r][j], " + address(i) + ");");
    w_.close();
    w_.close();
    if (!is_even_)
      w_.open("if (j < " + number(turns_ - 1) + " || j * " + number(threads_) + " + t < " + number(points_ / width_) +
              ")");
    work();
    if (!is_even_) w_.close();
    w_.close();
    w_.open_unrolled("r", together_);
    w_.open_unrolled("m", rows_);
    HipWriter::for_each_reduction(nest_, [&](InstId i) {
      w_.line("const " + text_.accumulator_type(i) + " " + name("p", i) + " = lanes_reduce<" + text_.operation(i) +
              ", " + number(threads_) + ">(" + name("a", i) + "[r][m]);");
      w_.line("if (t % WAVE == 0) " + name("part", i) + "[((c - from" + of_group() + " + r) * " + number(rows_) +
              " + m) * kWaves + t / WAVE] = " + name("p", i) + ";");
    });
    w_.close();
    w_.close();
  }

  // Computes with one word of each column and all rows.
  void work() {
    NestText t = text_;
    for (InstId i : streams_) t.stand_in(i, name("y", i) + "[r].get(e)");
    open_rows();
    if (kept_ == HeldRows::kMemory) load_rows("q");
    w_.open_unrolled("r", together_);
    take_column("c" + of_group() + " + r");
    for (InstId i : row_loads_) t.stand_in(i, name("x", i) + (kept_ == HeldRows::kWords ? "[m][j]" : "") + ".get(e)");
    open_elements("q");
    std::vector<InstId> wanted;
    HipWriter::for_each_reduction(nest_, [&](InstId i) { wanted.push_back(nest_.body[i].operands[0]); });
    statements(t, wanted, kept_);
    HipWriter::for_each_reduction(nest_, [&](InstId i) { w_.line(t.accumulate(i, "", "[r][m]")); });
    w_.close();
    w_.close();
    w_.close();
  }

  void write_results() {
    const std::string rows = number(rows_);
    w_.open("for (index p = (index)threadIdx.x; p < (end - from) * " + rows + "; p += " + number(program_.threads) +
            ")");
    w_.line("const index m = p / (end - from), n = from + p % (end - from);");
    w_.take_apart(text_, nest_, row_dims_, "m");
    w_.take_apart(text_, nest_, column_dims_, "n");
    w_.part(text_, nest_, Part::kBefore, "");
    HipWriter::for_each_reduction(nest_, [&](InstId i) {
      w_.result(text_, nest_, i,
                "joined<" + text_.operation(i) + ", kWaves>(&" + name("part", i) + "[((n - from) * " + rows +
                    " + m) * kWaves])");
    });
    w_.part(text_, nest_, Part::kAfter, "");
    w_.close();
  }

  // For addresses that are not multiples of 16 bytes: the threads of a block share the terms of one result.
  void write_elements() {
    w_.open("for (index p = first * " + number(rows_) + "; p < last * " + number(rows_) + "; ++p)");
    w_.line("const index m = p % " + number(rows_) + ", n = p / " + number(rows_) + ";");
    w_.take_apart(text_, nest_, row_dims_, "m");
    w_.take_apart(text_, nest_, column_dims_, "n");
    w_.part(text_, nest_, Part::kBefore, "");
    w_.reduced_loop(text_, nest_, "(index)threadIdx.x", number(program_.threads));
    HipWriter::for_each_reduction(nest_, [&](InstId i) {
      w_.result(text_, nest_, i, "block_reduce<" + text_.operation(i) + ">(" + name("a", i) + ", scratch)");
    });
    w_.part(text_, nest_, Part::kAfter, "if (threadIdx.x == 0) ");
    w_.close();
  }

  const Kernel& kernel_;
  const Costs& costs_;
  const int64_t processors_;
  const Nest& nest_;
  const NestSymbols symbols_;
  const NestText text_;
  const std::vector<bool> inner_, after_;
  HipWriter w_;
  HipProgram program_;
  std::vector<size_t> row_dims_, column_dims_;
  int64_t rows_ = 1, columns_ = 1, points_ = 1;
  int64_t width_ = 1;  // points in a word
  WideAccess wide_{1};
  std::vector<InstId> streams_, row_loads_;  // loads of columns and of rows
  std::vector<bool> is_of_columns_;
  std::vector<InstId> held_;  // values of rows that values of columns use
  int64_t threads_ = 1, groups_ = 1;  // threads of a column, groups of threads in a block
  int64_t turns_ = 1;  // words of a column per thread
  bool is_even_ = true;  // all threads have the same number of words
  int64_t together_ = 1;  // columns that a group takes together
  HeldRows kept_ = HeldRows::kValues;
  int64_t registers_ = 1;  // of a thread, estimated
  int64_t at_once_ = 1;  // columns whose partial sums meet at once
  bool is_at_once_ = true;  // these are all columns of a block
};

}  // namespace

std::optional<HipProgram> emit_products(const Kernel& kernel, const TargetInfo& target) {
  if (kernel.nests.size() != 1) return std::nullopt;
  return Products(kernel, target).run();
}

}  // namespace framejit::inductor
