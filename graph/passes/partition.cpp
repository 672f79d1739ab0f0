// graph/passes/partition.cpp — which values a forward saves for its backward, and the two graphs that follow.
//
// The backward needs values that do not depend on tangents. Each is either saved by the forward or computed again from
// what is saved. That is a minimum cut: a value is two vertices, before and after the choice to save it, and the edge
// between them weighs the bytes that it takes. Values that the forward has in any case (inputs, results of products and
// of random ops) are on the first side; what the backward reads is on the second. A value is saved where the cut goes
// through it.
//
// Bytes are not the only cost. Saving a value inside a fused kernel costs a write, saving one between kernels does not.
// If a value is far before the op that reads it, the ops in between must run again. The weights of edges include both.
// So of two cuts with about the same bytes, the one with less work is taken.
//
// Values inside a checkpoint of the program are computed again, even products. Values that a checkpoint passes on count
// as values that the forward has.
//
// Inputs and outputs that eager's formulas keep cost next to nothing. The program may write to the others between
// forward and backward, so they are copied if they are saved.
#include "graph/passes/partition.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "graph/graph_builder.h"
#include "graph/minimum_cut.h"
#include "graph/node_values.h"
#include "graph/op_lists.h"
#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"
#include "runtime/base/log.h"

namespace framejit::graph {
namespace {

constexpr int64_t kNeverCut = std::numeric_limits<int64_t>::max() / 4;
constexpr int64_t kWriteWeight = 2;  // of a value that no memory would hold otherwise
constexpr int64_t kFarthest = 8;  // in ops, between a value and its reader: a greater distance costs no more

bool is_factory(const Node& node) {
  bool has_tensor = false;
  for_each_value(node, [&](ValueId v) { has_tensor = has_tensor || v != kNoValue; });
  return !has_tensor;
}

// An integer that is divided by zero is an error.
bool may_fail(const Graph& graph, const Node& node) {
  if (node.op->has(kChecksData)) return true;
  return node.op->has(kDivides) && !(node.results.size() == 1 && is_float(graph.meta(node.results[0]).dtype));
}

// Whether it may run a second time, at whatever cost.
bool is_repeatable(const Node& node) { return (node.op->flags & kRunsOnce) == 0; }

// Computed again in the kernels of the backward at next to no cost: no product, no reduction, no draw.
bool is_cheap(const Graph& graph, const Node& node) {
  if (!is_repeatable(node) || node.results.size() != 1 || may_fail(graph, node)) return false;
  if (node.op->has(kView) || node.op->has(kPointwise) || is_factory(node)) return true;
  return is_in(OpList::moves_elements, node.op->name);
}

class Partition {
 public:
  Partition(const Graph& joint, const JointLayout& layout, int64_t budget)
      : joint_(joint),
        layout_(layout),
        budget_(budget),
        depends_(joint.values.size()),
        rank_(joint.values.size(), -1) {}

  Result<TrainingGraphs> run() {
    find_dependent();
    find_boundaries();
    for (;;) {
      effort_ = Effort::kUsual;
      find_needed();
      choose();
      FJ_TRY(TrainingGraphs made, cut());
      if (!reads_unversioned(made)) return made;
    }
  }

 private:
  Result<TrainingGraphs> cut() const {
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
        made.input_keepers.push_back(keepers(layout_.input_keepers, i));
      }
    for (uint32_t i = 0; i < layout_.keeps_output.size(); ++i)
      if (layout_.keeps_output[i]) {
        made.kept_outputs.push_back(i);
        made.output_keepers.push_back(keepers(layout_.output_keepers, i));
      }
    FJ_TRY_VOID(make_forward(made));
    FJ_TRY_VOID(make_backward(made));
    made.reaches = layout_.reaches;
    find_readers(made);
    return made;
  }

  const TensorMeta& meta(ValueId v) const { return joint_.meta(v); }
  bool depends(ValueId v) const { return v != kNoValue && depends_[index_of(v)]; }
  bool reads_dependent(const Node& node) const {
    bool any = false;
    for_each_value(node, [&](ValueId v) { any = any || depends(v); });
    return any;
  }

