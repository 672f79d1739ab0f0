// inductor/schedule/input_writes.cpp — finds copies of inputs in which only some elements are replaced.
#include "inductor/schedule/input_writes.h"

#include <algorithm>

#include "inductor/schedule/checks.h"

namespace framejit::inductor {
namespace {

using graph::Graph;
using graph::ValueId;
using Item = std::variant<Nest, ExternCall>;

bool touches(const std::vector<LoopBufferId>& sorted, LoopBufferId b) {
  return std::binary_search(sorted.begin(), sorted.end(), b);
}

class InputWrites {
 public:
  InputWrites(const Graph& graph, bool checks_stop, LoweredGraph& lowered)
      : graph_(graph),
        checks_stop_(checks_stop),
        program_(lowered.program),
        forms_(lowered.forms),
        symbols_(program_.symbol_count) {}

  std::vector<bool> run() {
    std::vector<bool> taken(graph_.updates.size(), false);
    for (const Item& item : program_.items) access_.push_back(access_of(item));
    std::vector<Candidate> found;
    for (size_t u = 0; u < graph_.updates.size(); ++u)
      if (auto candidate = find(u)) found.push_back(std::move(*candidate));
    if (checks_stop_) drop_dependent_checks(found);
    for (const Candidate& c : found) first_write_ = std::min(first_write_, c.writes[0]);
    for (const Candidate& c : found) {
      taken[c.update] = true;
      take(c);
    }
    insert_gates();
    return taken;
  }

 private:
  struct Candidate {
    size_t update = 0;
    LoopBufferId input = 0, value = 0;
    size_t copy = 0;             // items
    std::vector<size_t> writes;
  };

  std::optional<Candidate> find(size_t u) const {
    const auto& [input, value] = graph_.updates[u];
    Candidate c{u, root_buffer(forms_, graph_.inputs[input]), root_buffer(forms_, value), SIZE_MAX, {}};
    const graph::TensorMeta &from = graph_.meta(graph_.inputs[input]), &to = graph_.meta(value);
    if (forms_[graph::index_of(value)].kind != ValueForm::kBuffer ||
        program_.buffers[c.value].role != BufferRole::kTemp)
      return std::nullopt;
    if (from.dtype != to.dtype || !(from.sizes == to.sizes) || !(from.strides == to.strides)) return std::nullopt;
    for (size_t other = 0; other < graph_.updates.size(); ++other) {
      const LoopBufferId shown = root_buffer(forms_, graph_.updates[other].second);
      if (shown == c.input || (other != u && shown == c.value)) return std::nullopt;
    }
    for (size_t o = 0; o < graph_.outputs.size(); ++o)  // a fresh output must not lie in the input's memory
      if (graph_.outputs[o] != graph::kNoValue && graph_.output_aliases[o].kind == graph::OutputKind::kFresh &&
          root_buffer(forms_, graph_.outputs[o]) == c.value)
        return std::nullopt;
    for (size_t i = 0; i < program_.items.size(); ++i)
      if (!place(i, c)) return std::nullopt;
    if (c.copy == SIZE_MAX || c.writes.empty()) return std::nullopt;
    return c;
  }

  // Whether the item is unrelated to both, only reads the value, or is itself the copy or one of the writes.
  bool place(size_t i, Candidate& c) const {
    const bool reads_input = touches(access_[i].reads, c.input), writes_value = touches(access_[i].writes, c.value);
    if (!reads_input && !writes_value) return true;
    const Nest* nest = std::get_if<Nest>(&program_.items[i]);
    if (nest == nullptr || !writes_value) return false;
    if (c.copy == SIZE_MAX) {
      c.copy = i;
      return reads_input && is_copy(*nest);
    }
    c.writes.push_back(i);
    return !reads_input && std::none_of(nest->body.begin(), nest->body.end(), [&](const LoopInst& inst) {
      return inst.buffer == c.value &&
             (inst.op == LoopOp::kLoad || (inst.op == LoopOp::kStore && inst.mode == StoreMode::kJoin));
    });
  }

