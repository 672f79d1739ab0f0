// graph/passes/partition.cpp — the forward and the backward that follow from a choice of what is saved.
#include "graph/passes/partition.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "graph/graph_builder.h"
#include "graph/node_values.h"
#include "graph/passes/passes.h"
#include "graph/passes/saved_values.h"
#include "runtime/base/log.h"

namespace framejit::graph {
namespace {

// A new graph of some of the nodes. Constants, opaque arguments, lines and symbols keep their numbers.
class Cut {
 public:
  Cut(const Graph& from, const std::string& name) : from_(from), out_(name) {
    out_.shapes() = from.shapes;
    for (const Line& line : from.lines) lines_.push_back(out_.intern_line(line));
    for (uint32_t i = 0; i < from.opaque_count; ++i) out_.new_opaque();
  }
  void add_input(ValueId v, const std::string& name) {
    map_[v] = out_.add_input(from_.meta(v), out_.new_storage(), name);
  }
  void add_constants() {
    for (ValueId v : from_.constants) map_[v] = out_.add_constant(from_.meta(v), out_.new_storage());
  }
  void copy(const Node& node) {
    Node made{node.op, {}, {}, node.result_lists, 0};
    out_.set_line(node.line < lines_.size() ? lines_[node.line] : 0);
    for (const Arg& arg : node.args) made.args.push_back(mapped(arg));
    for (ValueId v : node.results) {
      if (v != kNoValue) map_[v] = out_.new_value(from_.meta(v), out_.new_storage());
      made.results.push_back(v == kNoValue ? kNoValue : map_.at(v));
    }
    out_.add_node(std::move(made));
  }
  ValueId get(ValueId v) const {
    if (v == kNoValue) return v;
    const auto at = map_.find(v);
    FJ_ASSERT(at != map_.end(), "a part of a joint graph reads a value that it does not have");
    return at->second;
  }
  GraphBuilder& out() { return out_; }

 private:
  Arg mapped(const Arg& arg) const {
    if (const ValueId* v = arg.get<ValueId>()) return get(*v);
    if (const auto* list = arg.get<std::vector<ValueId>>()) {
      std::vector<ValueId> values;
      for (ValueId v : *list) values.push_back(get(v));
      return values;
    }
    return arg;
  }
  const Graph& from_;
  GraphBuilder out_;
  std::map<ValueId, ValueId> map_;
  std::vector<LineId> lines_;
};

// Per root; all roots if the layout does not say.
std::vector<bool> keepers(const JointLayout& layout, const std::vector<std::vector<bool>>& of, uint32_t i) {
  return i < of.size() ? of[i] : std::vector<bool>(layout.roots.size(), true);
}

// Finds the tangents and gradients that need each saved value. Adds to `reaches` what the backward itself shows.
void find_readers(TrainingGraphs& made) {
  const Graph& backward = made.backward;
  const size_t saved = made.saved.size(), tangents = backward.inputs.size() - saved;
  using Set = std::vector<bool>;
  std::vector<Set> on(backward.values.size(), Set(tangents)), of(backward.values.size(), Set(saved));
  for (size_t i = 0; i < saved; ++i) of[index_of(backward.inputs[i])][i] = true;
  std::vector<Set> directly = of;  // the saved values that it depends on without a tangent on the way
  for (size_t t = 0; t < tangents; ++t) on[index_of(backward.inputs[saved + t])][t] = true;
  const auto add = [](Set& to, const Set& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = to[i] || from[i];
  };
  made.readers.assign(saved, Set(tangents));
  made.gradient_readers.assign(saved, Set(backward.outputs.size()));
  for (const Node& node : backward.nodes) {
    Set node_on(tangents), node_of(saved), node_directly(saved);
    for_each_value(node, [&](ValueId v) {
      if (v == kNoValue) return;
      add(node_on, on[index_of(v)]);
      add(node_of, of[index_of(v)]);
      // If v depends on a tangent, its saved values already count as read for that tangent.
      if (std::none_of(on[index_of(v)].begin(), on[index_of(v)].end(), [](bool b) { return b; }))
        add(node_directly, directly[index_of(v)]);
    });
    for (ValueId v : node.results)
      if (v != kNoValue) on[index_of(v)] = node_on, of[index_of(v)] = node_of, directly[index_of(v)] = node_directly;
    for (size_t i = 0; i < saved; ++i)
      if (node_directly[i]) add(made.readers[i], node_on);
  }
  made.reaches.resize(tangents, Set(backward.outputs.size()));
  for (size_t g = 0; g < backward.outputs.size(); ++g) {
    if (backward.outputs[g] == kNoValue) continue;
    const size_t v = index_of(backward.outputs[g]);
    const bool is_constant = std::find(on[v].begin(), on[v].end(), true) == on[v].end();
    for (size_t i = 0; i < saved; ++i) made.gradient_readers[i][g] = of[v][i];
    for (size_t t = 0; t < tangents; ++t) {
      made.reaches[t][g] = made.reaches[t][g] || on[v][t];
      for (size_t i = 0; is_constant && made.reaches[t][g] && i < saved; ++i)
        made.readers[i][t] = made.readers[i][t] || directly[v][i];
    }
  }
}

class Partition {
 public:
  Partition(const Graph& joint, const JointLayout& layout, const SavedValues& saved)
      : joint_(joint), layout_(layout), saved_(saved) {}

