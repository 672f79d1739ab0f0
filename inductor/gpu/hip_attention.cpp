// inductor/gpu/hip_attention.cpp — attention of one query (inductor/schedule/attention_nests.h), after the nests that
// make its query or write rows of its cache.
//
// One block, or several that meet, have a head; they share its keys. A few adjacent threads have a key, each a word of
// it, and several keys in flight. Scores stay in registers: each thread keeps the largest score so far, the sum of
// powers and its part of the weighted sum, and rescales them when a larger score comes. At the end the parts of
// threads, waves and blocks are joined in an order that depends on the kernel alone. All blocks of a head run the nests
// before the attention: they write the same values to the same places, and each reads what it has written itself.
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <set>

#include "inductor/gpu/hip_runs.h"
#include "inductor/gpu/hip_writer.h"
#include "inductor/kernel/loop_shape.h"
#include "inductor/loop/number_text.h"
#include "inductor/schedule/attention_nests.h"

namespace framejit::inductor {
namespace {

class Attention {
 public:
  Attention(const Kernel& kernel, const TargetInfo& target)
      : kernel_(kernel),
        target_(target),
        symbols_(kernel.symbol_count),
        outer_(kernel.outer.size()),
        w_(kernel, target.costs) {}

  std::optional<HipProgram> run() {
    if (!find_nests() || !find_words()) return std::nullopt;
    choose_blocks();
    write_head();
    write_nests_before();
    write_keys();
    join_threads();
    join_waves();
    write_result();
    program_.text = w_.text();
    return std::move(program_);
  }

 private:
  static std::string value(InstId i) { return "v" + std::to_string(i); }
  const Nest& scores() const { return kernel_.nests[kernel_.nests.size() - kAttentionNests].nest; }
  const Nest& result() const { return kernel_.nests.back().nest; }

  bool find_nests() {
    const size_t count = kernel_.nests.size();
    if (!kernel_.is_attention || kernel_.is_flat || count < kAttentionNests) return false;
    const auto scores_found = as_scores(scores(), symbols_);
    const auto result_found = as_result(result(), symbols_);
    if (!scores_found || !result_found || scores().body[scores_found->store].buffer != result_found->scores)
      return false;
    scores_ = *scores_found;
    result_ = *result_found;
    const auto total = as_total(kernel_.nests[count - 2].nest, result_.scores, result_.most);
    if (as_most(kernel_.nests[count - 3].nest, result_.scores) != result_.most || !total) return false;
    total_ = *total;
    const Nest &s = scores(), &r = result();
    if (s.ranges.size() != outer_ + 1 || r.ranges.size() != outer_ + 1) return false;
    if (!(s.ranges[outer_] == r.reduced[0]) || !(s.reduced[0] == r.ranges[outer_])) return false;
    if (!s.ranges[outer_].is_constant() || !s.reduced[0].is_constant()) return false;
    keys_ = s.ranges[outer_].constant();
    size_ = s.reduced[0].constant();
    return true;
  }

  bool find_words() {
    const LoopInst &key = scores().body[scores_.right], &weighted = result().body[result_.value];
    const DType dtype = kernel_.buffers[key.buffer].dtype;
    if (kernel_.buffers[weighted.buffer].dtype != dtype) return false;
    width_ = kWordBytes / row_of(dtype).bytes;
    if (size_ % width_ != 0 || !std::has_single_bit(static_cast<uint64_t>(size_ / width_))) return false;
    lanes_ = size_ / width_;
    if (lanes_ > target_.costs.wave_threads || size_ > threads_) return false;
    scores_text_.emplace(kernel_, scores());
    result_text_.emplace(kernel_, result());
    wide_ = WideAccess(width_);
    return is_side_by_side(key, symbols_, size_dim()) && is_side_by_side(weighted, symbols_, outer_) &&
           wide_.add(*scores_text_, symbols_, scores(), key, size_dim()) &&
           wide_.add(*result_text_, symbols_, result(), weighted, outer_);
  }
  size_t size_dim() const { return outer_ + 1; }  // of the scores; that of the keys in the result

