#include "inductor/schedule/attention_nests.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "inductor/loop/index_expr.h"
#include "inductor/schedule/body_copy.h"

namespace framejit::inductor {
namespace {

// The only reduction of a nest that reduces one dimension, stores in any order, and stores only what comes after it.
std::optional<InstId> only_reduction(const Nest& nest, ReduceOp op) {
  InstId found = kNoInst;
  if (nest.reduced.size() != 1) return std::nullopt;
  for (InstId i = 0; i < nest.body.size(); ++i) {
    const LoopInst& inst = nest.body[i];
    if (inst.op == LoopOp::kScan || inst.mode != StoreMode::kPlain) return std::nullopt;
    if (inst.op != LoopOp::kReduce) continue;
    if (found != kNoInst || inst.reduce != op || inst.dtype != DType::kFloat32) return std::nullopt;
    found = i;
  }
  return found == kNoInst ? std::nullopt : std::optional(found);
}

const LoopInst* scalar_at(const Nest& nest, InstId i, ScalarOp op) {
  const LoopInst& inst = nest.body[i];
  return inst.op == LoopOp::kScalar && inst.scalar == op ? &inst : nullptr;
}

bool is_plain_load(const Nest& nest, InstId i) { return nest.body[i].op == LoopOp::kLoad && !nest.body[i].is_masked(); }

// The store of a nest that has one, after its reduction.
InstId only_store(const Nest& nest) {
  InstId found = kNoInst;
  for (InstId i = 0; i < nest.body.size(); ++i) {
    if (nest.body[i].op != LoopOp::kStore) continue;
    if (found != kNoInst) return kNoInst;
    found = i;
  }
  return found;
}

// exp(load scores - load most): the two buffers.
std::optional<std::pair<LoopBufferId, LoopBufferId>> as_power(const Nest& nest, InstId i) {
  const LoopInst* power = scalar_at(nest, i, ScalarOp::k_exp);
  const LoopInst* difference = power == nullptr ? nullptr : scalar_at(nest, power->operands[0], ScalarOp::k_sub);
  if (difference == nullptr || !is_plain_load(nest, difference->operands[0]) ||
      !is_plain_load(nest, difference->operands[1]))
    return std::nullopt;
  return std::pair(nest.body[difference->operands[0]].buffer, nest.body[difference->operands[1]].buffer);
}

// Whether it, or anything that it is computed from, depends on the dimension.
bool depends_on(const Nest& nest, const NestSymbols& symbols, InstId i, size_t dim) {
  const LoopInst& inst = nest.body[i];
  if (std::any_of(inst.index.begin(), inst.index.end(),
                  [&](const SymExpr& e) { return mentions(e, symbols.id_of_dim(dim)); }))
    return true;
  std::vector<InstId> uses;
  collect_uses(inst, symbols, uses);
  return std::any_of(uses.begin(), uses.end(), [&](InstId use) { return depends_on(nest, symbols, use, dim); });
}

}  // namespace

std::optional<ScoresNest> as_scores(const Nest& nest, const NestSymbols& symbols) {
  const auto sum = only_reduction(nest, ReduceOp::kSum);
  if (!sum || nest.ranges.empty()) return std::nullopt;
  const LoopInst* product = scalar_at(nest, nest.body[*sum].operands[0], ScalarOp::k_mul);
  const InstId store = only_store(nest);
  if (product == nullptr || store == kNoInst || !after_reduction(nest, symbols)[store]) return std::nullopt;
  const size_t key = nest.ranges.size() - 1;
  for (const size_t at : {size_t{1}, size_t{0}}) {
    const InstId right = product->operands[at], left = product->operands[1 - at];
    if (is_plain_load(nest, right) && depends_on(nest, symbols, right, key) && !depends_on(nest, symbols, left, key))
      return ScoresNest{left, right, *sum, store};
  }
  return std::nullopt;
}

std::optional<LoopBufferId> as_most(const Nest& nest, LoopBufferId scores) {
  const auto largest = only_reduction(nest, ReduceOp::kMax);
  const InstId store = only_store(nest);
  if (!largest || store == kNoInst) return std::nullopt;
  const InstId score = nest.body[*largest].operands[0];
  return is_plain_load(nest, score) && nest.body[score].buffer == scores ? std::optional(nest.body[store].buffer)
                                                                         : std::nullopt;
}

std::optional<LoopBufferId> as_total(const Nest& nest, LoopBufferId scores, LoopBufferId most) {
  const auto sum = only_reduction(nest, ReduceOp::kSum);
  const InstId store = only_store(nest);
  if (!sum || store == kNoInst) return std::nullopt;
  return as_power(nest, nest.body[*sum].operands[0]) == std::pair(scores, most) ? std::optional(nest.body[store].buffer)
                                                                                : std::nullopt;
}

std::optional<ResultNest> as_result(const Nest& nest, const NestSymbols& symbols) {
  const auto sum = only_reduction(nest, ReduceOp::kSum);
  if (!sum || nest.ranges.empty()) return std::nullopt;
  const LoopInst* product = scalar_at(nest, nest.body[*sum].operands[0], ScalarOp::k_mul);
  if (product == nullptr) return std::nullopt;
  for (const size_t at : {size_t{0}, size_t{1}}) {
    const auto buffers = as_power(nest, product->operands[at]);
    const InstId value = product->operands[1 - at];
    if (!buffers || !is_plain_load(nest, value)) continue;
    const auto after = after_reduction(nest, symbols);
    for (InstId i = 0; i < nest.body.size(); ++i)
      if (nest.body[i].op == LoopOp::kStore && !after[i]) return std::nullopt;
    return ResultNest{*sum, value, buffers->first, buffers->second};
  }
  return std::nullopt;
}

namespace {

class AttentionFinder {
 public:
  explicit AttentionFinder(const LoopProgram& program)
      : program_(program), symbols_(program.symbol_count), found_(program.items.size(), 0) {
    for (size_t i = 0; i < program.items.size(); ++i)
      if (const Nest* nest = std::get_if<Nest>(&program.items[i])) note(*nest, i);
  }