  // Gates come before the first write, so what they check must not be the result of another write.
  void drop_dependent_checks(std::vector<Candidate>& found) const {
    std::vector<LoopBufferId> values;
    for (const Candidate& c : found) values.push_back(c.value);
    std::erase_if(found, [&](const Candidate& c) {
      return std::any_of(c.writes.begin(), c.writes.end(), [&](size_t w) {
        return has_checks(std::get<Nest>(program_.items[w])) &&
               std::any_of(values.begin(), values.end(),
                           [&](LoopBufferId v) { return v != c.value && touches(access_[w].reads, v); });
      });
    });
  }

  // A copy of every element to its own place; a dimension of one element may or may not be named.
  bool is_copy(const Nest& nest) const {
    if (nest.body.size() != 2 || !nest.reduced.empty() || nest.body[0].op != LoopOp::kLoad ||
        nest.body[1].op != LoopOp::kStore || nest.body[1].mode != StoreMode::kPlain)
      return false;
    const auto without_units = [&](const SymExpr& e) {
      return substitute(e, [&](graph::SymbolId id) {
        return symbols_.is_dim(id) && nest.extent(symbols_.dim_of(id)) == SymExpr(1) ? SymExpr(0) : SymExpr::symbol(id);
      });
    };
    return std::equal(nest.body[0].index.begin(), nest.body[0].index.end(), nest.body[1].index.begin(),
                      nest.body[1].index.end(),
                      [&](const SymExpr& a, const SymExpr& b) { return without_units(a) == without_units(b); });
  }

  void take(const Candidate& c) {
    for (size_t w : c.writes)
      if (checks_stop_ && has_checks(std::get<Nest>(program_.items[w])))
        program_.items[w] = after_gate(std::get<Nest>(program_.items[w]));
    program_.items[c.copy] = Nest{};  // pruned later
    for (Item& item : program_.items) redirect(item, c.value, c.input);
    for (ValueForm& form : forms_)
      if (form.kind == ValueForm::kBuffer && form.buffer == c.value) form.buffer = c.input;
    program_.buffers[c.input].is_output = true;
    program_.buffers[c.value].is_output = false;
  }

  static void redirect(Item& item, LoopBufferId from, LoopBufferId to) {
    if (Nest* nest = std::get_if<Nest>(&item)) {
      for (LoopInst& inst : nest->body)
        if ((inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore) && inst.buffer == from) inst.buffer = to;
      return;
    }
    ExternCall& call = std::get<ExternCall>(item);
    std::replace(call.reads.begin(), call.reads.end(), from, to);
  }

  // The checks of a write go to a separate nest, which stores the checked indices; the write loads them.
  Nest after_gate(const Nest& write) {
    ChecksCopy copy = copy_checks(write, program_.symbol_count, "gate" + std::to_string(gates_.size()));
    const SymSizes ranges = copy.builder.peek().ranges;
    const std::vector<LoopInst> body = copy.builder.peek().body;
    for (const Gate& known : gates_)
      if (known.nest.ranges == ranges && known.body == body) return with_checked(write, known.checked, copy.dims);
    Gate made{{}, body, {}, first_write_};
    for (size_t i = 0; i < write.body.size(); ++i) {
      const bool is_copied = copy.map[i] != kNoInst;
      if (is_copied && write.body[i].op == LoopOp::kLoad)
        made.before = std::max(made.before, made_by(write.body[i].buffer));
      if (write.body[i].op != LoopOp::kCheck) continue;
      made.checked.push_back(static_cast<LoopBufferId>(program_.buffers.size()));
      program_.buffers.push_back({"checked" + std::to_string(program_.buffers.size()), BufferRole::kTemp, DType::kInt64,
                                  ranges, graph::contiguous_strides(ranges), UINT32_MAX, false});
      copy.builder.store(made.checked.back(), copy.builder.range_dims(), copy.map[i]);
    }
    made.nest = copy.builder.build();
    gates_.push_back(std::move(made));
    return with_checked(write, gates_.back().checked, copy.dims);
  }

  // The item after all items that write the buffer.
  size_t made_by(LoopBufferId b) const {
    size_t end = 0;
    for (size_t i = 0; i < access_.size(); ++i)
      if (touches(access_[i].writes, b)) end = i + 1;
    return end;
  }

