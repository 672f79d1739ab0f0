// inductor/schedule/fusion.cpp — merging, pruning.
//
// Merging puts two nests over the same points into one, and the consumer's loads become the producer's values. A
// reduction takes a pointwise nest over all its points as prologue, or one over its kept points as epilogue. A step
// between two nests prevents that only if it needs one of them and the other needs it (item_order.h).
#include "inductor/schedule/fusion.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "inductor/schedule/body_copy.h"
#include "inductor/schedule/item_order.h"
#include "inductor/schedule/nest_cost.h"

namespace framejit::inductor {

using Item = std::variant<Nest, ExternCall>;

int64_t SizeHints::numel(const SymSizes& sizes) const {
  int64_t n = 1;
  for (const SymExpr& e : sizes) n *= e.eval(symbols);
  return n;
}

ItemAccess access_of(const Item& item) {
  ItemAccess access;
  if (const Nest* nest = std::get_if<Nest>(&item)) {
    for (const LoopInst& inst : nest->body) {
      if (inst.op == LoopOp::kLoad || inst.mode == StoreMode::kJoin) access.reads.push_back(inst.buffer);
      if (inst.op == LoopOp::kStore) access.writes.push_back(inst.buffer);
    }
  } else {
    const ExternCall& call = std::get<ExternCall>(item);
    access = {call.reads, call.writes};
  }
  for (auto* list : {&access.reads, &access.writes}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  return access;
}

namespace {

// What later items do to each buffer.
struct Later {
  std::vector<bool> reads;
  std::vector<bool> overwrites;  // all of it, before anything reads it
};

// Keeps live instructions only.
void drop_dead_code(const LoopProgram& program, Nest& nest, const Later& later) {
  const NestSymbols symbols(program.symbol_count);
  std::vector<bool> live(nest.body.size(), false);
  for (size_t i = nest.body.size(); i-- > 0;) {
    const LoopInst& inst = nest.body[i];
    if (inst.op == LoopOp::kStore)
      live[i] = (program.buffers[inst.buffer].is_output || later.reads[inst.buffer]) && !later.overwrites[inst.buffer];
    if (inst.op == LoopOp::kCheck) live[i] = true;
    if (!live[i]) continue;
    std::vector<InstId> uses;
    collect_uses(inst, symbols, uses);
    for (InstId use : uses) live[use] = true;
  }
  if (std::find(live.begin(), live.end(), false) == live.end()) return;
  Nest out{nest.name, nest.ranges, nest.reduced, {}, nest.origins};
  std::vector<InstId> map(nest.body.size(), kNoInst);
  for (size_t i = 0; i < nest.body.size(); ++i) {
    if (!live[i]) continue;
    map[i] = static_cast<InstId>(out.body.size());
    out.body.push_back(renumbered(nest.body[i], symbols, map));
  }
  nest = std::move(out);
}

// Whether the instruction stores each element of its buffer once.
bool stores_all(const LoopProgram& program, const Nest& nest, const LoopInst& store) {
  if (store.op != LoopOp::kStore || store.mode != StoreMode::kPlain) return false;
  const NestSymbols symbols(program.symbol_count);
  const SymSizes& sizes = program.buffers[store.buffer].sizes;
  std::vector<bool> used(nest.dim_count(), false);
  for (size_t k = 0; k < sizes.size(); ++k) {
    graph::SymbolId id = 0;
    if (sizes[k] == SymExpr(1) && store.index[k] == SymExpr(0)) continue;
    if (!store.index[k].is_symbol(&id) || !symbols.is_dim(id) || used[symbols.dim_of(id)] ||
        !(nest.extent(symbols.dim_of(id)) == sizes[k]))
      return false;
    used[symbols.dim_of(id)] = true;
  }
  return true;
}

bool has_effect(const Nest& nest) {
  return std::any_of(nest.body.begin(), nest.body.end(),
                     [](const LoopInst& i) { return i.op == LoopOp::kStore || i.op == LoopOp::kCheck; });
}

}  // namespace

LoopProgram prune(LoopProgram program) {
  const size_t count = program.buffers.size();
  Later later{std::vector<bool>(count, false), std::vector<bool>(count, false)};
  std::vector<Item> kept;
  for (size_t i = program.items.size(); i-- > 0;) {
    Item item = std::move(program.items[i]);
    if (Nest* nest = std::get_if<Nest>(&item)) {
      drop_dead_code(program, *nest, later);
      if (!has_effect(*nest)) continue;
      for (const LoopInst& inst : nest->body)
        if (stores_all(program, *nest, inst)) later.overwrites[inst.buffer] = true;
    }
    for (LoopBufferId b : access_of(item).reads) later.reads[b] = true, later.overwrites[b] = false;
    kept.push_back(std::move(item));
  }
  std::reverse(kept.begin(), kept.end());
  program.items = std::move(kept);
  return program;
}

namespace {

// The first nest's dimensions in terms of the second's, if the two can become one nest. Both run over the same points,
// or the first runs over the kept points of the second.
class Merger {
 public:
  Merger(const LoopProgram& program, const Costs& costs, const Nest& first, const Nest& second)
      : program_(program), costs_(costs), first_(first), second_(second), symbols_(program.symbol_count) {}

  // Nothing: see reason().
  std::optional<Nest> merge() {
    if (are_too_large(costs_, first_, second_)) return refuse(KeptNests::too_large);
    if (places_into(first_, second_) || places_into(second_, first_)) return refuse(KeptNests::placed);
    if (!first_.is_reduction() && is_ordered(second_) && cost_of(first_).heavy) return refuse(KeptNests::walked);
    if ((places(first_) && carries(second_)) || (places(second_) && carries(first_))) return refuse(KeptNests::walked);
    if (!find_dims()) return refuse(KeptNests::other_points);
    const bool by_reduction = first_.is_reduction();
    NestBuilder b(program_.symbol_count, second_.name, second_.ranges, by_reduction ? first_.reduced : second_.reduced);
    BodyCopy head(b, first_, dims_);
    // Stores to a buffer that the second also writes are left out: the second writes the same elements, see
    // writes_elsewhere(). In one nest they might run too late, because stores after a reduction follow all others.
    head.leave_out = [&](InstId i) {
      return first_.body[i].op == LoopOp::kStore && stores(second_, first_.body[i].buffer);
    };
    head.run();
    if (writes_elsewhere(head)) return refuse(KeptNests::other_element);
    std::vector<SymExpr> own;
    for (size_t d = 0; d < second_.dim_count(); ++d) own.push_back(b.dim(d));
    BodyCopy tail(b, second_, own);
    bool same_element = true, one_pass = true;
    tail.replace_load = [&](const LoopInst& load) -> std::optional<InstId> {
      std::optional<InstId> value;
      for (const LoopInst& inst : first_.body) {
        if (inst.op != LoopOp::kStore || inst.buffer != load.buffer) continue;
        const LoopInst store = head.translate(inst);
        same_element &= store.index == load.index;
        value = store.operands[0];
      }
      return value;
    };
    tail.run();
    Nest merged = b.build();
    const auto inner = inner_insts(merged, symbols_), after = after_reduction(merged, symbols_);
    for (size_t i = 0; i < merged.body.size(); ++i)
      one_pass &=
          !(inner[i] && after[i]) && !(merged.body[i].op == LoopOp::kReduce && after[merged.body[i].operands[0]]);
    if (!same_element) return refuse(KeptNests::other_element);
    if (!one_pass) return refuse(KeptNests::two_passes);
    return merged;
  }
  KeptNests reason() const { return reason_; }

 private:
  static bool places(const Nest& nest) {
    return std::any_of(nest.body.begin(), nest.body.end(),
                       [](const LoopInst& inst) { return inst.mode != StoreMode::kPlain; });
  }
  static bool stores(const Nest& nest, LoopBufferId buffer) {
    return std::any_of(nest.body.begin(), nest.body.end(),
                       [&](const LoopInst& inst) { return inst.op == LoopOp::kStore && inst.buffer == buffer; });
  }
  static bool carries(const Nest& nest) { return std::any_of(nest.body.begin(), nest.body.end(), is_carried); }
  // Whether one stores, in order, to a buffer that the other touches.
  static bool places_into(const Nest& one, const Nest& other) {
    return std::any_of(one.body.begin(), one.body.end(), [&](const LoopInst& store) {
      const auto touches = [&](const LoopInst& inst) {
        return (inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore) && inst.buffer == store.buffer;
      };
      return store.mode != StoreMode::kPlain && std::any_of(other.body.begin(), other.body.end(), touches);
    });
  }

  // Whether the second writes elements that the first touches at other points: for example a copy of everything, and
  // then a column of it.
  bool writes_elsewhere(const BodyCopy& head) const {
    const auto touches = [](const LoopInst& inst) { return inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore; };
    return std::any_of(second_.body.begin(), second_.body.end(), [&](const LoopInst& store) {
      return store.op == LoopOp::kStore &&
             std::any_of(first_.body.begin(), first_.body.end(), [&](const LoopInst& inst) {
               return touches(inst) && inst.buffer == store.buffer && !(head.translate(inst).index == store.index);
             });
    });
  }

  std::nullopt_t refuse(KeptNests reason) {
    reason_ = reason;
    return std::nullopt;
  }

  bool find_dims() {
    if (!first_.is_reduction() && find_dims_by_store()) return true;
    if (first_.is_reduction() && second_.is_reduction() && !(first_.reduced == second_.reduced)) return false;
    if (!first_.is_reduction() && second_.is_reduction()) return false;
    return find_same_ranges() && !reads_across();
  }

  // Whether the ranges are the same, dimensions of one element aside: those of a matrix and a batch of one matrix are.
  bool find_same_ranges() {
    dims_.clear();
    size_t next = 0;
    const size_t ranges = second_.ranges.size();
    const bool are_equal = first_.ranges == second_.ranges;
    const auto skip_units = [&] {
      while (!are_equal && next < ranges && second_.ranges[next] == SymExpr(1)) ++next;
    };
    for (const SymExpr& extent : first_.ranges) {
      if (!are_equal && extent == SymExpr(1)) {
        dims_.emplace_back(0);
        continue;
      }
      skip_units();
      if (next == ranges || !(second_.ranges[next] == extent)) return false;
      dims_.push_back(symbols_.dim(next++));
    }
    skip_units();
    for (size_t k = 0; k < first_.reduced.size(); ++k) dims_.push_back(symbols_.dim(ranges + k));
    return next == ranges;
  }

  // Whether the two load the same buffers, but none at the same positions: one goes along the rows and the other along
  // the columns, and there are as many rows as columns.
  bool reads_across() const {
    const auto has_two = [&](const LoopInst& load) {
      std::vector<graph::SymbolId> ids;
      for (const SymExpr& e : load.index) e.collect_symbols(ids);
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      return std::count_if(ids.begin(), ids.end(), [&](graph::SymbolId id) { return symbols_.is_dim(id); }) >= 2;
    };
    bool across = false;
    for (const LoopInst& a : first_.body)
      for (const LoopInst& b : second_.body) {
        if (a.op != LoopOp::kLoad || b.op != LoopOp::kLoad || a.buffer != b.buffer || !has_two(a) || !has_two(b))
          continue;
        if (a.index == b.index) return false;
        across = true;
      }
    return across;
  }

  // The second loads what the first stores: each component of the load's index is one dimension of the second.
  bool find_dims_by_store() {
    for (const LoopInst& store : first_.body) {
      if (store.op != LoopOp::kStore) continue;
      for (const LoopInst& load : second_.body)
        if (load.op == LoopOp::kLoad && load.buffer == store.buffer && match(store.index, load.index)) return true;
    }
    return false;
  }

  bool match(const std::vector<SymExpr>& stored, const std::vector<SymExpr>& loaded) {
    dims_.assign(first_.dim_count(), SymExpr(0));
    std::vector<bool> bound(first_.dim_count(), false), used(second_.dim_count(), false);
    for (size_t k = 0; k < stored.size(); ++k) {
      graph::SymbolId from = 0, to = 0;
      if (stored[k] == SymExpr(0) && loaded[k] == SymExpr(0)) continue;
      if (!stored[k].is_symbol(&from) || !symbols_.is_dim(from)) return false;
      const size_t d = symbols_.dim_of(from);
      if (bound[d]) return false;
      bound[d] = true;
      if (first_.extent(d) == SymExpr(1) && loaded[k] == SymExpr(0)) continue;
      if (!loaded[k].is_symbol(&to) || !symbols_.is_dim(to) || used[symbols_.dim_of(to)]) return false;
      const size_t e = symbols_.dim_of(to);
      if (!(first_.extent(d) == second_.extent(e))) return false;
      used[e] = true;
      dims_[d] = loaded[k];
    }
    if (std::find(bound.begin(), bound.end(), false) != bound.end()) return false;
    return covers(used, 0, second_.ranges.size()) && (covers(used, second_.ranges.size(), second_.dim_count()) ||
                                                      none(used, second_.ranges.size(), second_.dim_count()));
  }

  bool covers(const std::vector<bool>& used, size_t begin, size_t end) const {
    for (size_t d = begin; d < end; ++d)
      if (!used[d] && !(second_.extent(d) == SymExpr(1))) return false;
    return true;
  }
  static bool none(const std::vector<bool>& used, size_t begin, size_t end) {
    return std::find(used.begin() + static_cast<long>(begin), used.begin() + static_cast<long>(end), true) ==
           used.begin() + static_cast<long>(end);
  }

  const LoopProgram& program_;
  const Costs& costs_;
  const Nest& first_;
  const Nest& second_;
  NestSymbols symbols_;
  std::vector<SymExpr> dims_;
  KeptNests reason_ = KeptNests::other_points;
};

// Merges each nest into the latest earlier one that can take it and touches a buffer that it reads.
class MergePass {
 public:
  MergePass(LoopProgram& program, const Costs& costs, KeptNestPairs* notes)
      : program_(program),
        costs_(costs),
        order_(program.items),
        notes_(notes),
        touching_(program.buffers.size()),
        changes_(program.items.size(), 0),
        asked_for_(program.items.size(), SIZE_MAX) {}

  bool sweep() {
    bool changed = false;
    for (auto& items : touching_) items.clear();
    for (size_t item : order_.order()) {
      changed |= merge_back(item);
      const size_t kept = order_.found(item);
      for (const auto* list : {&order_.access(kept).reads, &order_.access(kept).writes})
        for (LoopBufferId b : *list)
          if (touching_[b].empty() || touching_[b].back() != kept) touching_[b].push_back(kept);
    }
    return changed;
  }

  void put_in_order() {
    std::vector<Item> items;
    for (size_t item : order_.order()) items.push_back(std::move(program_.items[item]));
    program_.items = std::move(items);
  }

 private:
  // Earlier nests that touch a buffer that the item reads, single numbers aside; the latest first.
  std::vector<size_t> candidates(size_t item) {
    constexpr size_t kMost = 64;
    std::vector<size_t> found;
    for (LoopBufferId b : order_.access(item).reads) {
      if (program_.buffers[b].sizes.empty()) continue;
      const std::vector<size_t>& all = touching_[b];
      for (size_t k = all.size() > kMost ? all.size() - kMost : 0; k < all.size(); ++k) {
        const size_t other = all[k];
        if (order_.found(other) != other || std::exchange(asked_for_[other], item) == item ||
            !std::holds_alternative<Nest>(program_.items[other]))
          continue;
        found.push_back(other);
      }
    }
    for (size_t other : found) asked_for_[other] = SIZE_MAX;
    std::sort(found.begin(), found.end(), [&](size_t a, size_t b) { return order_.position(a) > order_.position(b); });
    if (found.size() > kMost) found.resize(kMost);
    return found;
  }

  bool merge_back(size_t item) {
    const Nest* second = std::get_if<Nest>(&program_.items[item]);
    if (second == nullptr) return false;
    order_.look_back(item);
    for (size_t earlier : candidates(item)) {
      const Nest& first = std::get<Nest>(program_.items[earlier]);
      if (order_.is_parted(earlier)) {
        note(notes_, first.name, second->name, KeptNests::order);
        continue;
      }
      // A refused pair stays refused until one of the two changes.
      uint32_t& refused = refused_.try_emplace(uint64_t{earlier} << 32 | item, UINT32_MAX).first->second;
      if (refused == changes_[earlier] + changes_[item]) continue;
      refused = changes_[earlier] + changes_[item];
      Merger merger(program_, costs_, first, *second);
      auto merged = merger.merge();
      if (!merged) {
        note(notes_, first.name, second->name, merger.reason());
        continue;
      }
      order_.join(earlier);
      program_.items[earlier] = std::move(*merged);
      ++changes_[earlier];
      return true;
    }
    return false;
  }

  LoopProgram& program_;
  const Costs& costs_;
  ItemOrder order_;
  KeptNestPairs* notes_;
  // Per buffer: earlier nests and calls of the sweep; some may have been joined since.
  std::vector<std::vector<size_t>> touching_;
  std::vector<uint32_t> changes_;  // per item: how often it took another
  std::vector<size_t> asked_for_;
  std::unordered_map<uint64_t, uint32_t> refused_;  // pairs of items, and the changes of both at that time
};

}  // namespace

LoopProgram merge_nests(LoopProgram program, const Costs& costs, KeptNestPairs* notes) {
  MergePass pass(program, costs, notes);
  while (pass.sweep()) continue;
  pass.put_in_order();
  return prune(std::move(program));
}

}  // namespace framejit::inductor