  std::vector<uint32_t> run() {
    uint32_t count = 0;
    for (size_t i = 0; i < program_.items.size(); ++i) {
      const auto parts = parts_of(i);
      if (!parts) continue;
      ++count;
      for (size_t item : *parts) found_[item] = count;
    }
    return std::move(found_);
  }

 private:
  void note(const Nest& nest, size_t i) {
    for (const LoopInst& inst : nest.body)
      if (inst.op == LoopOp::kStore) writers_[inst.buffer].push_back(i);
  }
  const std::vector<size_t>& writers_of(LoopBufferId b) const {
    static const std::vector<size_t> none;
    const auto at = writers_.find(b);
    return at == writers_.end() ? none : at->second;
  }
  const Nest& nest_at(size_t i) const { return std::get<Nest>(program_.items[i]); }

  // The items of the attention whose result item i computes.
  std::optional<std::array<size_t, 4>> parts_of(size_t i) const {
    const Nest* nest = std::get_if<Nest>(&program_.items[i]);
    const auto result = nest == nullptr ? std::nullopt : as_result(*nest, symbols_);
    if (!result) return std::nullopt;
    const std::vector<size_t>&first = writers_of(result->scores), &second = writers_of(result->most);
    if (first.size() != 1 || second.size() != 1 || !as_scores(nest_at(first[0]), symbols_) ||
        as_most(nest_at(second[0]), result->scores) != result->most)
      return std::nullopt;
    for (const LoopInst& inst : nest->body) {
      const std::vector<size_t>& third = writers_of(inst.buffer);
      if (inst.op != LoopOp::kLoad || third.size() != 1) continue;
      if (as_total(nest_at(third[0]), result->scores, result->most) != inst.buffer) continue;
      const std::array<size_t, 4> parts{first[0], second[0], third[0], i};
      return std::is_sorted(parts.begin(), parts.end()) && have_same_heads(parts) ? std::optional(parts) : std::nullopt;
    }
    return std::nullopt;
  }

  bool have_same_heads(const std::array<size_t, 4>& parts) const {
    const SymSizes& heads = nest_at(parts[1]).ranges;
    const auto has = [&](size_t item, size_t more) {
      const SymSizes& ranges = nest_at(item).ranges;
      return ranges.size() == heads.size() + more && std::equal(heads.begin(), heads.end(), ranges.begin());
    };
    return has(parts[0], 1) && has(parts[2], 0) && has(parts[3], 1);
  }

  const LoopProgram& program_;
  const NestSymbols symbols_;
  std::map<LoopBufferId, std::vector<size_t>> writers_;
  std::vector<uint32_t> found_;
};

}  // namespace

namespace {

class HeadsFirst {
 public:
  HeadsFirst(std::vector<const Nest*> known, size_t heads, uint32_t symbol_count)
      : known_(std::move(known)), heads_(heads), symbols_(symbol_count) {}

  std::optional<std::vector<Nest>> run(const std::vector<Nest>& nests) {
    std::vector<Nest> made(nests.size());
    for (size_t k = nests.size(); k-- > 0;) {
      auto moved = move(nests[k]);
      if (!moved) return std::nullopt;
      made[k] = std::move(*moved);
      known_.push_back(&made[k]);
    }
    for (size_t k = 0; k < made.size(); ++k) {
      for (const Nest* other : known_)
        if (!agree(made[k], *other)) return std::nullopt;
      for (size_t later = k; later < made.size(); ++later)
        if (writes_what_is_read(made[k], made[later])) return std::nullopt;
      for (const Nest* other : known_)
        if (std::none_of(made.begin(), made.end(), [&](const Nest& own) { return &own == other; }) &&
            (writes_what_is_read(made[k], *other) || shares_stores(made[k], *other)))
          return std::nullopt;
    }
    const auto is_both = [&](LoopBufferId b) { return of_each_head_.contains(b); };
    if (std::any_of(of_one_head_.begin(), of_one_head_.end(), is_both)) return std::nullopt;
    return made;
  }

