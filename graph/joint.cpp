// graph/joint.cpp — what a recorded joint graph says of eager's formulas.
#include "graph/joint.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/node_values.h"

namespace framejit::graph {
namespace {

using Set = std::vector<bool>;

void add(Set& to, const Set& from) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = to[i] || from[i];
}

// The engine adds up gradients. That is not a formula.
bool is_sum(const Node& node) { return node.op->is(KnownOp::add_tensor) || node.op->is(KnownOp::add_in_place); }

// Whether a gradient of one group leads to a root of the other, through further groups or not.
bool leads_to(uint32_t from, uint32_t to, const std::vector<uint32_t>& group, const std::vector<Set>& leads) {
  std::vector<uint32_t> open{from};
  Set met(group.size());
  met[from] = true;
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    for (size_t r = 0; r < group.size(); ++r)
      for (size_t s = 0; group[r] == at && s < group.size(); ++s) {
        if (!leads[r][s]) continue;
        if (group[s] == to) return true;
        if (!met[group[s]]) open.push_back(group[s]);
        met[group[s]] = true;
      }
  }
  return false;
}

// Groups roots that share formulas, because eager runs each formula once, with the sum of the gradients that arrive.
// Roots of one level come first: none is computed from another. Then come the others, unless two groups would be
// computed from each other.
std::vector<uint32_t> grouped(const std::vector<uint32_t>& levels, const std::vector<Set>& shared,
                              const std::vector<Set>& leads) {
  std::vector<uint32_t> group(levels.size());
  for (uint32_t r = 0; r < group.size(); ++r) group[r] = r;
  for (const bool one_level : {true, false})
    for (size_t r = 0; r < group.size(); ++r)
      for (size_t s = 0; s < group.size(); ++s) {
        const auto [low, high] = std::minmax(group[r], group[s]);
        if (!shared[r][s] || low == high || (one_level && levels[r] != levels[s])) continue;
        if (!one_level && (leads_to(low, high, group, leads) || leads_to(high, low, group, leads))) continue;
        std::replace(group.begin(), group.end(), uint32_t{high}, uint32_t{low});
      }
  return group;
}

// Per root: the roots that it is computed from. depends: per value, the tangents that it depends on.
std::vector<Set> roots_led_to(const Graph& recorded, const JointLayout& layout, const std::vector<Set>& depends) {
  const size_t roots = layout.roots.size();
  std::vector<Set> leads(roots, Set(roots));
  for (size_t g = 0; g < layout.gradients.size(); ++g) {
    if (layout.gradients[g].of != GradientOf::kRoot) continue;
    const Set& on = depends[index_of(recorded.outputs[layout.forward_outputs + g])];
    for (size_t r = 0; r < roots; ++r) {
      const bool gives_zeros = g < layout.reaches[r].size() && layout.reaches[r][g];
      if ((r < on.size() && on[r]) || gives_zeros) leads[r][layout.gradients[g].index] = true;
    }
  }
  return leads;
}

// A root has a higher level than the roots that are computed from it.
std::vector<uint32_t> levels_of_roots(const std::vector<Set>& leads) {
  std::vector<uint32_t> levels(leads.size());
  for (size_t round = 0; round < leads.size(); ++round)
    for (size_t r = 0; r < leads.size(); ++r)
      for (size_t s = 0; s < leads.size(); ++s)
        if (leads[r][s]) levels[s] = std::max(levels[s], levels[r] + 1);
  return levels;
}

// reads: per recorded node, the storages of the forward that it reads. Holders whose versions are already known add
// their storages to `kept`.
void describe_holders(const Graph& recorded, const std::vector<std::vector<uint32_t>>& reads, JointLayout& layout,
                      std::vector<Set>& kept) {
  std::map<uint32_t, std::vector<Saved>> in_storage;
  const auto storage_of = [&](const Saved& saved) {
    const ValueId v = (saved.of == Saved::kInput ? recorded.inputs : recorded.outputs)[saved.index];
    return v == kNoValue ? recorded.values.size() : recorded.values[index_of(v)].storage;
  };
  for (const auto& [of, count] :
       {std::pair(Saved::kInput, layout.forward_inputs), {Saved::kOutput, layout.forward_outputs}})
    for (uint32_t i = 0; i < count; ++i) in_storage[storage_of({of, i})].push_back({of, i});
  for (Holder& holder : layout.holders) {
    for (const Saved& saved : holder.versions) {
      Set& by = kept[storage_of(saved)];
      by.resize(layout.roots.size());
      add(by, holder.roots);
    }
    std::set<uint32_t> storages;
    for (size_t i = holder.first_op; i < holder.end_op; ++i) storages.insert(reads[i].begin(), reads[i].end());
    for (uint32_t storage : storages)
      if (const auto at = in_storage.find(storage); at != in_storage.end())
        holder.versions.insert(holder.versions.end(), at->second.begin(), at->second.end());
    holder.holds = holder.holds || !storages.empty();
  }
  std::erase_if(layout.holders, [](const Holder& holder) { return !holder.holds; });
}

