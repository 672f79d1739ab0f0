// inductor/gpu/hip_rows.cpp — kernels whose nests all run over the same points of a row, and pass each other only
// values of the same point.
//
// A row has a power of two of threads; a block has one row or several. Each thread takes every n-th run of points, the
// same ones in all nests. So a value that one nest passes to the next stays in the thread's registers, and what several
// nests read is loaded once. Threads meet only in reductions: by shuffles within a wave, then through shared memory,
// always in the same order. If the registers of one block are too few and blocks can meet, several blocks share a row.
// Some rows are too long for registers; this is known when the kernel is made or, for symbolic lengths, when it runs.
// Then each nest walks the row again, and scratch lies in shared memory.
#include <algorithm>
#include <map>
#include <optional>

#include "inductor/gpu/hip_row_shape.h"
#include "inductor/gpu/hip_runs.h"
#include "inductor/gpu/hip_writer.h"
#include "inductor/kernel/loop_shape.h"
#include "inductor/kernel/recomputed_values.h"
#include "inductor/loop/number_text.h"

namespace framejit::inductor {
namespace {

class Rows {
 public:
  Rows(const Kernel& kernel, const TargetInfo& target)
      : kernel_(kernel),
        target_(target),
        costs_(target.costs),
        symbols_(kernel.symbol_count),
        outer_(kernel.outer.size()),
        w_(kernel, costs_) {}

  // Of the calls that the kernel was made for; asked after run().
  bool fits_in_registers() const { return fits_in_registers_; }

  std::optional<HipProgram> run() {
    if (!find_points() || !find_width() || !find_places()) return std::nullopt;
    choose_shape();
    write_head();
    if (shape_.in_registers && !points_.is_constant()) {
      const std::string whole = width_ > 1 ? " && " + points_text_ + " % " + number(width_) + " == 0" : "";
      w_.open("if (" + points_text_ + " <= " + number(shape_.chunks * shape_.row_threads() * width_) + whole + ")");
      write_nests();
      w_.close();
      shape_.in_registers = false;
      w_.open("else");
      write_nests();
      w_.close();
    } else {
      write_nests();
    }
    if (shape_.blocks > 1) w_.line("blocks_meet();  // until then, others read this block's shared memory");
    program_.text = w_.text();
    return std::move(program_);
  }

 private:
  bool is_inner(const SymExpr& e) const {
    for (size_t d : inner_)
      if (mentions(e, symbols_.sizes + static_cast<graph::SymbolId>(d))) return true;
    return false;
  }
  static bool has_inner(const Nest& nest, size_t outer) { return nest.dim_count() > outer; }

  // Every nest keeps the row's dimensions, or reduces them, or has none of them.
  bool find_points() {
    SymSizes extents;
    for (const KernelNest& n : kernel_.nests) {
      const size_t kept = n.nest.ranges.size() - outer_, reduced = n.nest.reduced.size();
      if (kept > 0 && reduced > 0) return false;
      SymSizes own;
      for (size_t d = outer_; d < n.nest.dim_count(); ++d) own.push_back(n.nest.extent(d));
      if (!own.empty() && !extents.empty() && !(own == extents)) return false;
      if (!own.empty()) extents = std::move(own);
      for (const LoopInst& inst : n.nest.body)
        if (inst.op == LoopOp::kScan || inst.mode != StoreMode::kPlain) return false;
    }
    if (extents.empty()) return false;
    linear_ = 0;
    for (size_t k = 0; k < extents.size(); ++k) {
      inner_.push_back(outer_ + k);
      linear_ = linear_ * extents[k] + symbols_.dim(outer_ + k);
      points_ = points_ * extents[k];
      if (extents.size() > 1 && !extents[k].is_constant()) return false;
    }
    return true;
  }

  bool find_width() {
    std::vector<const Nest*> nests;
    for (const KernelNest& n : kernel_.nests)
      if (has_inner(n.nest, outer_)) nests.push_back(&n.nest);
    width_ = run_width(kernel_, nests, inner_.back(), true);
    texts_.reserve(kernel_.nests.size());
    for (const KernelNest& n : kernel_.nests) texts_.emplace_back(kernel_, n.nest).own_locals();
    points_text_ = texts_[0].factor(points_);
    wide_ = WideAccess(width_);
    return true;
  }