 private:
  static bool is_access(const LoopInst& i) { return i.op == LoopOp::kStore || i.op == LoopOp::kLoad; }
  // Visits accesses of both to a buffer that one of them writes.
  template <class Visit>
  static void for_each_pair(const Nest& one, const Nest& other, Visit visit) {
    for (const LoopInst& a : one.body)
      for (const LoopInst& b : other.body)
        if (is_access(a) && is_access(b) && a.buffer == b.buffer && (a.op == LoopOp::kStore || b.op == LoopOp::kStore))
          visit(a, b);
  }
  // Blocks do not wait for each other, so a value must not be replaced after another block may have read it.
  static bool writes_what_is_read(const Nest& reader, const Nest& writer) {
    bool writes = false;
    for_each_pair(reader, writer, [&](const LoopInst& a, const LoopInst& b) {
      writes = writes || (a.op == LoopOp::kLoad && b.op == LoopOp::kStore);
    });
    return writes;
  }
  static bool shares_stores(const Nest& one, const Nest& other) {
    bool shares = false;
    for_each_pair(one, other, [&](const LoopInst& a, const LoopInst& b) {
      shares = shares || (a.op == LoopOp::kStore && b.op == LoopOp::kStore);
    });
    return shares;
  }
  const SymExpr& extent(size_t d) const { return known_[0]->ranges[d]; }

  // The dimension of the nest that goes along the heads' dimension d.
  std::optional<size_t> dim_of(const Nest& nest, size_t d) const {
    std::optional<size_t> found;
    for (const Nest* other : known_)
      for_each_pair(nest, *other, [&](const LoopInst& mine, const LoopInst& its) {
        for (size_t k = 0; k < its.index.size() && !found; ++k) {
          graph::SymbolId id = 0;
          if (its.index[k] == symbols_.dim(d) && mine.index[k].is_symbol(&id) && symbols_.is_dim(id))
            found = symbols_.dim_of(id);
        }
      });
    return found && *found < nest.ranges.size() && nest.ranges[*found] == extent(d) ? found : std::nullopt;
  }

  // A nest that has none of the heads' dimensions is computed for each head.
  std::optional<Nest> move(const Nest& nest) {
    SymSizes ranges;
    std::vector<SymExpr> dims(nest.dim_count(), SymExpr(0));
    std::vector<bool> is_head(nest.dim_count(), false);
    size_t wanted = 0, found = 0;
    for (size_t d = 0; d < heads_; ++d) {
      ranges.push_back(extent(d));
      if (extent(d) == SymExpr(1)) continue;
      ++wanted;
      const auto own = dim_of(nest, d);
      if (!own || is_head[*own]) continue;
      ++found;
      is_head[*own] = true;
      dims[*own] = symbols_.dim(d);
    }
    if (found != 0 && found != wanted) return std::nullopt;
    for (size_t d = 0; d < nest.ranges.size(); ++d) {
      if (is_head[d]) continue;
      dims[d] = symbols_.dim(ranges.size());
      ranges.push_back(nest.ranges[d]);
    }
    for (size_t d = nest.ranges.size(); d < nest.dim_count(); ++d)
      dims[d] = symbols_.dim(ranges.size() + d - nest.ranges.size());
    if (ranges.size() + nest.reduced.size() > kMaxDims) return std::nullopt;
    NestBuilder b(symbols_.sizes, nest.name, std::move(ranges), nest.reduced);
    BodyCopy(b, nest, std::move(dims)).run();
    for (const LoopInst& inst : nest.body)
      if (inst.op == LoopOp::kStore) (found == 0 ? of_each_head_ : of_one_head_).insert(inst.buffer);
    return b.build();
  }

  // Whether both access the elements of one head, or elements that each head computes.
  bool agree(const Nest& one, const Nest& other) const {
    bool same = true;
    for_each_pair(one, other, [&](const LoopInst& a, const LoopInst& b) {
      if (of_each_head_.contains(a.buffer)) return;
      for (size_t d = 0; d < heads_; ++d) {
        bool found = extent(d) == SymExpr(1);
        for (size_t k = 0; k < a.index.size() && !found; ++k)
          found = a.index[k] == symbols_.dim(d) && b.index[k] == symbols_.dim(d);
        same = same && found;
      }
    });
    return same;
  }

  std::vector<const Nest*> known_;  // their first dimensions are the heads'
  std::set<LoopBufferId> of_each_head_, of_one_head_;  // stored without and with the heads' dimensions
  const size_t heads_;
  const NestSymbols symbols_;
};

}  // namespace

std::optional<std::vector<Nest>> heads_first(const std::vector<Nest>& nests, const std::vector<Nest>& attention,
                                             const Nest& result, size_t heads, uint32_t symbol_count) {
  std::vector<const Nest*> known;
  for (const Nest& nest : attention) known.push_back(&nest);
  known.push_back(&result);
  return HeadsFirst(std::move(known), heads, symbol_count).run(nests);
}

std::vector<uint32_t> find_attention(const LoopProgram& program) { return AttentionFinder(program).run(); }

}  // namespace framejit::inductor