  void choose_blocks() {
    groups_ = threads_ / lanes_;
    const int64_t heads = hinted(kernel_, kernel_.extent, 1);
    const int64_t most = target_.traits.blocks_meet ? target_.costs.row_blocks : 1;
    while (2 * blocks_ <= most && 2 * blocks_ * heads <= target_.processors && keys_ >= 2 * blocks_ * groups_)
      blocks_ *= 2;
    const int64_t each = (keys_ + blocks_ * groups_ - 1) / (blocks_ * groups_);
    in_flight_ = std::min(each, target_.costs.one_query_words);
    program_.extent = kernel_.extent * SymExpr(blocks_);
    program_.threads = threads_;
    program_.together = blocks_;
  }

  void write_head() {
    w_.line("enum { kWaves = " + number(threads_) + " / WAVE };");
    w_.line("__shared__ float parts[kWaves][" + number(size_ + 2) + "];");
    if (blocks_ > 1) w_.line("__shared__ float whole[" + number(size_ + 2) + "];");
    if (kernel_.nests.size() > kAttentionNests) w_.line("__shared__ u64 scratch[64];");
    for (size_t b = 0; b < kernel_.buffers.size(); ++b)
      if (b != result_.scores && b != result_.most && b != total_) declare_scratch(w_, static_cast<LoopBufferId>(b));
    w_.line(wide_.declaration());
    const std::string block = "(index)blockIdx.x", blocks = number(blocks_);
    w_.line("const index row = " + (blocks_ == 1 ? block : block + " / " + blocks) +
            ", share = " + (blocks_ == 1 ? "0" : block + " % " + blocks) + ", t = (index)threadIdx.x;");
  }

  // Nests with few points run in different waves, side by side. A barrier only comes before what reads their results;
  // the query need not wait if it is made of other values.
  void write_nests_before() {
    const size_t count = kernel_.nests.size() - kAttentionNests;
    std::set<LoopBufferId> fresh;  // stored since the last barrier
    int64_t first = 0;  // thread that takes the next point
    for (size_t k = 0; k < count; ++k) {
      const KernelNest& n = kernel_.nests[k];
      if (touches(n.nest, fresh)) {
        w_.line("__syncthreads();");
        fresh.clear();
      }
      w_.open("");
      write_inner_nest(w_, n, threads_, first);
      w_.close();
      const auto points = inductor::count(n.nest, kept_dims(n)).as_constant();
      first = points && !n.nest.is_reduction()
                  ? (first + (*points + kWholeWaves - 1) / kWholeWaves * kWholeWaves) % threads_
                  : 0;
      for (const LoopInst& inst : n.nest.body)
        if (inst.op == LoopOp::kStore) fresh.insert(inst.buffer);
    }
    const bool is_ready = !reads(scores_.left, fresh);
    if (count > 0 && !is_ready) w_.line("__syncthreads();");
    w_.take_apart(*scores_text_, scores(), outer_dims(kernel_), "row");
    write_query();
    if (count > 0 && is_ready) w_.line("__syncthreads();");
  }
  // Whether a value of the scores is made from one of the buffers.
  bool reads(InstId i, const std::set<LoopBufferId>& buffers) const {
    const LoopInst& inst = scores().body[i];
    if (is_address(inst) && buffers.contains(inst.buffer)) return true;
    std::vector<InstId> uses;
    collect_uses(inst, symbols_, uses);
    return std::any_of(uses.begin(), uses.end(), [&](InstId use) { return reads(use, buffers); });
  }
  static bool touches(const Nest& nest, const std::set<LoopBufferId>& buffers) {
    return std::any_of(nest.body.begin(), nest.body.end(),
                       [&](const LoopInst& inst) { return is_address(inst) && buffers.contains(inst.buffer); });
  }

  // Emits `wanted` and what they are computed from, except `given`.
  void statements(const NestText& t, const Nest& nest, const std::vector<InstId>& wanted, InstId given) {
    std::vector<bool> needed(nest.body.size(), false);
    for (InstId i : wanted) needed[i] = true;
    for (InstId i = static_cast<InstId>(nest.body.size()); i-- > 0;) {
      if (!needed[i] || i == given) continue;
      std::vector<InstId> uses;
      collect_uses(nest.body[i], symbols_, uses);
      for (InstId use : uses) needed[use] = true;
    }
    for (InstId i = 0; i < nest.body.size(); ++i)
      if (needed[i] && i != given) w_.line(t.inst(i, ""));
  }