  // False if a nest reads what another thread has written in an earlier one.
  bool find_places() {
    std::map<LoopBufferId, std::vector<std::pair<size_t, InstId>>> accesses;
    for (size_t k = 0; k < kernel_.nests.size(); ++k)
      for (InstId i = 0; i < kernel_.nests[k].nest.body.size(); ++i)
        if (is_address(inst_of({k, i}))) accesses[inst_of({k, i}).buffer].push_back({k, i});
    for (const auto& [buffer, all] : accesses) {
      const bool is_stored = std::any_of(all.begin(), all.end(), [&](const auto& a) { return is_store(a); });
      const bool is_loaded = std::any_of(all.begin(), all.end(), [&](const auto& a) { return !is_store(a); });
      const bool is_shared = kernel_.buffers[buffer].is_local || (is_stored && is_loaded);
      if (is_shared && !are_own(buffer, all)) return false;
      if (kernel_.buffers[buffer].is_local) {
        if (kernel_.buffers[buffer].local_elements > 1) arrays_.push_back(buffer);
      } else if (is_shared && !is_inner(inst_of(all[0]).index[0])) {
        slots_.push_back(buffer);
      } else {
        for (const auto& a : all)
          if (!add_place(a)) return false;
      }
    }
    return arrays_.empty() || points_.is_constant();
  }

  using Access = std::pair<size_t, InstId>;  // nest, instruction
  const LoopInst& inst_of(const Access& a) const { return kernel_.nests[a.first].nest.body[a.second]; }
  bool is_store(const Access& a) const { return inst_of(a).op == LoopOp::kStore; }

  // Whether all accesses have the same index, and no access follows a store in the same nest.
  bool are_own(LoopBufferId buffer, const std::vector<Access>& all) const {
    const SymExpr& index = inst_of(all[0]).index[0];
    const bool is_array = kernel_.buffers[buffer].is_local && kernel_.buffers[buffer].local_elements > 1;
    if (is_array && !(index == linear_)) return false;
    size_t stored_in = SIZE_MAX;
    for (const Access& a : all) {
      if (!(inst_of(a).index[0] == index) || mentions_values(index, symbols_) || inst_of(a).is_masked()) return false;
      if (is_store(a) && stored_in == a.first) return false;
      if (is_store(a)) stored_in = a.first;
      if (!is_store(a) && stored_in == a.first) return false;
    }
    return true;
  }

  // Notes the place of an access. An access without one is done element by element; false if that is not possible,
  // because the buffer is both stored and loaded.
  bool add_place(const Access& a) {
    const LoopInst& inst = inst_of(a);
    const Nest& nest = kernel_.nests[a.first].nest;
    const bool is_side = is_side_by_side(inst, symbols_, inner_.back());
    const bool is_place = width_ > 1 ? is_side
                                     : !inst.is_masked() && is_inner(inst.index[0]) &&
                                           !mentions_values(inst.index[0], symbols_);
    const bool is_wide = is_place && wide_.add(texts_[a.first], symbols_, nest, inst, inner_.back());
    const bool is_stored_and_loaded = std::any_of(
        kernel_.nests.begin(), kernel_.nests.end(), [&](const KernelNest& n) {
          return std::any_of(n.nest.body.begin(), n.nest.body.end(), [&](const LoopInst& other) {
            return is_address(other) && other.buffer == inst.buffer && (other.op != inst.op);
          });
        });
    if (!is_place || !is_wide) return !is_stored_and_loaded;
    size_t k = 0;
    while (k < places_.size() && !(places_[k].buffer == inst.buffer && places_[k].index == inst.index[0])) ++k;
    if (k == places_.size()) {
      const int64_t bytes = row_of(kernel_.buffers[inst.buffer].dtype).bytes;
      RowPlace place;
      place.buffer = inst.buffer;
      place.index = inst.index[0];
      place.words = (bytes * width_ + 3) / 4;
      places_.push_back(place);
    }
    RowPlace& place = places_[k];
    if (is_store(a)) {
      place.is_stored = true;
      place.first_store = std::min(place.first_store, a.first);
    } else {
      place.first_load = std::min(place.first_load, a.first);
      place.last_load = std::max(place.last_load, a.first);
    }
    place_of_[a] = k;
    return true;
  }

