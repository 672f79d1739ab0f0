#include "graph/lost_values.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "graph/graph_builder.h"
#include "graph/node_values.h"
#include "graph/op_lists.h"
#include "graph/passes/partition.h"
#include "graph/passes/pipeline.h"

namespace framejit::graph {
namespace {

constexpr uint32_t kNeedsContents = kMutates | kChecksData | kDataDependent;

// Per node of the recorded joint graph: whether it is a formula that runs for the given gradients.
std::vector<bool> formulas_that_run(const TrainingGraphs& graphs, const std::vector<bool>& given) {
  const Graph& recorded = *graphs.recorded;
  std::set<ValueId> depends, needed, silent;  // silent: depends on gradients that are not given
  const size_t first_tangent = recorded.inputs.size() - graphs.roots.size();
  for (size_t r = 0; r < graphs.roots.size(); ++r)
    (given[r] ? depends : silent).insert(recorded.inputs[first_tangent + r]);
  std::vector<bool> runs(recorded.nodes.size());
  for (size_t n = graphs.forward_nodes; n < recorded.nodes.size(); ++n) {
    bool is_silent = false;
    for_each_value(recorded.nodes[n], [&](ValueId v) {
      runs[n] = runs[n] || depends.contains(v);
      is_silent = is_silent || silent.contains(v);
    });
    for (ValueId v : recorded.nodes[n].results)
      if (runs[n] || is_silent) (runs[n] ? depends : silent).insert(v);
  }
  for (size_t n = recorded.nodes.size(); n-- > graphs.forward_nodes;) {
    const Node& node = recorded.nodes[n];
    for (ValueId v : node.results) runs[n] = runs[n] || (v != kNoValue && needed.contains(v) && !silent.contains(v));
    if (runs[n]) for_each_value(node, [&](ValueId v) { needed.insert(v); });
  }
  return runs;
}

// Joins two functional graphs of one forward into one graph, in which equal values are one value.
class Joined {
 public:
  explicit Joined(const Graph& first) : out_(first.name, /*merge=*/true) {
    out_.shapes() = first.shapes;
    for (const Line& line : first.lines) (void)out_.intern_line(line);
    for (uint32_t i = 0; i < first.opaque_count; ++i) out_.new_opaque();
    for (size_t i = 0; i < first.inputs.size(); ++i)
      inputs_.push_back(out_.add_input(first.meta(first.inputs[i]), out_.new_storage(), first.input_names[i]));
    for (ValueId v : first.constants) constants_.push_back(out_.add_constant(first.meta(v), out_.new_storage()));
  }

  // Returns the joined graph's value for each value of `graph`.
  std::map<ValueId, ValueId> add(const Graph& graph) {
    std::map<ValueId, ValueId> map{{kNoValue, kNoValue}};
    for (size_t i = 0; i < inputs_.size(); ++i) map[graph.inputs[i]] = inputs_[i];
    for (size_t i = 0; i < constants_.size(); ++i) map[graph.constants[i]] = constants_[i];
    size_t draw = 0;
    for (const Node& node : graph.nodes) {
      const std::vector<ValueId> results =
          node.op->has(kRandom) ? drawn(graph, node, map, draw++) : made(graph, node, map);
      for (size_t i = 0; i < results.size(); ++i)
        if (node.results[i] != kNoValue) map[node.results[i]] = results[i];
    }
    return map;
  }
  Graph take() { return out_.build({}); }
  ValueId input(size_t i) const { return inputs_[i]; }

 private:
  static std::vector<Arg> mapped(const Node& node, const std::map<ValueId, ValueId>& map) {
    std::vector<Arg> args;
    for (const Arg& arg : node.args) {
      args.push_back(arg);
      if (const ValueId* v = arg.get<ValueId>()) args.back() = map.at(*v);
      if (const auto* list = arg.get<std::vector<ValueId>>()) {
        std::vector<ValueId> values;
        for (ValueId v : *list) values.push_back(map.at(v));
        args.back() = std::move(values);
      }
    }
    return args;
  }