  // A thread's part of the query.
  void write_query() {
    w_.line("const index lane = t % " + number(lanes_) + ", group = t / " + number(lanes_) + ", at = lane * " +
            number(width_) + ";");
    w_.line("float x[" + number(width_) + "];");
    w_.open_unrolled("e", width_);
    w_.line("const index " + scores_text_->dim(size_dim()) + " = at + e;");
    statements(*scores_text_, scores(), {scores_.left}, kNoInst);
    w_.line("x[e] = " + value(scores_.left) + ";");
    w_.close();
  }

  void load(const char* into, const NestText& t, const LoopInst& inst, const std::string& first,
            const std::string& second) {
    w_.open("");
    w_.line("const index " + t.dim(outer_) + " = " + first + ", " + t.dim(size_dim()) + " = " + second + ";");
    w_.line(std::string("load_run(") + into + "[u], &" + t.access(inst) + ", wide);");
    w_.close();
  }

  void write_keys() {
    const std::string step = number(groups_ * in_flight_), u = number(in_flight_), v = number(width_);
    const std::string run =
        "Run<" + memory_type_text(kernel_.buffers[scores().body[scores_.right].buffer].dtype) + ", " + v + "> ";
    w_.line("const index first = share * " + number(keys_) + " / " + number(blocks_) + ", last = (share + 1) * " +
            number(keys_) + " / " + number(blocks_) + ";");
    w_.line("float most = " + lowest() + ", total = 0, sum[" + v + "];");
    w_.open_unrolled("e", width_);
    w_.line("sum[e] = 0;");
    w_.close();
    w_.open("for (index from = first + group; from - group < last; from += " + step + ")");
    w_.line(run + "keys[" + u + "], values[" + u + "];");
    w_.open_unrolled("u", in_flight_);
    w_.line("const index key = idx_min<index>(from + u * " + number(groups_) + ", last - 1);");
    load("keys", *scores_text_, scores().body[scores_.right], "key", "at");
    load("values", *result_text_, result().body[result_.value], "at", "key");
    w_.close();
    w_.line("float score[" + u + "], top = most;");
    w_.open_unrolled("u", in_flight_);
    write_score();
    w_.close();
    w_.line("const float base = finite_base(top), fix = expf(most - base);");
    w_.line("most = top;");
    w_.line("total *= fix;");
    w_.open_unrolled("e", width_);
    w_.line("sum[e] *= fix;");
    w_.close();
    w_.open_unrolled("u", in_flight_);
    w_.line("const float power = expf(score[u] - base);");
    w_.line("total += power;");
    w_.open("if (from + u * " + number(groups_) + " < last)");
    w_.open_unrolled("e", width_);
    w_.line("sum[e] = fmaf(power, value_of(values[u].get(e)), sum[e]);");
    w_.close();
    w_.close();
    w_.close();
    w_.close();
  }
  static std::string lowest() {
    return constant_text(DType::kFloat32, {.f = -std::numeric_limits<double>::infinity()});
  }

  void write_score() {
    w_.line("const bool live = from + u * " + number(groups_) + " < last;");
    w_.line("const index " + scores_text_->dim(outer_) + " = live ? from + u * " + number(groups_) + " : last - 1;");
    w_.line("float product = 0;");
    w_.open_unrolled("e", width_);
    w_.line("product = fmaf(x[e], value_of(keys[u].get(e)), product);");
    w_.close();
    w_.line("const float " + value(scores_.sum) + " = lanes_reduce<Sum, " + number(lanes_) + ">(product);");
    scores_text_->stand_in(scores_.store, "score[u] = live ? ", " : " + lowest() + ";");
    statements(*scores_text_, scores(), {scores_.store}, scores_.sum);
    w_.line("top = fj_maximum(top, score[u]);");
  }