  void choose_shape() {
    const int64_t points = hinted(kernel_, points_, costs_.unknown_points);
    RowWork work;
    work.rows = hinted(kernel_, kernel_.extent, costs_.unknown_points);
    work.runs = std::max<int64_t>((points + width_ - 1) / width_, 1);
    work.width = width_;
    work.is_known = points_.is_constant();
    work.nests = kernel_.nests.size();
    while (!has_inner(kernel_.nests[work.first_nest].nest, outer_)) ++work.first_nest;
    work.arrays = static_cast<int64_t>(arrays_.size());
    work.places = places_;
    shape_ = choose_row_shape(work, target_);
    fits_in_registers_ = shape_.in_registers;
    program_.extent = kernel_.extent * SymExpr(shape_.blocks);
    program_.per_block = shape_.rows;
    program_.threads = shape_.threads * shape_.rows;
    program_.together = shape_.blocks;
  }

  // ---- text

  std::string guard() const { return shape_.rows > 1 ? "if (live && t == 0) " : "if (t == 0) "; }
  std::string memory_type(LoopBufferId b) const { return memory_type_text(kernel_.buffers[b].dtype); }

  void write_head() {
    w_.line("__shared__ u64 scratch[128];");
    if (shape_.blocks > 1) w_.line("__shared__ u64 met[4];");
    if (const std::string wide = wide_.declaration(); !wide.empty()) w_.line(wide);
    if (shape_.rows > 1) {
      w_.line("const index own = (index)blockIdx.x * " + number(shape_.rows) + " + (index)threadIdx.x / " +
              number(shape_.threads) + ";");
      w_.line("const bool live = own < extent;");
      w_.line("const index row = live ? own : 0, t = (index)threadIdx.x % " + number(shape_.threads) + ";");
    } else if (shape_.blocks > 1) {
      const std::string blocks = number(shape_.blocks);
      w_.line("const index row = (index)blockIdx.x / " + blocks + ", t = (index)blockIdx.x % " + blocks + " * " +
              number(shape_.threads) + " + (index)threadIdx.x;");
    } else {
      w_.line("const index row = (index)blockIdx.x, t = (index)threadIdx.x;");
    }
    for (LoopBufferId b : slots_) w_.line(memory_type(b) + " k" + number(b) + ";");
    for (LoopBufferId b = 0; b < kernel_.buffers.size(); ++b) {
      const KernelBuffer& buffer = kernel_.buffers[b];
      if (!buffer.is_local) continue;
      const bool is_array = buffer.local_elements > 1;
      const int64_t elements = is_array && shape_.in_registers ? shape_.chunks * width_ : buffer.local_elements;
      w_.line((is_array && !shape_.in_registers ? "__shared__ " : "") + memory_type(b) + " b" + number(b) + "[" +
              number(elements) + "];");
    }
  }

  void write_nests() {
    parity_ = 0;
    held_.clear();
    if (shape_.in_registers)
      for (size_t k = 0; k < kernel_.nests.size(); ++k) load_places(k, true);
    for (size_t k = 0; k < kernel_.nests.size(); ++k) {
      if (shape_.in_registers) {
        load_places(k, false);
        declare_kept_stores(k);
      }
      w_.open("");
      write_nest(k);
      w_.close();
    }
  }

  std::string run_type(const RowPlace& p) const { return run_type_text(kernel_.buffers[p.buffer].dtype, width_); }
  std::string rest() const {
    const bool is_whole = shape_.in_registers || SymExpr::mod(points_, width_) == SymExpr(0);
    return is_whole ? "" : ", " + points_text_ + " - q";
  }
  std::string wide() const { return width_ > 1 ? ", wide" : ", false"; }
  bool has_partial_runs() const { return !rest().empty(); }