  // Finds the values that depend on tangents.
  void find_dependent() {
    for (size_t i = layout_.forward_inputs; i < joint_.inputs.size(); ++i) depends_[index_of(joint_.inputs[i])] = true;
    for (const Node& node : joint_.nodes) {
      const bool any = reads_dependent(node);
      for (ValueId v : node.results)
        if (v != kNoValue && any) depends_[index_of(v)] = true;
    }
  }

  uint32_t checkpoint_of(const Node& node) const { return joint_.lines[node.line].checkpoint; }

  // Values of a checkpoint that the program reads after it: they are saved, as eager saves them.
  void find_boundaries() {
    for (const Node& node : joint_.nodes) {
      const bool is_backward =
          std::any_of(node.results.begin(), node.results.end(), [&](ValueId v) { return depends(v); });
      for_each_value(node, [&](ValueId v) {
        const Node* made_by = joint_.maker(v);
        if (!is_backward && made_by != nullptr && checkpoint_of(*made_by) != 0 &&
            checkpoint_of(*made_by) != checkpoint_of(node))
          boundaries_.insert(v);
      });
    }
    for (size_t i = 0; i < layout_.forward_outputs; ++i) boundaries_.insert(joint_.outputs[i]);
    for (const auto& [input, v] : joint_.updates) boundaries_.insert(v);
  }
  // Whether it lies inside a checkpoint. Then it is computed again, at whatever cost.
  bool is_checkpointed(ValueId v) const {
    const Node* node = joint_.maker(v);
    return node != nullptr && checkpoint_of(*node) != 0 && !boundaries_.contains(v) && is_repeatable(*node);
  }
  // Whether the backward may compute it again.
  bool is_again(ValueId v) const {
    const Node* node = joint_.maker(v);
    if (node == nullptr) return false;
    if (checkpoint_of(*node) != 0) return is_checkpointed(v);
    return is_cheap(joint_, *node) ||
           (effort_ == Effort::kRepeatRowPasses && is_in(OpList::row_passes, node->op->name));
  }

  // Finds the values that the backward reads or could compute again, and how far they are from the op that reads them.
  void find_needed() {
    std::fill(rank_.begin(), rank_.end(), -1);
    const auto need = [&](ValueId v, int64_t rank) {
      if (v == kNoValue || depends(v)) return;
      int64_t& known = rank_[index_of(v)];
      if (known < 0 || known > rank) known = rank;
    };
    for (size_t i = layout_.forward_outputs; i < joint_.outputs.size(); ++i) need(joint_.outputs[i], 0), mark_read(i);
    for (auto at = joint_.nodes.rbegin(); at != joint_.nodes.rend(); ++at) {
      bool is_backward = false;
      int64_t rank = -1;
      for (ValueId v : at->results) {
        is_backward = is_backward || depends(v);
        if (v != kNoValue && rank_[index_of(v)] >= 0 && is_again(v)) rank = std::max(rank, rank_[index_of(v)]);
      }
      if (is_backward) {
        for_each_value(*at, [&](ValueId v) {
          need(v, 0);
          if (v != kNoValue && !depends(v)) read_.insert(v);
        });
      } else if (rank >= 0) {
        const bool is_formula = at->line == 0 && joint_.nodes[0].line != 0;  // ops of the program have a line
        for_each_value(*at, [&](ValueId v) { need(v, rank + (at->op->has(kView) || is_formula ? 0 : 1)); });
      }
    }
  }
  void mark_read(size_t output) {
    if (const ValueId v = joint_.outputs[output]; v != kNoValue && !depends(v)) read_.insert(v);
  }