  std::vector<ValueId> made(const Graph& graph, const Node& node, const std::map<ValueId, ValueId>& map) {
    Node copy{node.op, mapped(node, map), {}, node.result_lists, 0};
    for (Arg& arg : copy.args)
      if (const ValueId* v = arg.get<ValueId>(); v != nullptr && *v == kNoValue) arg = Arg{};  // as add_node() does
    if (const std::vector<ValueId>* known = out_.find_equal(*node.op, copy.args);
        known != nullptr && has_all(*known, node.results))
      return *known;
    for (ValueId v : node.results)
      copy.results.push_back(v == kNoValue ? v : out_.new_value(graph.meta(v), out_.new_storage()));
    std::vector<ValueId> results = copy.results;
    out_.add_node(std::move(copy));
    return results;
  }
  static bool has_all(const std::vector<ValueId>& known, const std::vector<ValueId>& wanted) {
    for (size_t i = 0; i < wanted.size(); ++i)
      if (wanted[i] != kNoValue && (i >= known.size() || known[i] == kNoValue)) return false;
    return true;
  }

  // No pass drops or reorders random ops. So the n-th ones of both graphs are one draw, if they are equal.
  std::vector<ValueId> drawn(const Graph& graph, const Node& node, const std::map<ValueId, ValueId>& map, size_t draw) {
    if (draw < draws_.size()) {
      const Node& known = out_.peek().nodes[draws_[draw]];
      if (known.op == node.op && known.args == mapped(node, map) && has_all(known.results, node.results))
        return known.results;
    }
    if (draw >= draws_.size()) draws_.push_back(out_.peek().nodes.size());
    return made(graph, node, map);
  }