  // Opens the loop over a thread's runs: q is the first point of a run.
  void open_runs() {
    const std::string w = number(width_), times = width_ > 1 ? " * " + w : "";
    if (shape_.in_registers) {
      w_.open_unrolled("c", shape_.chunks);
      const std::string turn = shape_.chunks > 1 ? "(c * " + number(shape_.row_threads()) + " + t)" : "t";
      w_.line("const index q = " + turn + times + ";");
      is_full_ = points_ == SymExpr(shape_.chunks * shape_.row_threads() * width_);
      if (!is_full_) w_.open("if (q < " + points_text_ + ")");
    } else {
      is_full_ = true;
      w_.line("#pragma unroll " + number(std::max<int64_t>(costs_.row_values / 2 / width_, 2)));
      w_.open("for (index q = t" + times + "; q < " + points_text_ + "; q += " + number(shape_.row_threads() * width_) +
              ")");
    }
  }
  void close_runs() {
    if (!is_full_) w_.close();
    w_.close();
  }

  // Names of the row's dimensions at a point.
  void name_point(size_t k, const std::string& point) {
    w_.take_apart(texts_[k], kernel_.nests[k].nest, inner_, point);
  }

  // Loads the places of nest k that are kept in registers and are not there yet. first: only those that can be loaded
  // before all nests.
  void load_places(size_t k, bool first) {
    std::vector<size_t> wanted;
    for (const auto& [access, p] : place_of_)
      if (access.first == k && !is_store(access) && shape_.keeps(places_[p]) && held_.count(p) == 0 &&
          (!first || shape_.loads_first(places_[p])) && std::find(wanted.begin(), wanted.end(), p) == wanted.end())
        wanted.push_back(p);
    if (wanted.empty()) return;
    for (size_t p : wanted) {
      held_[p] = "x" + number(static_cast<int64_t>(p));
      w_.line(run_type(places_[p]) + held_[p] + "[" + number(shape_.chunks) + "];");
    }
    w_.open("");
    w_.take_apart(texts_[k], kernel_.nests[k].nest, outer_dims(kernel_), "row");
    open_runs();
    name_point(k, "q");
    for (size_t p : wanted) load(k, p, held_[p] + "[c]");
    close_runs();
    w_.close();
  }

  std::string address(size_t k, size_t p) const {
    return "&b" + number(places_[p].buffer) + "[" + texts_[k].expr(places_[p].index) + "]";
  }
  void load(size_t k, size_t p, const std::string& into) {
    w_.line("load_run(" + into + ", " + address(k, p) + wide() + rest() + ");");
  }

  // Declares the runs that nest k stores and a later nest loads.
  void declare_kept_stores(size_t k) {
    for (const auto& [access, p] : place_of_)
      if (access.first == k && is_store(access) && shape_.keeps(places_[p]) && places_[p].last_load > k)
        w_.line(run_type(places_[p]) + stored_name(k, p) + "[" + number(shape_.chunks) + "];");
  }
  static std::string stored_name(size_t k, size_t p) {
    return "y" + number(static_cast<int64_t>(k)) + "_" + number(static_cast<int64_t>(p));
  }

  void write_nest(size_t k) {
    const Nest& nest = kernel_.nests[k].nest;
    NestText& t = texts_[k];
    w_.take_apart(t, nest, outer_dims(kernel_), "row");
    stand_in_slots(k);
    if (!has_inner(nest, outer_)) return w_.part(t, nest, Part::kBefore, guard());
    if (nest.is_reduction()) w_.part(t, nest, Part::kBefore, guard());
    HipWriter::for_each_reduction(nest, [&](InstId i) { w_.line(t.declare_accumulator(i)); });
    write_points(k);
    HipWriter::for_each_reduction(
        nest, [&](InstId i) { w_.result(t, nest, i, reduced("a" + std::to_string(i), t.operation(i))); });
    if (nest.is_reduction()) w_.part(t, nest, Part::kAfter, guard());
  }

  std::string reduced(const std::string& own, const std::string& operation) {
    const bool is_first = parity_++ % 2 == 0;
    const std::string threads = number(shape_.threads), half = is_first ? "scratch" : "scratch + 64";
    if (shape_.blocks == 1) return "row_reduce<" + operation + ", " + threads + ">(" + own + ", " + half + ")";
    return "blocks_reduce<" + operation + ", " + threads + ", " + number(shape_.blocks) + ">(" + own + ", " + half +
           ", " + (is_first ? "met" : "met + 2") + ")";
  }