// kept: per storage, for which roots a formula keeps it.
void describe_keepers(const Graph& recorded, const std::vector<Set>& kept, JointLayout& layout) {
  const size_t roots = layout.roots.size();
  const auto describe = [&](ValueId v, std::vector<bool>& keeps, std::vector<Set>& keepers) {
    const Set by = v == kNoValue ? Set() : kept[recorded.values[index_of(v)].storage];
    keeps.push_back(!by.empty());
    keepers.push_back(by.empty() ? Set(roots) : by);
  };
  layout.keeps_input.clear();
  layout.keeps_output.clear();
  layout.input_keepers.clear();
  layout.output_keepers.clear();
  for (size_t i = 0; i < layout.forward_inputs; ++i)
    describe(recorded.inputs[i], layout.keeps_input, layout.input_keepers);
  for (size_t i = 0; i < layout.forward_outputs; ++i)
    describe(recorded.outputs[i], layout.keeps_output, layout.output_keepers);
}

}  // namespace

void describe_joint(const Graph& recorded, JointLayout& layout) {
  const size_t roots = layout.roots.size();
  std::vector<Set> depends(recorded.values.size());  // on which tangents; empty: a value of the forward
  for (size_t r = 0; r < roots; ++r) {
    Set& on = depends[index_of(recorded.inputs[layout.forward_inputs + r])];
    on.resize(roots);
    on[r] = true;
  }
  std::vector<Set> kept(recorded.values.size());  // per storage: for which roots
  std::map<ValueId, std::vector<uint32_t>> made_of;  // value of a formula -> storages; made from the forward alone
  std::vector<Set> shared(roots, Set(roots));
  std::map<uint32_t, Set> written;  // per storage: the tangents that writes to it depend on
  const auto tangents_of = [&](ValueId v) {
    Set on = depends[index_of(v)];
    if (const auto at = written.find(recorded.values[index_of(v)].storage); at != written.end()) {
      on.resize(roots);
      add(on, at->second);
    }
    return on;
  };
  std::vector<std::vector<uint32_t>> reads(recorded.nodes.size());  // storages of the forward
  for (size_t i = layout.forward_nodes; i < recorded.nodes.size(); ++i) {
    const Node& node = recorded.nodes[i];
    Set on(roots);
    std::vector<uint32_t>& read = reads[i];
    for_each_value(node, [&](ValueId v) {
      if (v == kNoValue) return;
      const int32_t producer = recorded.values[index_of(v)].node;
      if (depends[index_of(v)].empty() && producer < static_cast<int32_t>(layout.forward_nodes))
        read.push_back(recorded.values[index_of(v)].storage);
      if (const auto at = made_of.find(v); at != made_of.end())
        read.insert(read.end(), at->second.begin(), at->second.end());
      add(on, tangents_of(v));
    });
    const bool is_for_any = std::find(on.begin(), on.end(), true) != on.end();
    for (uint32_t storage : read) {
      kept[storage].resize(roots);
      add(kept[storage], on);
    }
    for (ValueId v : node.results) {
      if (v == kNoValue) continue;
      depends[index_of(v)] = on;
      if (!is_for_any && !read.empty()) made_of[v] = read;
      if (!node.op->has(kMutates)) continue;
      Set& into = written[recorded.values[index_of(v)].storage];
      into.resize(roots);
      add(into, on);
    }
    for (size_t r = 0; r < roots; ++r)
      for (size_t s = 0; s < roots; ++s)
        if (on[r] && on[s] && !is_sum(node)) shared[r][s] = true;
  }
  layout.reaches.resize(roots, Set(layout.gradients.size()));
  const std::vector<Set> leads = roots_led_to(recorded, layout, depends);
  layout.groups = grouped(levels_of_roots(leads), shared, leads);
  for (size_t g = 0; g < layout.gradients.size(); ++g) {
    const Set on = tangents_of(recorded.outputs[layout.forward_outputs + g]);
    const bool depends_on_any = std::find(on.begin(), on.end(), true) != on.end();
    for (size_t r = 0; depends_on_any && r < roots; ++r) layout.reaches[r][g] = layout.reaches[r][g] || on[r];
  }
  describe_holders(recorded, reads, layout, kept);
  describe_keepers(recorded, kept, layout);
}

OutputAlias alias_in_backward(OutputAlias in_joint, const JointLayout& layout, size_t saved) {
  const bool shows_input = in_joint.kind == OutputKind::kInput || in_joint.kind == OutputKind::kViewOfInput;
  if (!shows_input || in_joint.of < layout.forward_inputs) return {};
  return {in_joint.kind, static_cast<uint32_t>(in_joint.of - layout.forward_inputs + saved)};
}

std::vector<bool> roots_that_read(const TrainingGraphs& graphs, ValueId v) {
  const Graph& recorded = *graphs.recorded;
  const size_t roots = graphs.roots.size(), first_tangent = recorded.inputs.size() - roots;
  std::vector<Set> depends(recorded.values.size(), Set(roots));  // on which tangents
  for (size_t r = 0; r < roots; ++r) depends[index_of(recorded.inputs[first_tangent + r])][r] = true;
  std::set<ValueId> made_of{v};  // values that formulas make from v without a tangent
  Set found(roots);
  for (size_t n = graphs.forward_nodes; n < recorded.nodes.size(); ++n) {
    Set on(roots);
    bool reads = false;
    for_each_value(recorded.nodes[n], [&](ValueId u) {
      if (u == kNoValue) return;
      reads = reads || made_of.contains(u);
      add(on, depends[index_of(u)]);
    });
    if (reads) add(found, on);
    const bool is_for_any = std::find(on.begin(), on.end(), true) != on.end();
    for (ValueId made : recorded.nodes[n].results) {
      if (made == kNoValue) continue;
      depends[index_of(made)] = on;
      if (reads && !is_for_any) made_of.insert(made);
    }
  }
  return found;
}

}  // namespace framejit::graph