  GraphBuilder out_;
  std::vector<ValueId> inputs_, constants_;
  std::vector<size_t> draws_;  // nodes of the first graph
};

using HeldValues = std::map<ValueId, Saved>;

HeldValues held_values(const TrainingGraphs& graphs, const WhatIsLeft& left, const Joined& joined,
                       const std::map<ValueId, ValueId>& of_forward) {
  const Graph& forward = graphs.forward;
  HeldValues held;
  for (uint32_t i = 0; i < graphs.saved.size(); ++i) {
    if (graphs.saved[i].of != Saved::kValue) continue;
    bool is_there = false;
    for (size_t r = 0; r < left.given.size(); ++r) is_there = is_there || (left.given[r] && graphs.readers[i][r]);
    if (!is_there) continue;
    ValueId v = forward.outputs[graphs.forward_outputs + graphs.saved[i].index];
    held[of_forward.at(v)] = {Saved::kValue, i};
    if (const Node* copy = forward.maker(v, KnownOp::clone)) {
      v = *copy->args[0].get<ValueId>();
      held[of_forward.at(v)] = {Saved::kValue, i};
    }
  }
  for (uint32_t i = 0; i < graphs.forward_outputs; ++i)
    if (left.outputs[i]) held.insert({of_forward.at(forward.outputs[i]), {Saved::kOutput, i}});
  for (uint32_t i = 0; i < forward.inputs.size(); ++i) {
    const auto is_it = [i](const auto& update) { return update.first == i; };
    if (left.inputs[i] && std::none_of(forward.updates.begin(), forward.updates.end(), is_it))
      held.insert_or_assign(joined.input(i), Saved{Saved::kInput, i});
  }
  return held;
}

// The part of a graph that makes `wanted` from the held values.
Result<LostContents> part_of(const Graph& whole, const std::vector<ValueId>& wanted, const HeldValues& held) {
  const auto is_constant = [&](ValueId v) {
    return std::find(whole.constants.begin(), whole.constants.end(), v) != whole.constants.end();
  };
  std::set<ValueId> needed(wanted.begin(), wanted.end());
  std::vector<bool> runs(whole.nodes.size());
  for (size_t n = whole.nodes.size(); n-- > 0;) {
    for (ValueId v : whole.nodes[n].results) runs[n] = runs[n] || (needed.contains(v) && !held.contains(v));
    if (runs[n]) for_each_value(whole.nodes[n], [&](ValueId v) { needed.insert(v); });
    if (runs[n] && (whole.nodes[n].op->flags & kRunsOnce) != 0)
      return Error{Reason::no_backward, "a value that " + whole.nodes[n].op->name + " made is lost"};
  }
  LostContents made;
  GraphBuilder out(whole.name);
  out.shapes() = whole.shapes;
  for (uint32_t i = 0; i < whole.opaque_count; ++i) out.new_opaque();
  std::map<ValueId, ValueId> map{{kNoValue, kNoValue}};
  for (ValueId v : needed) {
    if (const auto at = held.find(v); at != held.end()) {
      map[v] = out.add_input(whole.meta(v), out.new_storage(), "held " + std::to_string(made.held.size()));
      made.held.push_back(at->second);
    } else if (v != kNoValue && whole.values[index_of(v)].node < 0 && !is_constant(v)) {
      return Error{Reason::no_backward, "a value that was computed from an input is lost, and the input is gone"};
    }
  }
  for (ValueId v : whole.constants) map[v] = out.add_constant(whole.meta(v), out.new_storage());
  const auto mapped = [&](ValueId v) { return map.at(v); };
  for (size_t n = 0; n < whole.nodes.size(); ++n) {
    if (!runs[n]) continue;
    Node node = whole.nodes[n];
    node.line = 0;
    for (Arg& arg : node.args) {
      if (const ValueId* v = arg.get<ValueId>()) arg = mapped(*v);
      if (const auto* list = arg.get<std::vector<ValueId>>()) {
        std::vector<ValueId> values(list->size());
        std::transform(list->begin(), list->end(), values.begin(), mapped);
        arg = std::move(values);
      }
    }
    for (ValueId& v : node.results) {
      if (v == kNoValue) continue;
      const ValueId result = out.new_value(whole.meta(v), out.new_storage());
      map.insert({v, result});  // does not replace a held value
      v = result;
    }
    out.add_node(std::move(node));
  }
  std::vector<ValueId> outputs(wanted.size());
  std::transform(wanted.begin(), wanted.end(), outputs.begin(), mapped);
  std::vector<OutputAlias> aliases(outputs.size());
  made.graph = out.build(std::move(outputs), std::move(aliases));
  return made;
}

}  // namespace

Result<std::vector<ValueId>> lost_values(const TrainingGraphs& graphs, const WhatIsLeft& left) {
  const Graph& recorded = *graphs.recorded;
  std::set<uint32_t> unknown;  // storages
  for (size_t i = 0; i < left.missing.size(); ++i)
    if (left.missing[i]) unknown.insert(recorded.values[index_of(recorded.inputs[i])].storage);
  std::vector<ValueId> lost;
  if (unknown.empty()) return lost;
  const auto is_unknown = [&](ValueId v) {
    return v != kNoValue && unknown.contains(recorded.values[index_of(v)].storage);
  };
  for (size_t n = 0; n < graphs.forward_nodes; ++n) {
    const Node& node = recorded.nodes[n];
    if (is_in(OpList::of_shapes, node.op->name)) continue;
    bool reads_unknown = false;
    for_each_value(node, [&](ValueId v) { reads_unknown = reads_unknown || is_unknown(v); });
    if (!reads_unknown) continue;
    if ((node.op->flags & kNeedsContents) != 0)
      return Error{Reason::no_backward, node.op->name + " needs the contents of an input that is gone"};
    for (ValueId v : node.results)
      if (v != kNoValue) unknown.insert(recorded.values[index_of(v)].storage);
  }
  const std::vector<bool> runs = formulas_that_run(graphs, left.given);
  std::set<ValueId> seen;
  for (size_t n = graphs.forward_nodes; n < recorded.nodes.size(); ++n)
    if (runs[n])
      for_each_value(recorded.nodes[n], [&](ValueId v) {
        const bool is_of_forward =
            v != kNoValue && recorded.values[index_of(v)].node < static_cast<int32_t>(graphs.forward_nodes);
        if (is_of_forward && is_unknown(v) && seen.insert(v).second) lost.push_back(v);
      });
  return lost;
}

Result<LostContents> lost_contents(const TrainingGraphs& graphs, const WhatIsLeft& left, Graph values) {
  values.updates.clear();
  values.output_aliases.assign(values.outputs.size(), OutputAlias{});
  FJ_TRY(values, run_pipeline(std::move(values), graphs.is_decomposed));
  if (std::optional<Graph> narrow = narrow_masks(values)) values = std::move(*narrow);  // as in the forward
  Joined joined(graphs.forward);
  const std::map<ValueId, ValueId> of_forward = joined.add(graphs.forward), of_values = joined.add(values);
  std::vector<ValueId> wanted;
  for (ValueId v : values.outputs) wanted.push_back(of_values.at(v));
  const HeldValues held = held_values(graphs, left, joined, of_forward);
  return part_of(joined.take(), wanted, held);
}

}  // namespace framejit::graph