  Result<TrainingGraphs> run() const {
    TrainingGraphs made;
    made.forward_outputs = layout_.forward_outputs;
    made.roots = layout_.roots;
    made.groups = layout_.groups;
    made.gradients = layout_.gradients;
    made.holders = layout_.holders;
    made.root_names = layout_.root_names;
    for (uint32_t i = 0; i < layout_.keeps_input.size(); ++i)
      if (is_versioned_input(i)) {
        made.kept_inputs.push_back(i);
        made.input_keepers.push_back(keepers(layout_, layout_.input_keepers, i));
      }
    for (uint32_t i = 0; i < layout_.keeps_output.size(); ++i)
      if (layout_.keeps_output[i]) {
        made.kept_outputs.push_back(i);
        made.output_keepers.push_back(keepers(layout_, layout_.output_keepers, i));
      }
    FJ_TRY_VOID(make_forward(made));
    FJ_TRY_VOID(make_backward(made));
    made.reaches = layout_.reaches;
    find_readers(made);
    return made;
  }

 private:
  bool depends(ValueId v) const { return v != kNoValue && saved_.depends[index_of(v)]; }

  // Whether eager checks its version. If the new value of an input has a history, it is checked as an output instead.
  bool is_versioned_input(uint32_t input) const {
    const auto is_new_value = [&](uint32_t root) {
      const OutputAlias& alias = joint_.output_aliases[root];
      return alias.kind == OutputKind::kInput && alias.of == input;
    };
    return layout_.keeps_input[input] &&
           (!is_updated(joint_, input) || std::none_of(layout_.roots.begin(), layout_.roots.end(), is_new_value));
  }

  // Nodes that make `wanted`, up to values that are given, and those that have effects in this part.
  std::vector<bool> nodes_for(const std::vector<ValueId>& wanted, const std::set<ValueId>& given,
                              bool is_backward) const {
    std::vector<bool> needed(joint_.values.size()), nodes(joint_.nodes.size());
    for (ValueId v : wanted)
      if (v != kNoValue && !given.contains(v)) needed[index_of(v)] = true;
    for (size_t i = joint_.nodes.size(); i-- > 0;) {
      const Node& node = joint_.nodes[i];
      bool is_needed = false;
      for (ValueId v : node.results) is_needed = is_needed || (v != kNoValue && needed[index_of(v)]);
      const bool has_effect = (node.op->flags & (kRandom | kSideEffect)) != 0 || may_fail(joint_, node);
      if (!is_needed && !(has_effect && reads_any(node, saved_.depends) == is_backward)) continue;
      nodes[i] = true;
      for_each_value(node, [&](ValueId v) {
        if (v != kNoValue && !given.contains(v)) needed[index_of(v)] = true;
      });
    }
    return nodes;
  }