  // Within a wave.
  void join_threads() {
    w_.line("#pragma unroll");
    w_.open("for (int mask = " + number(lanes_) + "; mask < WAVE; mask *= 2)");
    w_.line("const float its_most = shuffle(most, mask), its_total = shuffle(total, mask);");
    w_.line("const float top = fj_maximum(most, its_most), base = finite_base(top);");
    w_.line("const float own = expf(most - base), its = expf(its_most - base);");
    w_.line("most = top;");
    w_.line("total = total * own + its_total * its;");
    w_.open_unrolled("e", width_);
    w_.line("sum[e] = sum[e] * own + shuffle(sum[e], mask) * its;");
    w_.close();
    w_.close();
  }

  // Joins `count` parts at t: most, total and one element of the sum are expressions in p.
  void join(const std::string& count, const std::string& most, const std::string& total, const std::string& element) {
    const auto each = [&](const std::string& statement) {
      w_.line("#pragma unroll");
      w_.line("for (int p = 0; p < " + count + "; ++p) " + statement);
    };
    w_.line("float top = " + lowest() + ", total = 0, sum = 0;");
    each("top = fj_maximum(top, " + most + ");");
    w_.line("const float base = finite_base(top);");
    each("{ const float own = expf(" + most + " - base); total += own * " + total + "; sum += own * " + element +
         "; }");
  }

  void join_waves() {
    const std::string size = number(size_), more = number(size_ + 1);
    w_.open("if (t % WAVE < " + number(lanes_) + ")");
    w_.open_unrolled("e", width_);
    w_.line("parts[t / WAVE][at + e] = sum[e];");
    w_.close();
    w_.line("if (lane == 0) parts[t / WAVE][" + size + "] = most, parts[t / WAVE][" + more + "] = total;");
    w_.close();
    w_.line("__syncthreads();");
    if (blocks_ == 1) return;
    w_.open("if (t < " + size + ")");
    join("kWaves", "parts[p][" + size + "]", "parts[p][" + more + "]", "parts[p][t]");
    w_.line("whole[t] = sum;");
    w_.line("if (t == 0) whole[" + size + "] = top, whole[" + more + "] = total;");
    w_.close();
    w_.line("blocks_meet();");
  }

  void write_result() {
    const std::string size = number(size_), more = number(size_ + 1), own = number(size_ / blocks_);
    const auto of_block = [](const std::string& at) {
      return "as_f32(word_of_block((const u32*)&whole[" + at + "], p))";
    };
    NestText& t = *result_text_;
    w_.open("if (t < " + own + ")");
    w_.line("const index " + t.dim(outer_) + " = " + (blocks_ == 1 ? "t" : "share * " + own + " + t") + ";");
    if (blocks_ == 1) join("kWaves", "parts[p][" + size + "]", "parts[p][" + more + "]", "parts[p][t]");
    else join(number(blocks_), of_block(size), of_block(more), of_block(t.dim(outer_)));
    w_.line("const float " + value(result_.sum) + " = sum;");
    std::vector<InstId> stores;
    for (InstId i = 0; i < result().body.size(); ++i) {
      const LoopInst& inst = result().body[i];
      if (inst.op == LoopOp::kStore) stores.push_back(i);
      if (inst.op == LoopOp::kLoad && inst.buffer == total_) t.stand_in(i, "total");
    }
    statements(t, result(), stores, result_.sum);
    w_.close();
    if (blocks_ > 1) w_.line("blocks_meet();  // until then, others read this block's shared memory");
  }

  const Kernel& kernel_;
  const TargetInfo& target_;
  const NestSymbols symbols_;
  const size_t outer_;
  HipWriter w_;
  HipProgram program_;
  ScoresNest scores_;
  ResultNest result_;
  LoopBufferId total_ = 0;
  std::optional<NestText> scores_text_, result_text_;
  WideAccess wide_{1};
  const int64_t threads_ = target_.costs.one_query_threads;
  int64_t keys_ = 1, size_ = 1;  // of a head; elements of a key
  int64_t width_ = 1, lanes_ = 1;  // elements of a word, threads of a key
  int64_t groups_ = 1, in_flight_ = 1;  // keys of a block at a time, and for each group of threads
  int64_t blocks_ = 1;  // of a head
};

}  // namespace

std::optional<HipProgram> emit_attention(const Kernel& kernel, const TargetInfo& target) {
  return Attention(kernel, target).run();
}

}  // namespace framejit::inductor