  // A slot is a variable with one value per row, which nests use to pass that value on. It is also stored to memory,
  // unless only this kernel reads the buffer.
  void stand_in_slots(size_t k) {
    const Nest& nest = kernel_.nests[k].nest;
    for (InstId i = 0; i < nest.body.size(); ++i) {
      if (!is_address(nest.body[i])) continue;
      const LoopBufferId b = nest.body[i].buffer;
      if (std::find(slots_.begin(), slots_.end(), b) == slots_.end()) continue;
      const std::string slot = "k" + number(b);
      if (nest.body[i].op == LoopOp::kStore)
        texts_[k].stand_in(i, "put(&" + slot + ", ",
                           kernel_.buffers[b].is_private
                               ? ");"
                               : "); " + guard() + texts_[k].access(nest.body[i]) + " = " + slot + ";");
      else
        texts_[k].stand_in(i, is_stored_before(b, k) ? slot : texts_[k].access(nest.body[i]));
    }
  }
  bool is_stored_before(LoopBufferId b, size_t k) const {
    for (size_t before = 0; before < k; ++before)
      for (const LoopInst& inst : kernel_.nests[before].nest.body)
        if (inst.op == LoopOp::kStore && inst.buffer == b) return true;
    return false;
  }

  void write_points(size_t k) {
    const Nest& nest = kernel_.nests[k].nest;
    NestText& t = texts_[k];
    const Part part = nest.is_reduction() ? Part::kInside : Part::kBefore;
    const std::string j = width_ > 1 ? "j" : "0";
    std::map<size_t, std::string> loaded, stored;  // places
    const std::vector<bool> varies = vary(nest);
    once_a_row(t, nest, part, varies);
    open_runs();
    name_point(k, "q");
    stand_in_arrays(k, j);
    for (const auto& [access, p] : place_of_) {
      if (access.first != k) continue;
      const bool is_held = held_.count(p) != 0;
      if (is_store(access)) {
        const bool is_kept_on = shape_.in_registers && shape_.keeps(places_[p]) && places_[p].last_load > k;
        stored[p] = stored_name(k, p) + (is_kept_on ? "[c]" : "");
        if (!is_kept_on) w_.line(run_type(places_[p]) + stored[p] + ";");
        t.stand_in(access.second, "put_run(" + stored[p] + ", " + j + ", ", ");");
      } else {
        if (!is_held && loaded.count(p) == 0) {
          loaded[p] = "x" + number(static_cast<int64_t>(p));
          w_.line(run_type(places_[p]) + loaded[p] + ";");
          load(k, p, loaded[p]);
        }
        t.stand_in(access.second, (is_held ? held_[p] + "[c]" : loaded[p]) + ".get(" + j + ")");
      }
    }
    if (width_ > 1) {
      w_.open_unrolled("j", width_);
      if (has_partial_runs()) w_.line("if (q + j >= " + points_text_ + ") break;");
      name_point(k, "(q + j)");
    }
    statements(t, nest, part, varies);
    HipWriter::for_each_reduction(
        nest, [&](InstId i) { w_.line(t.accumulate(i, width_ > 1 ? "(q + j)" : "q")); });
    if (width_ > 1) w_.close();
    for (const auto& [p, name] : stored) {
      if (!shape_.in_registers || !kernel_.buffers[places_[p].buffer].is_private)
        w_.line((shape_.rows > 1 ? "if (live) " : "") + std::string("store_run(") + address(k, p) + ", " + name +
                wide() + rest() + ");");
      if (shape_.in_registers && shape_.keeps(places_[p])) held_[p] = stored_name(k, p);
    }
    close_runs();
  }

  // Stores of single elements are the thread's own. Threads of a row past the end store nothing.
  void statements(const NestText& t, const Nest& nest, Part part, const std::vector<bool>& varies) {
    const auto inner = inner_insts(nest, symbols_), after = after_reduction(nest, symbols_);
    for (InstId i = 0; i < nest.body.size(); ++i) {
      const Part own = after[i] ? Part::kAfter : inner[i] ? Part::kInside : Part::kBefore;
      if (own == part && varies[i] && nest.body[i].op != LoopOp::kReduce)
        w_.line(t.inst(i, shape_.rows > 1 ? "if (live) " : ""));
    }
  }

