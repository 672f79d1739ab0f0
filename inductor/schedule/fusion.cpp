// inductor/schedule/fusion.cpp — inlining, merging, pruning.
//
// Inlining substitutes a pointwise producer's body for each load of what it stores; it pays when the body is cheap or read once.
// Merging puts two nests over the same points into one; the consumer's loads become the producer's values, and a reduction takes
// a pointwise nest over all its points as prologue, or one over its kept points as epilogue. An item moves past others only if it
// touches nothing that they write and writes nothing that they touch.
#include "inductor/schedule/fusion.h"

#include <algorithm>
#include <iterator>

#include "inductor/loop/op_costs.h"
#include "inductor/schedule/body_copy.h"

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

bool intersects(const std::vector<LoopBufferId>& a, const std::vector<LoopBufferId>& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j]) return true;
    a[i] < b[j] ? ++i : ++j;
  }
  return false;
}

constexpr size_t kMaxBody = 96;

// Not to be computed twice.
bool is_heavy(const LoopInst& inst) { return inst.op == LoopOp::kCheck || cost_of(inst) > 1; }

struct Cost {
  size_t instructions = 0, loads = 0;
  bool heavy = false;
};
Cost cost_of(const Nest& nest) {
  Cost cost;
  for (const LoopInst& inst : nest.body) {
    cost.instructions += inst.op == LoopOp::kScalar || inst.op == LoopOp::kCast;
    cost.loads += inst.op == LoopOp::kLoad;
    cost.heavy |= is_heavy(inst);
  }
  return cost;
}

// For a nest that stores exactly one element of one buffer per point: position of each dimension in the store's index.
bool find_identity_store(const Nest& nest, const NestSymbols& symbols, InstId& store, std::vector<size_t>& position_of_dim) {
  if (nest.is_reduction()) return false;
  store = kNoInst;
  for (size_t i = 0; i < nest.body.size(); ++i) {
    if (nest.body[i].op != LoopOp::kStore) continue;
    if (store != kNoInst) return false;
    store = static_cast<InstId>(i);
  }
  if (store == kNoInst) return false;
  const auto& index = nest.body[store].index;
  position_of_dim.assign(nest.ranges.size(), SIZE_MAX);
  for (size_t k = 0; k < index.size(); ++k) {
    graph::SymbolId id = 0;
    if (!index[k].is_symbol(&id) || !symbols.is_dim(id) || position_of_dim[symbols.dim_of(id)] != SIZE_MAX) return false;
    position_of_dim[symbols.dim_of(id)] = k;
  }
  return std::find(position_of_dim.begin(), position_of_dim.end(), SIZE_MAX) == position_of_dim.end();
}

}  // namespace

bool conflicts(const ItemAccess& a, const ItemAccess& b) {
  return intersects(a.writes, b.writes) || intersects(a.writes, b.reads) || intersects(a.reads, b.writes);
}