  // Replaces each check of the nest by a load of a checked index, and a check that always holds.
  Nest with_checked(const Nest& write, const std::vector<LoopBufferId>& checked, const std::vector<SymExpr>& at) const {
    Nest out{write.name, write.ranges, write.reduced, {}, write.origins};
    std::vector<InstId> map(write.body.size(), kNoInst);
    size_t check = 0;
    for (size_t i = 0; i < write.body.size(); ++i) {
      LoopInst inst = renumbered(write.body[i], symbols_, map);
      if (inst.op == LoopOp::kCheck) {
        LoopInst load;
        load.op = LoopOp::kLoad;
        load.dtype = DType::kInt64;
        load.buffer = checked[check++];
        load.index = at;
        inst.operands[0] = static_cast<InstId>(out.body.size());
        inst.wrap = false;
        out.body.push_back(std::move(load));
      }
      map[i] = static_cast<InstId>(out.body.size());
      out.body.push_back(std::move(inst));
    }
    return out;
  }

  void insert_gates() {
    if (gates_.empty()) return;
    std::vector<Item> items;
    for (size_t i = 0; i < program_.items.size(); ++i) {
      for (Gate& gate : gates_)
        if (gate.before == i) items.emplace_back(std::move(gate.nest));
      items.push_back(std::move(program_.items[i]));
    }
    program_.items = std::move(items);
  }

  struct Gate {
    Nest nest;
    std::vector<LoopInst> body;         // of the nest, without its stores
    std::vector<LoopBufferId> checked;  // per check of the write, in order
    size_t before = 0;                  // the item before which it is placed
  };

  const Graph& graph_;
  const bool checks_stop_;  // a failed check stops the call
  LoopProgram& program_;
  std::vector<ValueForm>& forms_;
  const NestSymbols symbols_;
  std::vector<ItemAccess> access_;
  std::vector<Gate> gates_;
  size_t first_write_ = SIZE_MAX;  // item
};

bool writes_input(const LoopProgram& program, const Nest& nest) {
  return std::any_of(nest.body.begin(), nest.body.end(), [&](const LoopInst& inst) {
    return inst.op == LoopOp::kStore && program.buffers[inst.buffer].role == BufferRole::kInput;
  });
}

}  // namespace

std::vector<bool> write_inputs_in_place(const Graph& graph, const TargetInfo& target, LoweredGraph& lowered) {
  const TargetTraits& traits = target.traits;
  const bool applies = traits.steps_end_in_order || traits.checks_assert;
  if (graph.updates.empty() || !applies) return std::vector<bool>(graph.updates.size(), false);
  return InputWrites(graph, traits.kernels_may_fail, lowered).run();
}

bool writes_in_order(const Schedule& schedule, const TargetInfo& target) {
  const auto may_stop = [&](const Nest& nest) { return target.traits.kernels_may_fail && has_checks(nest); };
  uint32_t written = 0;  // the latest node so far whose nest has written an input
  bool is_begun = false;
  for (const auto& step : schedule.steps) {
    if (const auto* call = std::get_if<ExternCall>(&step)) {
      if (is_begun && call->node < written) return false;
      continue;
    }
    for (const Nest& nest : std::get<Group>(step).nests) {
      if (writes_input(schedule.program, nest)) {
        is_begun = true;
        written = std::max(written, nest.origins.empty() ? UINT32_MAX : nest.origins.back());
      } else if (is_begun && may_stop(nest) && (nest.origins.empty() || nest.origins.front() < written)) {
        return false;
      }
    }
    // If the group has outer points, some points of a nest run before some points of an earlier nest.
    const std::vector<Nest>& nests = std::get<Group>(step).nests;
    const bool writes =
        std::any_of(nests.begin(), nests.end(), [&](const Nest& nest) { return writes_input(schedule.program, nest); });
    const bool may_fail = std::any_of(nests.begin(), nests.end(), [&](const Nest& nest) {
      return may_stop(nest) && !writes_input(schedule.program, nest);
    });
    if (writes && may_fail && std::get<Group>(step).outer != 0) return false;
  }
  return true;
}

}  // namespace framejit::inductor
