// inductor/schedule/inlining.cpp — computes producers where they are read.
//
// A pointwise producer's body replaces each load of what it stores; that pays if the body is cheap or read once, or if
// it is made of one value a row, as a mask is. If several nests write a buffer region by region (cat, stack, pad), a
// choice of masked loads (regions.h) replaces it, if the regions are few and light.
#include <algorithm>
#include <functional>
#include <iterator>

#include "inductor/schedule/body_copy.h"
#include "inductor/schedule/checks.h"
#include "inductor/schedule/fusion.h"
#include "inductor/schedule/nest_cost.h"
#include "inductor/schedule/regions.h"

namespace framejit::inductor {
namespace {

// For a nest that stores exactly one element of one buffer per point: the position of each dimension in the index of
// the store; none for a dimension of one element that the index leaves out.
constexpr size_t kNoPosition = SIZE_MAX;
bool find_identity_store(const LoopProgram& program, const Nest& nest, InstId& store,
                         std::vector<size_t>& position_of_dim) {
  const NestSymbols symbols(program.symbol_count);
  if (nest.is_reduction()) return false;
  store = kNoInst;
  for (size_t i = 0; i < nest.body.size(); ++i) {
    if (nest.body[i].op != LoopOp::kStore) continue;
    if (store != kNoInst) return false;
    store = static_cast<InstId>(i);
  }
  if (store == kNoInst) return false;
  const auto& index = nest.body[store].index;
  const SymSizes& sizes = program.buffers[nest.body[store].buffer].sizes;
  position_of_dim.assign(nest.ranges.size(), kNoPosition);
  for (size_t k = 0; k < index.size(); ++k) {
    graph::SymbolId id = 0;
    if (index[k] == SymExpr(0) && sizes[k] == SymExpr(1)) continue;
    if (!index[k].is_symbol(&id) || !symbols.is_dim(id) || position_of_dim[symbols.dim_of(id)] != kNoPosition)
      return false;
    position_of_dim[symbols.dim_of(id)] = k;
  }
  for (size_t d = 0; d < nest.ranges.size(); ++d)
    if (position_of_dim[d] == kNoPosition && !(nest.ranges[d] == SymExpr(1))) return false;
  return true;
}

// Limits for a producer that calls no function; work as in op_costs.def. The factor or the term of a batch norm has no
// more.
constexpr int kCheapWork = 15;
constexpr size_t kCheapLoads = 4;

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
  return static_cast<size_t>(std::count_if(nest.body.begin(), nest.body.end(), [&](const LoopInst& i) {
    return i.op == LoopOp::kLoad && i.buffer == buffer;
  }));
}

using Replace = std::function<std::optional<InstId>(NestBuilder&, const LoopInst& load)>;
Nest with_loads_replaced(const LoopProgram& program, const Nest& nest, const Replace& replace) {
  NestBuilder b(program.symbol_count, nest.name, nest.ranges, nest.reduced);
  std::vector<SymExpr> dims;
  for (size_t d = 0; d < nest.dim_count(); ++d) dims.push_back(b.dim(d));
  BodyCopy copy(b, nest, std::move(dims));
  copy.replace_load = [&](const LoopInst& load) { return replace(b, load); };
  copy.run();
  return b.build();
}

Nest substitute_producer(const LoopProgram& program, const Nest& producer, InstId store,
                         const std::vector<size_t>& positions, const Nest& consumer) {
  return with_loads_replaced(program, consumer, [&](NestBuilder& b, const LoopInst& load) -> std::optional<InstId> {
    if (load.buffer != producer.body[store].buffer) return std::nullopt;
    std::vector<SymExpr> at;
    for (size_t position : positions) at.push_back(position == kNoPosition ? SymExpr(0) : load.index[position]);
    BodyCopy inner(b, producer, std::move(at));
    inner.with_stores = false;
    if (load.is_masked()) inner.condition = load.operands[0];
    inner.run();
    return inner.map()[producer.body[store].operands[0]];
  });
}

bool loads_masked(const Nest& nest, LoopBufferId buffer) {
  return std::any_of(nest.body.begin(), nest.body.end(),
                     [&](const LoopInst& i) { return i.is_masked() && i.buffer == buffer; });
}

// Whether it is made only of inputs, with little work and without a check: the factor of a batch norm, for example.
bool is_cheap(const Nest& nest, const std::vector<BufferUse>& uses) {
  const NestCost cost = cost_of(nest);
  return cost.work <= kCheapWork && cost.loads <= kCheapLoads &&
         std::none_of(nest.body.begin(), nest.body.end(), [&](const LoopInst& i) {
           return i.op == LoopOp::kCheck || (i.op == LoopOp::kLoad && !uses[i.buffer].writers.empty());
         });
}

int64_t points_of(const Nest& nest, const SizeHints& hints) {
  return hints.numel(nest.ranges) * hints.numel(nest.reduced);
}

// Whether the reader steps through each row of the producer, element by element, in its inner loop.
bool reads_rows(const Nest& consumer, const LoopInst& load, size_t position, const NestSymbols& symbols) {
  const std::optional<graph::SymbolId> last = symbols.id_of_last_dim(consumer);
  if (!last) return false;
  for (size_t k = 0; k < load.index.size(); ++k)
    if (k == position ? !load.index[k].is_symbol() || !mentions(load.index[k], *last) : mentions(load.index[k], *last))
      return false;
  return true;
}

// Whether a few instructions make every element from its position and from values that its row shares, and every reader
// goes row by row. To store the elements would cost more.
bool is_made_of_rows(const LoopProgram& program, const Nest& producer, InstId store,
                     const std::vector<size_t>& positions, const BufferUse& use, const SizeHints& hints,
                     const Costs& costs) {
  if (positions.empty() || positions.back() == kNoPosition) return false;
  if (hints.numel({producer.ranges.back()}) < costs.shared_row) return false;
  const NestSymbols symbols(program.symbol_count);
  const NestCost cost = cost_in_row(producer, symbols);
  if (cost.heavy || cost.loads > 0 || cost.instructions > static_cast<size_t>(costs.inlined_instructions)) return false;
  return std::all_of(use.readers.begin(), use.readers.end(), [&](size_t reader) {
    const Nest& consumer = std::get<Nest>(program.items[reader]);
    return std::all_of(consumer.body.begin(), consumer.body.end(), [&](const LoopInst& inst) {
      return inst.op != LoopOp::kLoad || inst.buffer != producer.body[store].buffer ||
             reads_rows(consumer, inst, positions.back(), symbols);
    });
  });
}

// Why the producer is not computed where it is read; nothing if it should be.
std::optional<KeptNests> why_not_inlined(const LoopProgram& program, const Nest& producer, InstId store,
                                         const std::vector<size_t>& positions, const std::vector<BufferUse>& uses,
                                         const SizeHints& hints, const Costs& costs) {
  const LoopBufferId buffer = producer.body[store].buffer;
  const BufferUse& use = uses[buffer];
  const NestCost cost = cost_of(producer);
  size_t loads = 0;
  int64_t points = 0;
  bool enlarges = false;
  for (size_t reader : use.readers) {
    const Nest& consumer = std::get<Nest>(program.items[reader]);
    if (are_too_large(costs, producer, consumer)) return KeptNests::too_large;
    if (cost.heavy && is_ordered(consumer)) return KeptNests::walked;
    if (loads_masked(consumer, buffer) && !takes_zeros(producer)) return KeptNests::conditional;
    loads += count_loads(consumer, buffer);
    points += points_of(consumer, hints);
    enlarges |= points_of(consumer, hints) > costs.enlarged * hints.numel(producer.ranges);
  }
  const bool is_small = cost.instructions <= static_cast<size_t>(costs.inlined_instructions) &&
                        cost.loads <= static_cast<size_t>(costs.inlined_loads);
  const bool is_free = enlarges && points <= costs.recomputed_points && is_cheap(producer, uses);
  const bool pays = is_free || (loads == 1 ? !cost.heavy || !enlarges : !cost.heavy && is_small);
  if (!pays && is_made_of_rows(program, producer, store, positions, use, hints, costs)) return std::nullopt;
  return pays ? std::nullopt : std::optional(KeptNests::recomputed);
}

// Why a nest is computed once and stored, whatever the cost; nothing if each of its readers could compute it.
std::optional<KeptNests> why_stored(const LoopProgram& program, const Nest& producer, LoopBufferId buffer,
                                    const BufferUse& use) {
  if (producer.is_reduction()) return KeptNests::reduces;
  if (use.writers.size() != 1) return KeptNests::several_writers;  // inline_regions() has not taken them
  if (program.buffers[buffer].is_output) return KeptNests::is_output;
  return use.read_by_extern ? std::optional(KeptNests::read_by_library) : std::nullopt;
}

void note_readers(const LoopProgram& program, const Nest& producer, const BufferUse& use, KeptNests reason,
                  KeptNestPairs* notes) {
  if (notes == nullptr) return;
  for (size_t reader : use.readers)
    if (const Nest* nest = std::get_if<Nest>(&program.items[reader])) note(notes, producer.name, nest->name, reason);
}

// Whether some reader visits every element that a check depends on. Otherwise some checks would be lost.
bool is_checked_by_a_reader(const LoopProgram& program, const Nest& producer, LoopBufferId buffer,
                            const std::vector<size_t>& positions, const BufferUse& use) {
  const NestSymbols symbols(program.symbol_count);
  const std::vector<bool> is_used = dims_of_checks(producer, symbols, feeding_checks(producer, symbols));
  const auto is_whole = [&](const Nest& consumer, const LoopInst& load) {
    std::vector<bool> is_taken(consumer.dim_count(), false);
    for (size_t d = 0; d < positions.size(); ++d) {
      graph::SymbolId id = 0;
      if (!is_used[d] || producer.ranges[d] == SymExpr(1)) continue;  // it may have no position
      if (!load.index[positions[d]].is_symbol(&id) || !symbols.is_dim(id) || is_taken[symbols.dim_of(id)]) return false;
      if (!(consumer.extent(symbols.dim_of(id)) == producer.ranges[d])) return false;
      is_taken[symbols.dim_of(id)] = true;
    }
    return true;
  };
  return std::any_of(use.readers.begin(), use.readers.end(), [&](size_t reader) {
    const Nest& consumer = std::get<Nest>(program.items[reader]);
    return std::any_of(consumer.body.begin(), consumer.body.end(), [&](const LoopInst& inst) {
      return inst.op == LoopOp::kLoad && inst.buffer == buffer && !inst.is_masked() && is_whole(consumer, inst);
    });
  });
}

// Rewriting item i leaves the items before it unchanged, so one sweep from the front sees all producers. left: what
// remains of the item, namely the checks that no reader does.
bool inline_item(LoopProgram& program, size_t i, const std::vector<BufferUse>& uses, const SizeHints& hints,
                 const Costs& costs, KeptNestPairs* notes, Nest& left) {
  const Nest* producer = std::get_if<Nest>(&program.items[i]);
  if (producer == nullptr) return false;
  InstId store = kNoInst;
  std::vector<size_t> positions;
  const bool stores_points = find_identity_store(program, *producer, store, positions);
  if (!stores_points && notes == nullptr) return false;
  for (LoopBufferId buffer : access_of(program.items[i]).writes)
    if (const auto reason = why_stored(program, *producer, buffer, uses[buffer])) {
      note_readers(program, *producer, uses[buffer], *reason, notes);
      return false;
    }
  if (!stores_points) return false;
  const LoopBufferId buffer = producer->body[store].buffer;
  const BufferUse& use = uses[buffer];
  if (use.readers.empty()) return false;
  if (const auto reason = why_not_inlined(program, *producer, store, positions, uses, hints, costs)) {
    note_readers(program, *producer, use, *reason, notes);
    return false;
  }
  Nest checks;
  if (has_checks(*producer) && !is_checked_by_a_reader(program, *producer, buffer, positions, use))
    checks = checks_of(*producer, program.symbol_count);
  for (size_t reader : use.readers) {
    Nest fused = substitute_producer(program, *producer, store, positions, std::get<Nest>(program.items[reader]));
    program.items[reader] = std::move(fused);
  }
  left = std::move(checks);
  return true;
}

// Whether contiguous runs are so short that neighbouring lanes read different regions.
bool is_interleaved(const LoopBuffer& buffer, const SizeHints& hints, const Costs& costs) {
  for (size_t k = 0; k < buffer.sizes.size(); ++k)
    if (buffer.strides[k] == SymExpr(1) && !(buffer.sizes[k] == SymExpr(1)))
      return hints.numel({buffer.sizes[k]}) < costs.region_run;
  return false;
}

// Why a buffer that several nests write is not read from their regions; nothing if it should be.
std::optional<KeptNests> why_regions_stay(const LoopProgram& program, const std::vector<Region>& regions,
                                          const BufferUse& use, LoopBufferId buffer, const SizeHints& hints,
                                          const Costs& costs) {
  size_t instructions = 0, length = 0, loads = 0;
  for (const Region& region : regions) {
    const NestCost cost = cost_of(*region.nest);
    if (!takes_zeros(*region.nest)) return KeptNests::conditional;
    if (cost.heavy) return KeptNests::recomputed;
    instructions += cost.instructions;
    length += region.nest->body.size() + static_cast<size_t>(costs.choice_instructions);
  }
  if (is_interleaved(program.buffers[buffer], hints, costs)) return KeptNests::recomputed;
  for (size_t reader : use.readers) {
    const Nest& consumer = std::get<Nest>(program.items[reader]);
    const size_t own = count_loads(consumer, buffer);
    if (consumer.body.size() + own * length > static_cast<size_t>(costs.most_instructions)) return KeptNests::too_large;
    if (is_ordered(consumer)) return KeptNests::walked;
    if (points_of(consumer, hints) > costs.enlarged * hints.numel(program.buffers[buffer].sizes))
      return KeptNests::recomputed;
    loads += own;
  }
  const bool pays = loads * regions.size() <= static_cast<size_t>(costs.region_choices) &&
                    instructions <= static_cast<size_t>(costs.region_instructions);
  return pays ? std::nullopt : std::optional(KeptNests::recomputed);
}

// Called for the last of several writers of a buffer: readers then read its regions, one by one.
bool inline_regions(LoopProgram& program, LoopBufferId buffer, const BufferUse& use, const SizeHints& hints,
                    const Costs& costs, KeptNestPairs* notes) {
  if (use.readers.empty() || use.read_by_extern || program.buffers[buffer].is_output ||
      use.readers.front() <= use.writers.back())
    return false;
  const auto regions = find_regions(program, buffer, use.writers);
  if (!regions) return false;
  if (const auto reason = why_regions_stay(program, *regions, use, buffer, hints, costs)) {
    note_readers(program, *regions->back().nest, use, *reason, notes);
    return false;
  }
  for (size_t reader : use.readers) {
    const Nest& consumer = std::get<Nest>(program.items[reader]);
    program.items[reader] =
        with_loads_replaced(program, consumer, [&](NestBuilder& b, const LoopInst& load) -> std::optional<InstId> {
          return load.buffer == buffer ? std::optional(read_regions(b, program, *regions, load)) : std::nullopt;
        });
  }
  return true;
}

// The readers now read what a removed item read; nobody touches what it wrote.
void hand_over(LoopProgram& program, size_t item, const std::vector<size_t>& readers, std::vector<BufferUse>& uses,
               Nest left = {}) {
  const std::vector<LoopBufferId> still = access_of(left).reads;
  for (LoopBufferId b : access_of(program.items[item]).reads) {
    std::vector<size_t> all;
    std::set_union(uses[b].readers.begin(), uses[b].readers.end(), readers.begin(), readers.end(),
                   std::back_inserter(all));
    if (!std::binary_search(still.begin(), still.end(), b)) all.erase(std::find(all.begin(), all.end(), item));
    uses[b].readers = std::move(all);
  }
  program.items[item] = std::move(left);
}

}  // namespace

LoopProgram inline_producers(LoopProgram program, const SizeHints& hints, const Costs& costs, KeptNestPairs* notes) {
  std::vector<BufferUse> uses = uses_of(program);
  for (size_t i = 0; i < program.items.size(); ++i) {
    for (LoopBufferId buffer : access_of(program.items[i]).writes) {
      if (uses[buffer].writers.size() < 2 || uses[buffer].writers.back() != i) continue;
      if (!inline_regions(program, buffer, uses[buffer], hints, costs, notes)) continue;
      const BufferUse gone = std::exchange(uses[buffer], {});
      for (size_t writer : gone.writers) hand_over(program, writer, gone.readers, uses);
    }
    Nest left;
    if (!inline_item(program, i, uses, hints, costs, notes, left)) continue;
    const LoopBufferId written = access_of(program.items[i]).writes[0];
    hand_over(program, i, std::exchange(uses[written], {}).readers, uses, std::move(left));
  }
  return prune(std::move(program));
}

}  // namespace framejit::inductor