namespace {

struct BufferUse {
  std::vector<size_t> writers, readers;  // items, in order
  bool read_by_extern = false;
};

std::vector<BufferUse> uses_of(const LoopProgram& program) {
  std::vector<BufferUse> uses(program.buffers.size());
  for (size_t i = 0; i < program.items.size(); ++i) {
    const ItemAccess access = access_of(program.items[i]);
    for (LoopBufferId b : access.reads) {
      uses[b].readers.push_back(i);
      uses[b].read_by_extern |= std::holds_alternative<ExternCall>(program.items[i]);
    }
    for (LoopBufferId b : access.writes) uses[b].writers.push_back(i);
  }
  return uses;
}

size_t count_loads(const Nest& nest, LoopBufferId buffer) {
  return static_cast<size_t>(std::count_if(nest.body.begin(), nest.body.end(),
                                           [&](const LoopInst& i) { return i.op == LoopOp::kLoad && i.buffer == buffer; }));
}

Nest substitute_producer(const LoopProgram& program, const Nest& producer, InstId store, const std::vector<size_t>& positions, const Nest& consumer) {
  NestBuilder b(program.symbol_count, consumer.name, consumer.ranges, consumer.reduced);
  std::vector<SymExpr> dims;
  for (size_t d = 0; d < consumer.dim_count(); ++d) dims.push_back(b.dim(d));
  BodyCopy copy(b, consumer, std::move(dims));
  copy.replace_load = [&](const LoopInst& load) -> std::optional<InstId> {
    if (load.buffer != producer.body[store].buffer) return std::nullopt;
    std::vector<SymExpr> at;
    for (size_t position : positions) at.push_back(load.index[position]);
    BodyCopy inner(b, producer, std::move(at));
    inner.with_stores = false;
    inner.run();
    return inner.map()[producer.body[store].operands[0]];
  };
  copy.run();
  return b.finish();
}

// Why the producer is not computed where it is read; nothing when it should be.
std::optional<Refusal> inline_refusal(const LoopProgram& program, const Nest& producer, const BufferUse& use, LoopBufferId buffer, const SizeHints& hints) {
  const Cost cost = cost_of(producer);
  size_t loads = 0;
  bool enlarges = false;
  for (size_t reader : use.readers) {
    const Nest& consumer = std::get<Nest>(program.items[reader]);
    if (consumer.body.size() + producer.body.size() > kMaxBody) return Refusal::too_large;
    if (cost.heavy && is_ordered(consumer)) return Refusal::walked;
    loads += count_loads(consumer, buffer);
    SymSizes all = consumer.ranges;
    all.insert(all.end(), consumer.reduced.begin(), consumer.reduced.end());
    enlarges |= hints.numel(all) > 2 * hints.numel(producer.ranges);
  }
  const bool pays = loads == 1 ? !cost.heavy || !enlarges : !cost.heavy && cost.instructions <= 6 && cost.loads <= 2;
  return pays ? std::nullopt : std::optional(Refusal::recomputed);
}

// After a pass that rewrote item i, the items before it are as they were: one sweep from the front sees all producers.
bool inline_item(LoopProgram& program, size_t i, const std::vector<BufferUse>& uses, const SizeHints& hints, RefusalNotes* notes) {
  const Nest* producer = std::get_if<Nest>(&program.items[i]);
  if (producer == nullptr) return false;
  InstId store = kNoInst;
  std::vector<size_t> positions;
  if (!find_identity_store(*producer, NestSymbols(program.symbol_count), store, positions)) return false;
  const LoopBufferId buffer = producer->body[store].buffer;
  const BufferUse& use = uses[buffer];
  if (program.buffers[buffer].is_output || use.read_by_extern || use.writers.size() != 1 || use.readers.empty()) return false;
  if (const auto refusal = inline_refusal(program, *producer, use, buffer, hints)) {
    for (size_t reader : use.readers) note(notes, producer->name, std::get<Nest>(program.items[reader]).name, *refusal);
    return false;
  }
  for (size_t reader : use.readers) {
    Nest fused = substitute_producer(program, *producer, store, positions, std::get<Nest>(program.items[reader]));
    program.items[reader] = std::move(fused);
  }
  return true;
}

}  // namespace

LoopProgram inline_producers(LoopProgram program, const SizeHints& hints, RefusalNotes* notes) {
  std::vector<BufferUse> uses = uses_of(program);
  for (size_t i = 0; i < program.items.size(); ++i) {
    if (!inline_item(program, i, uses, hints, notes)) continue;
    // What the producer read, its readers read now; what it wrote, nobody touches.
    const ItemAccess gone = access_of(program.items[i]);
    const std::vector<size_t> readers = std::exchange(uses[gone.writes[0]], {}).readers;
    for (LoopBufferId b : gone.reads) {
      std::vector<size_t> all;
      std::set_union(uses[b].readers.begin(), uses[b].readers.end(), readers.begin(), readers.end(), std::back_inserter(all));
      all.erase(std::find(all.begin(), all.end(), i));
      uses[b].readers = std::move(all);
    }
    program.items[i] = Nest{};
  }
  return prune(std::move(program));
}