  Result<void> make_forward(TrainingGraphs& made) const {
    std::vector<ValueId> wanted(joint_.outputs.begin(),
                                joint_.outputs.begin() + static_cast<ptrdiff_t>(layout_.forward_outputs));
    for (const auto& [input, v] : joint_.updates) wanted.push_back(v);
    for (const SavedValue& one : saved_.values) wanted.push_back(one.value);
    std::set<ValueId> given(joint_.inputs.begin(), joint_.inputs.end());
    const std::vector<bool> nodes = nodes_for(wanted, given, false);
    Cut cut(joint_, joint_.name);
    for (size_t i = 0; i < layout_.forward_inputs; ++i) cut.add_input(joint_.inputs[i], joint_.input_names[i]);
    cut.add_constants();
    for (size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i]) cut.copy(joint_.nodes[i]);
    std::vector<ValueId> outputs;
    std::vector<OutputAlias> aliases;
    for (size_t i = 0; i < layout_.forward_outputs; ++i) {
      outputs.push_back(cut.get(joint_.outputs[i]));
      aliases.push_back(joint_.output_aliases[i]);
    }
    for (const auto& [v, holder, is_copied] : saved_.values) {
      made.saved.push_back(holder);
      if (holder.of != Saved::kValue) continue;
      outputs.push_back(is_copied ? cut.out().emit("clone", {cut.get(v), Arg{}}, joint_.meta(v)) : cut.get(v));
      aliases.emplace_back();
    }
    std::vector<std::pair<uint32_t, ValueId>> updates;
    for (const auto& [input, v] : joint_.updates) updates.emplace_back(input, cut.get(v));
    made.forward = cut.out().build(std::move(outputs), std::move(aliases), std::move(updates));
    log_cut();
    return {};
  }

  void log_cut() const {
    if (!log::enabled(log::Kind::Partition)) return;
    const std::vector<bool> nodes = backward_nodes();
    size_t again = 0;
    for (size_t i = 0; i < nodes.size(); ++i)
      again += nodes[i] && !std::any_of(joint_.nodes[i].results.begin(), joint_.nodes[i].results.end(),
                                        [&](ValueId v) { return depends(v); });
    std::string text;
    for (const SavedValue& one : saved_.values) text += text_of_saved(one.value) + "\n";
    log::emit(log::Kind::Partition, "",
              {{"graph", joint_.name},
               {"saved", std::to_string(saved_.values.size())},
               {"bytes", std::to_string(saved_.bytes)},
               {"again", std::to_string(again)}},
              text);
  }
  std::string text_of_saved(ValueId v) const {
    const Node* node = joint_.maker(v);
    std::string text = text_of(joint_.meta(v)) + " of ";
    if (const auto input = input_of(joint_, layout_, v)) text += "input " + joint_.input_names[*input];
    else text += node != nullptr ? node->op->name : "a constant";
    if (node != nullptr && node->line != 0)
      text += "  # " + joint_.lines[node->line].file + ":" + std::to_string(joint_.lines[node->line].number);
    return text;
  }

  std::vector<bool> backward_nodes() const {
    std::set<ValueId> given;
    for (const SavedValue& one : saved_.values) given.insert(one.value);
    for (size_t i = layout_.forward_inputs; i < joint_.inputs.size(); ++i) given.insert(joint_.inputs[i]);
    const std::vector<ValueId> gradients(joint_.outputs.begin() + static_cast<ptrdiff_t>(layout_.forward_outputs),
                                         joint_.outputs.end());
    return nodes_for(gradients, given, true);
  }