  bool is_constant(ValueId v) const {
    return std::find(joint_.constants.begin(), joint_.constants.end(), v) != joint_.constants.end();
  }
  std::optional<uint32_t> input_of(ValueId v) const {
    for (uint32_t i = 0; i < layout_.forward_inputs; ++i)
      if (joint_.inputs[i] == v) return i;
    return std::nullopt;
  }
  bool is_updated(uint32_t input) const {
    return std::any_of(joint_.updates.begin(), joint_.updates.end(), [&](const auto& u) { return u.first == input; });
  }
  // Whether it can be saved without a copy: a write before the backward is an error, or impossible.
  bool is_kept_input(uint32_t input) const {
    return input < layout_.keeps_input.size() && layout_.keeps_input[input] && !is_updated(input) &&
           !unversioned_.contains(joint_.inputs[input]);
  }
  // Whether eager checks its version. If the new value of an input has a history, it is checked as an output instead.
  bool is_versioned_input(uint32_t input) const {
    const auto is_new_value = [&](uint32_t root) {
      const OutputAlias& alias = joint_.output_aliases[root];
      return alias.kind == OutputKind::kInput && alias.of == input;
    };
    return layout_.keeps_input[input] &&
           (!is_updated(input) || std::none_of(layout_.roots.begin(), layout_.roots.end(), is_new_value));
  }
  // Per root; all roots if the layout does not say.
  std::vector<bool> keepers(const std::vector<std::vector<bool>>& of, uint32_t i) const {
    return i < of.size() ? of[i] : std::vector<bool>(layout_.roots.size(), true);
  }
  std::optional<uint32_t> kept_output_of(ValueId v) const {
    if (unversioned_.contains(v)) return std::nullopt;
    for (uint32_t i = 0; i < layout_.forward_outputs; ++i)
      if (joint_.outputs[i] == v && i < layout_.keeps_output.size() && layout_.keeps_output[i] &&
          joint_.output_aliases[i].kind == OutputKind::kFresh)
        return i;
    return std::nullopt;
  }
  // Whether the program may write to its memory, because an output or the new value of an input lies in it.
  bool is_exposed(ValueId v) const {
    const auto shares = [&](ValueId other) { return other != kNoValue && memory_of(joint_, other) == v; };
    for (size_t i = 0; i < layout_.forward_outputs; ++i)
      if (shares(joint_.outputs[i])) return true;
    return std::any_of(joint_.updates.begin(), joint_.updates.end(), [&](const auto& u) { return shares(u.second); });
  }

  int64_t bytes_of(ValueId v) const {
    return std::max<int64_t>(joint_.shapes.hint(meta(v).numel()), 0) *
           static_cast<int64_t>(row_of(meta(v).dtype).bytes);
  }

  // The weight of saving it.
  int64_t weight_of(ValueId v) const {
    const Node* node = joint_.maker(v);
    if (is_checkpointed(v)) return kNeverCut;
    if (node != nullptr && node->op->has(kView) && is_again(v)) return kNeverCut;  // its base is saved instead
    if (const auto input = input_of(v)) return is_kept_input(*input) ? 1 : 1 + bytes_of(v) * kWriteWeight;
    if (kept_output_of(v)) return 1;
    int64_t weight = 1 + bytes_of(v);
    if (effort_ != Effort::kUsual) return weight;
    const bool is_inside =
        node != nullptr && is_cheap(joint_, *node) && !is_exposed(v) && !library_operands_.contains(v);
    if (is_inside || is_exposed(v)) weight *= kWriteWeight;
    return weight + weight * std::min(rank_[index_of(v)], kFarthest) / kFarthest;
  }

  // Per value two vertices: before and after the choice to save it.
  size_t before(ValueId v) const { return 2 * vertex_.at(v); }
  size_t after(ValueId v) const { return 2 * vertex_.at(v) + 1; }
  bool takes_part(ValueId v) const { return v != kNoValue && vertex_.contains(v); }

  // Whether saving it takes memory: no input or output holds it anyway.
  bool is_own(ValueId v) const {
    const auto input = input_of(v);
    return !(input && is_kept_input(*input)) && !kept_output_of(v);
  }
  int64_t saved_bytes() const {
    int64_t bytes = 0;
    for (ValueId v : saved_) bytes += is_own(v) ? bytes_of(v) : 0;
    return bytes;
  }
  // The bytes of the values that eager's formulas read.
  int64_t eager_bytes() const {
    std::set<ValueId> memory;
    for (ValueId v : read_)
      if (const ValueId root = memory_of(joint_, v); !is_constant(root) && !input_of(root) && is_own(v))
        memory.insert(root);
    int64_t bytes = 0;
    for (ValueId v : memory) bytes += bytes_of(v);
    return bytes;
  }