namespace {

// Copies of live instructions only.
Nest without_dead_code(const LoopProgram& program, const Nest& nest, const std::vector<bool>& is_read) {
  const NestSymbols symbols(program.symbol_count);
  std::vector<bool> live(nest.body.size(), false);
  for (size_t i = nest.body.size(); i-- > 0;) {
    const LoopInst& inst = nest.body[i];
    if (inst.op == LoopOp::kStore) live[i] = program.buffers[inst.buffer].is_output || is_read[inst.buffer];
    if (inst.op == LoopOp::kCheck) live[i] = true;
    if (!live[i]) continue;
    std::vector<InstId> uses;
    collect_uses(inst, symbols, uses);
    for (InstId use : uses) live[use] = true;
  }
  if (std::find(live.begin(), live.end(), false) == live.end()) return nest;
  Nest out{nest.name, nest.ranges, nest.reduced, {}, nest.origins};
  std::vector<InstId> map(nest.body.size(), kNoInst);
  for (size_t i = 0; i < nest.body.size(); ++i) {
    if (!live[i]) continue;
    LoopInst inst = nest.body[i];
    for (int k = 0; k < inst.operand_count(); ++k) inst.operands[k] = map[inst.operands[k]];
    for (SymExpr& e : inst.index)
      e = substitute(e, [&](graph::SymbolId id) {
        return symbols.is_value(id) ? symbols.value(map[symbols.inst_of(id)]) : SymExpr::symbol(id);
      });
    map[i] = static_cast<InstId>(out.body.size());
    out.body.push_back(std::move(inst));
  }
  return out;
}

bool has_effect(const Nest& nest) {
  return std::any_of(nest.body.begin(), nest.body.end(),
                     [](const LoopInst& i) { return i.op == LoopOp::kStore || i.op == LoopOp::kCheck; });
}

}  // namespace

LoopProgram prune(LoopProgram program) {
  std::vector<bool> is_read(program.buffers.size(), false);
  std::vector<Item> kept;
  for (size_t i = program.items.size(); i-- > 0;) {
    Item item = std::move(program.items[i]);
    if (Nest* nest = std::get_if<Nest>(&item)) {
      *nest = without_dead_code(program, *nest, is_read);
      if (!has_effect(*nest)) continue;
    }
    for (LoopBufferId b : access_of(item).reads) is_read[b] = true;
    kept.push_back(std::move(item));
  }
  std::reverse(kept.begin(), kept.end());
  program.items = std::move(kept);
  return program;
}

namespace {

// What the first nest's dimensions are in the second, if the two can be one nest. Both run over the same points, or the first
// over the kept points of the second.
class Merger {
 public:
  Merger(const LoopProgram& program, const Nest& first, const Nest& second)
      : program_(program), first_(first), second_(second), symbols_(program.symbol_count) {}

  // Whether merging could save anything.
  bool shares_data() const {
    for (const LoopInst& a : first_.body) {
      if (a.op != LoopOp::kLoad && a.op != LoopOp::kStore) continue;
      for (const LoopInst& c : second_.body)
        if (c.op == LoopOp::kLoad && c.buffer == a.buffer && !a.index.empty()) return true;
    }
    return false;
  }

  // Nothing: see refusal().
  std::optional<Nest> merge() {
    if (first_.body.size() + second_.body.size() > kMaxBody) return refuse(Refusal::too_large);
    if (places_into(first_, second_) || places_into(second_, first_)) return refuse(Refusal::placed);
    if (!first_.is_reduction() && is_ordered(second_) && cost_of(first_).heavy) return refuse(Refusal::walked);
    if ((places(first_) && carries(second_)) || (places(second_) && carries(first_))) return refuse(Refusal::walked);
    if (!find_dims()) return refuse(Refusal::other_points);
    const bool by_reduction = first_.is_reduction();
    NestBuilder b(program_.symbol_count, second_.name, second_.ranges, by_reduction ? first_.reduced : second_.reduced);
    BodyCopy head(b, first_, dims_);
    head.run();
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
    Nest merged = b.finish();
    const auto inner = inner_insts(merged, symbols_), after = after_reduction(merged, symbols_);
    for (size_t i = 0; i < merged.body.size(); ++i)
      one_pass &= !(inner[i] && after[i]) && !(merged.body[i].op == LoopOp::kReduce && after[merged.body[i].operands[0]]);
    if (!same_element) return refuse(Refusal::other_element);
    if (!one_pass) return refuse(Refusal::two_passes);
    return merged;
  }
  Refusal refusal() const { return refusal_; }