  // The ops that a checkpoint repeats come just before their first reader, so that only one checkpoint is in memory at
  // a time.
  std::vector<size_t> backward_order(const std::vector<bool>& nodes) const {
    std::vector<size_t> order;
    std::vector<bool> is_done(nodes.size());
    std::vector<size_t> open;
    const auto add = [&](size_t node) {
      for (open.push_back(node); !open.empty();) {
        const size_t i = open.back(), before = open.size();
        for_each_value(joint_.nodes[i], [&](ValueId v) {
          const int32_t made_by = v == kNoValue ? -1 : joint_.values[index_of(v)].node;
          if (made_by >= 0 && nodes[static_cast<size_t>(made_by)] && !is_done[static_cast<size_t>(made_by)])
            open.push_back(static_cast<size_t>(made_by));
        });
        if (open.size() > before) continue;
        open.pop_back();
        if (!is_done[i]) order.push_back(i);
        is_done[i] = true;
      }
    };
    const bool is_lazy =
        std::ranges::any_of(joint_.nodes, [&](const Node& n) { return checkpoint_of(joint_, n) != 0; });
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto& results = joint_.nodes[i].results;
      const bool is_backward = std::any_of(results.begin(), results.end(), [&](ValueId v) { return depends(v); });
      if (nodes[i] && !is_done[i] && (is_backward || !is_lazy)) add(i);
    }
    for (size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i] && !is_done[i]) add(i);
    return order;
  }

  Result<void> make_backward(TrainingGraphs& made) const {
    Cut cut(joint_, joint_.name + "_backward");
    for (const SavedValue& one : saved_.values) cut.add_input(one.value, "saved " + text_of_saved(one.value));
    for (size_t i = layout_.forward_inputs; i < joint_.inputs.size(); ++i)
      cut.add_input(joint_.inputs[i], joint_.input_names[i]);
    cut.add_constants();
    for (size_t i : backward_order(backward_nodes())) cut.copy(joint_.nodes[i]);
    std::vector<ValueId> outputs;
    std::vector<OutputAlias> aliases;
    for (size_t i = layout_.forward_outputs; i < joint_.outputs.size(); ++i) {
      outputs.push_back(cut.get(joint_.outputs[i]));
      aliases.push_back(alias_in_backward(joint_.output_aliases[i], layout_, saved_.values.size()));
    }
    made.backward = cut.out().build(std::move(outputs), std::move(aliases));
    return {};
  }

  const Graph& joint_;
  const JointLayout& layout_;
  const SavedValues& saved_;
};

// Eager checks the version of a kept tensor only in backwards whose formulas keep it. Before another backward, the
// program may write to the tensor. What such a backward reads must be copied, and the next cut takes that into
// account.
bool add_unversioned(const Graph& joint, const JointLayout& layout, const TrainingGraphs& made,
                     std::set<ValueId>& unversioned) {
  const size_t before = unversioned.size();
  for (size_t i = 0; i < made.saved.size(); ++i) {
    const auto [of, index] = made.saved[i];
    if (of == Saved::kValue) continue;
    const bool is_input = of == Saved::kInput;
    const std::vector<bool> compares = keepers(layout, is_input ? layout.input_keepers : layout.output_keepers, index);
    for (size_t r = 0; r < compares.size(); ++r)
      if (made.readers[i][r] && !compares[r]) unversioned.insert((is_input ? joint.inputs : joint.outputs)[index]);
  }
  return unversioned.size() > before;
}

Result<TrainingGraphs> cut(const Graph& joint, const JointLayout& layout, int64_t budget) {
  std::set<ValueId> unversioned;
  for (;;) {
    FJ_TRY(TrainingGraphs made, Partition(joint, layout, choose_saved(joint, layout, budget, unversioned)).run());
    if (!add_unversioned(joint, layout, made, unversioned)) return made;
  }
}

}  // namespace

Result<TrainingGraphs> partition(const Graph& joint, const JointLayout& layout, int64_t budget) {
  const std::optional<Graph> narrow = narrow_masks(joint);
  return cut(narrow ? *narrow : joint, layout, budget);
}

}  // namespace framejit::graph