  // If the usual cut exceeds the budget, only bytes count. If that cut exceeds it too, row passes may run again.
  void choose() {
    constexpr int64_t kPercent = 100;
    for (const Node& node : joint_.nodes)
      if (!is_cheap(joint_, node))
        for_each_value(node, [&](ValueId v) {
          if (v != kNoValue) library_operands_.insert(v);
        });
    save_cut();
    for (const Effort more : {Effort::kFewestBytes, Effort::kRepeatRowPasses}) {
      if (budget_ >= kPercent || saved_bytes() <= eager_bytes() * budget_ / kPercent) return;
      effort_ = more;
      find_needed();
      save_cut();
    }
    if (budget_ == 0) save_leaves();
  }

  void save_cut() {
    vertex_.clear();
    saved_.clear();
    for (size_t i = 0; i < joint_.values.size(); ++i)
      if (const ValueId v{static_cast<uint32_t>(i)}; rank_[i] >= 0 && !is_constant(v))
        vertex_.emplace(v, vertex_.size());
    MinimumCut cut(2 * vertex_.size());
    for (const auto& [v, vertex] : vertex_) {
      if (!is_again(v)) cut.prefer(before(v), kNeverCut);
      else
        for_each_value(*joint_.maker(v), [&](ValueId u) {
          if (takes_part(u)) cut.precede(after(u), before(v), kNeverCut);
        });
      const int64_t weight = weight_of(v);
      cut.precede(before(v), after(v), weight == kNeverCut ? kNeverCut : std::max<int64_t>(1, weight));
      if (read_.contains(v)) cut.prefer(after(v), -kNeverCut);
    }
    const std::vector<bool> first = cut.on_first_side();
    for (const auto& [v, vertex] : vertex_)
      if (first[before(v)] && !first[after(v)]) saved_.insert(v);
  }

  // Saves only what must not be computed again.
  void save_leaves() {
    saved_.clear();
    for (const auto& [v, vertex] : vertex_)
      if (!is_again(v)) saved_.insert(v);
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
      if (!is_needed && !(has_effect && reads_dependent(node) == is_backward)) continue;
      nodes[i] = true;
      for_each_value(node, [&](ValueId v) {
        if (v != kNoValue && !given.contains(v)) needed[index_of(v)] = true;
      });
    }
    return nodes;
  }

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

  Result<void> make_forward(TrainingGraphs& made) const {
    std::vector<ValueId> wanted(joint_.outputs.begin(),
                                joint_.outputs.begin() + static_cast<ptrdiff_t>(layout_.forward_outputs));
    for (const auto& [input, v] : joint_.updates) wanted.push_back(v);
    wanted.insert(wanted.end(), saved_.begin(), saved_.end());
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
    uint32_t values = 0;
    int64_t bytes = 0;
    for (ValueId v : saved_) {
      if (const auto input = input_of(v); input && is_kept_input(*input)) {
        made.saved.push_back({Saved::kInput, *input});
      } else if (const auto output = kept_output_of(v)) {
        made.saved.push_back({Saved::kOutput, *output});
      } else {
        made.saved.push_back({Saved::kValue, values++});
        const bool is_copied = input_of(v).has_value() || is_exposed(v);
        outputs.push_back(is_copied ? cut.out().emit("clone", {cut.get(v), Arg{}}, meta(v)) : cut.get(v));
        aliases.emplace_back();
        bytes += bytes_of(v);
      }
    }
    std::vector<std::pair<uint32_t, ValueId>> updates;
    for (const auto& [input, v] : joint_.updates) updates.emplace_back(input, cut.get(v));
    made.forward = cut.out().build(std::move(outputs), std::move(aliases), std::move(updates));
    log_cut(made, bytes);
    return {};
  }