 private:
  static bool places(const Nest& nest) {
    return std::any_of(nest.body.begin(), nest.body.end(), [](const LoopInst& inst) { return inst.mode != StoreMode::kPlain; });
  }
  static bool carries(const Nest& nest) { return std::any_of(nest.body.begin(), nest.body.end(), is_carried); }
  // Whether one stores in order into what the other touches.
  static bool places_into(const Nest& one, const Nest& other) {
    return std::any_of(one.body.begin(), one.body.end(), [&](const LoopInst& store) {
      const auto touches = [&](const LoopInst& inst) { return (inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore) && inst.buffer == store.buffer; };
      return store.mode != StoreMode::kPlain && std::any_of(other.body.begin(), other.body.end(), touches);
    });
  }

  std::nullopt_t refuse(Refusal reason) {
    refusal_ = reason;
    return std::nullopt;
  }

  bool find_dims() {
    if (!first_.is_reduction() && find_dims_by_store()) return true;
    if (first_.is_reduction() && second_.is_reduction() && !(first_.reduced == second_.reduced)) return false;
    if (!first_.is_reduction() && second_.is_reduction()) return false;
    if (!(first_.ranges == second_.ranges)) return false;
    dims_.clear();
    for (size_t d = 0; d < first_.dim_count(); ++d) dims_.push_back(symbols_.dim(d));
    return true;
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
    return covers(used, 0, second_.ranges.size()) &&
           (covers(used, second_.ranges.size(), second_.dim_count()) || none(used, second_.ranges.size(), second_.dim_count()));
  }

  bool covers(const std::vector<bool>& used, size_t begin, size_t end) const {
    for (size_t d = begin; d < end; ++d)
      if (!used[d] && !(second_.extent(d) == SymExpr(1))) return false;
    return true;
  }
  static bool none(const std::vector<bool>& used, size_t begin, size_t end) {
    return std::find(used.begin() + static_cast<long>(begin), used.begin() + static_cast<long>(end), true) == used.begin() + static_cast<long>(end);
  }

  const LoopProgram& program_;
  const Nest& first_;
  const Nest& second_;
  NestSymbols symbols_;
  std::vector<SymExpr> dims_;
  Refusal refusal_ = Refusal::other_points;
};

// Merges item i into the latest earlier item that takes it. True when it did; the merged nest stands at the earlier or the later
// place, whichever is legal.
bool merge_item(LoopProgram& program, size_t i, std::vector<ItemAccess>& access, RefusalNotes* notes) {
  const Nest* second = std::get_if<Nest>(&program.items[i]);
  if (second == nullptr || second->body.empty()) return false;
  constexpr size_t kWindow = 48;
  bool second_may_rise = true;
  for (size_t j = i; j-- > 0 && i - j <= kWindow;) {
    const Nest* first = std::get_if<Nest>(&program.items[j]);
    if (first != nullptr && !first->body.empty()) {
      bool first_may_sink = true;
      for (size_t k = j + 1; k < i && first_may_sink; ++k) first_may_sink = !conflicts(access[j], access[k]);
      Merger merger(program, *first, *second);
      if (!merger.shares_data()) {
        // nothing to win
      } else if (!second_may_rise && !first_may_sink) {
        note(notes, first->name, second->name, Refusal::order);
      } else {
        auto merged = merger.merge();
        if (!merged) {
          note(notes, first->name, second->name, merger.refusal());
        } else {
          program.items[second_may_rise ? j : i] = std::move(*merged);
          program.items[second_may_rise ? i : j] = Nest{};
          access[i] = access_of(program.items[i]);
          access[j] = access_of(program.items[j]);
          return true;
        }
      }
    }
    second_may_rise = second_may_rise && !conflicts(access[i], access[j]);
    if (!second_may_rise && j + 8 < i) return false;
  }
  return false;
}

}  // namespace

LoopProgram merge_nests(LoopProgram program, RefusalNotes* notes) {
  std::vector<ItemAccess> access;
  for (const Item& item : program.items) access.push_back(access_of(item));
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 1; i < program.items.size(); ++i) changed |= merge_item(program, i, access, notes);
  }
  return prune(std::move(program));
}

}  // namespace framejit::inductor