  // Per instruction: whether its value differs from point to point of a row, or is stored.
  std::vector<bool> vary(const Nest& nest) const {
    std::vector<bool> varies(nest.body.size(), false);
    for (InstId i = 0; i < nest.body.size(); ++i) {
      const LoopInst& inst = nest.body[i];
      std::vector<InstId> uses;
      collect_uses(inst, symbols_, uses);
      varies[i] = inst.op == LoopOp::kStore || std::any_of(inst.index.begin(), inst.index.end(), [&](const SymExpr& e) {
                    return is_inner(e);
                  }) || std::any_of(uses.begin(), uses.end(), [&](InstId use) { return varies[use]; });
    }
    return varies;
  }

  // Emits values that are the same for the whole row before the loop over its points, and the reciprocals of those that
  // the points are divided by.
  void once_a_row(NestText& t, const Nest& nest, Part part, const std::vector<bool>& varies) {
    const auto inner = inner_insts(nest, symbols_), after = after_reduction(nest, symbols_);
    std::set<InstId> divisors;
    for (InstId i = 0; i < nest.body.size(); ++i) {
      const LoopInst& inst = nest.body[i];
      if (after[i] || inst.op == LoopOp::kReduce || inner[i] != (part == Part::kInside)) continue;
      if (!varies[i]) w_.line(t.inst(i, ""));
      const bool divides = varies[i] && inst.op == LoopOp::kScalar && inst.scalar == ScalarOp::k_div &&
                           inst.dtype == DType::kFloat32 && !varies[inst.operands[1]];
      if (!divides || !divisors.insert(inst.operands[1]).second) continue;
      const std::string divisor = number(inst.operands[1]);
      w_.line("const float u" + divisor + " = 1.0f / v" + divisor + ";");
      t.divide_by(inst.operands[1]);
    }
  }

  void stand_in_arrays(size_t k, const std::string& j) {
    const Nest& nest = kernel_.nests[k].nest;
    const std::string own = width_ > 1 ? "[c * " + number(width_) + " + " + j + "]" : "[c]";
    const std::string at = shape_.in_registers ? own : "[q + " + j + "]";
    for (InstId i = 0; i < nest.body.size(); ++i) {
      if (!is_address(nest.body[i])) continue;
      const LoopBufferId b = nest.body[i].buffer;
      if (std::find(arrays_.begin(), arrays_.end(), b) == arrays_.end()) continue;
      if (nest.body[i].op == LoopOp::kStore)
        texts_[k].stand_in(i, "put(&b" + number(b) + at + ", ", ");");
      else
        texts_[k].stand_in(i, "b" + number(b) + at);
    }
  }

  const Kernel& kernel_;
  const TargetInfo& target_;
  const Costs& costs_;
  const NestSymbols symbols_;
  const size_t outer_;
  HipWriter w_;
  HipProgram program_;
  std::vector<NestText> texts_;                // of each nest
  std::vector<size_t> inner_;                  // dimensions of a row, the same in all nests
  SymExpr points_ = 1, linear_ = 0;            // of a row: their number, and the index of one
  std::string points_text_;
  int64_t width_ = 1;                          // points in a run
  RowShape shape_;
  bool fits_in_registers_ = false, is_full_ = false;
  WideAccess wide_{1};
  std::vector<RowPlace> places_;
  std::map<Access, size_t> place_of_;
  std::vector<LoopBufferId> arrays_, slots_;   // scratch with an element per point; buffers stored once per row
  std::map<size_t, std::string> held_;         // places whose runs are in registers -> their names
  int parity_ = 0;
};

}  // namespace

// If a row is too long for registers, its values would go through memory: they are computed again instead.
std::optional<HipProgram> emit_rows(const Kernel& kernel, const TargetInfo& target) {
  Rows rows(kernel, target);
  std::optional<HipProgram> program = rows.run();
  if (!program || rows.fits_in_registers()) return program;
  const auto again = with_recomputed_values(kernel, target.costs.recomputed_work);
  return again ? Rows(*again, target).run() : program;
}

}  // namespace framejit::inductor