  void log_cut(const TrainingGraphs& made, int64_t bytes) const {
    if (!log::enabled(log::Kind::Partition)) return;
    const std::vector<bool> nodes = backward_nodes();
    size_t again = 0;
    for (size_t i = 0; i < nodes.size(); ++i)
      again += nodes[i] && !std::any_of(joint_.nodes[i].results.begin(), joint_.nodes[i].results.end(),
                                        [&](ValueId v) { return depends(v); });
    std::string text;
    for (ValueId v : saved_) text += text_of_saved(v) + "\n";
    log::emit(log::Kind::Partition, "",
              {{"graph", joint_.name},
               {"saved", std::to_string(made.saved.size())},
               {"bytes", std::to_string(bytes)},
               {"again", std::to_string(again)}},
              text);
  }
  std::string text_of_saved(ValueId v) const {
    const Node* node = joint_.maker(v);
    std::string text = text_of(meta(v)) + " of ";
    if (const auto input = input_of(v)) text += "input " + joint_.input_names[*input];
    else text += node != nullptr ? node->op->name : "a constant";
    if (node != nullptr && node->line != 0)
      text += "  # " + joint_.lines[node->line].file + ":" + std::to_string(joint_.lines[node->line].number);
    return text;
  }

  std::vector<bool> backward_nodes() const {
    std::set<ValueId> given(saved_);
    for (size_t i = layout_.forward_inputs; i < joint_.inputs.size(); ++i) given.insert(joint_.inputs[i]);
    const std::vector<ValueId> gradients(joint_.outputs.begin() + static_cast<ptrdiff_t>(layout_.forward_outputs),
                                         joint_.outputs.end());
    return nodes_for(gradients, given, true);
  }

  // Eager checks the version of a kept tensor only in backwards whose formulas keep it. Before another backward, the
  // program may write to the tensor. What such a backward reads must be copied, and the next cut takes that into
  // account.
  bool reads_unversioned(const TrainingGraphs& made) {
    const size_t before = unversioned_.size();
    for (size_t i = 0; i < made.saved.size(); ++i) {
      const auto [of, index] = made.saved[i];
      if (of == Saved::kValue) continue;
      const bool is_input = of == Saved::kInput;
      const std::vector<bool> compares = keepers(is_input ? layout_.input_keepers : layout_.output_keepers, index);
      for (size_t r = 0; r < compares.size(); ++r)
        if (made.readers[i][r] && !compares[r]) unversioned_.insert((is_input ? joint_.inputs : joint_.outputs)[index]);
    }
    return unversioned_.size() > before;
  }

  // Finds the tangents and gradients that need each saved value. Adds to `reaches` what the backward itself shows.
  static void find_readers(TrainingGraphs& made) {
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
    const bool is_lazy = std::ranges::any_of(joint_.nodes, [&](const Node& n) { return checkpoint_of(n) != 0; });
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
    for (ValueId v : saved_) cut.add_input(v, "saved " + text_of_saved(v));
    for (size_t i = layout_.forward_inputs; i < joint_.inputs.size(); ++i)
      cut.add_input(joint_.inputs[i], joint_.input_names[i]);
    cut.add_constants();
    for (size_t i : backward_order(backward_nodes())) cut.copy(joint_.nodes[i]);
    std::vector<ValueId> outputs;
    std::vector<OutputAlias> aliases;
    for (size_t i = layout_.forward_outputs; i < joint_.outputs.size(); ++i) {
      outputs.push_back(cut.get(joint_.outputs[i]));
      aliases.push_back(alias_in_backward(joint_.output_aliases[i], layout_, saved_.size()));
    }
    made.backward = cut.out().build(std::move(outputs), std::move(aliases));
    return {};
  }

  const Graph& joint_;
  const JointLayout& layout_;
  const int64_t budget_;  // percent
  enum class Effort : uint8_t { kUsual, kFewestBytes, kRepeatRowPasses } effort_ = Effort::kUsual;
  std::vector<bool> depends_;
  std::vector<int64_t> rank_;  // the distance to its reader; -1: the backward does not need it
  std::set<ValueId> read_;  // by ops of the backward, or gradients themselves
  std::set<ValueId> library_operands_;
  std::set<ValueId> boundaries_;
  std::map<ValueId, size_t> vertex_;
  std::set<ValueId> saved_;
  std::set<ValueId> unversioned_;  // kept inputs and outputs that a backward reads without checking their versions
};

}  // namespace

Result<TrainingGraphs> partition(const Graph& joint, const JointLayout& layout, int64_t budget) {
  const std::optional<Graph> narrow = narrow_masks(joint);
  return Partition(narrow ? *narrow : joint, layout, budget).run();
}

}  // namespace framejit::graph
