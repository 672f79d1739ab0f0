// graph/passes/saved_values.cpp — a minimum cut between what the forward has and what the backward reads.
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
#include "graph/passes/saved_values.h"

#include <algorithm>
#include <limits>
#include <map>

#include "graph/minimum_cut.h"
#include "graph/op_lists.h"
#include "graph/passes/rebuild.h"

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

// Whether it may run a second time, at whatever cost.
bool is_repeatable(const Node& node) { return (node.op->flags & kRunsOnce) == 0; }

// Computed again in the kernels of the backward at next to no cost: no product, no reduction, no draw.
bool is_cheap(const Graph& graph, const Node& node) {
  if (!is_repeatable(node) || node.results.size() != 1 || may_fail(graph, node)) return false;
  if (node.op->has(kView) || node.op->has(kPointwise) || is_factory(node)) return true;
  return is_in(OpList::moves_elements, node.op->name);
}

class SaveChoice {
 public:
  SaveChoice(const Graph& joint, const JointLayout& layout, int64_t budget, const std::set<ValueId>& unversioned)
      : joint_(joint),
        layout_(layout),
        budget_(budget),
        unversioned_(unversioned),
        depends_(joint.values.size()),
        rank_(joint.values.size(), -1) {}

  SavedValues run() {
    find_dependent();
    find_boundaries();
    find_needed();
    choose();
    SavedValues made;
    uint32_t values = 0;
    for (ValueId v : saved_) {
      made.values.push_back({v, holder_of(v), false});
      SavedValue& last = made.values.back();
      if (last.holder.of != Saved::kValue) continue;
      last.holder.index = values++;
      last.is_copied = input_of(joint_, layout_, v).has_value() || is_exposed(v);
      made.bytes += bytes_of(v);
    }
    made.depends = std::move(depends_);
    return made;
  }

 private:
  const TensorMeta& meta(ValueId v) const { return joint_.meta(v); }
  bool depends(ValueId v) const { return v != kNoValue && depends_[index_of(v)]; }

  // Finds the values that depend on tangents.
  void find_dependent() {
    for (size_t i = layout_.forward_inputs; i < joint_.inputs.size(); ++i) depends_[index_of(joint_.inputs[i])] = true;
    for (const Node& node : joint_.nodes) {
      const bool any = reads_any(node, depends_);
      for (ValueId v : node.results)
        if (v != kNoValue && any) depends_[index_of(v)] = true;
    }
  }

  // Values of a checkpoint that the program reads after it: they are saved, as eager saves them.
  void find_boundaries() {
    for (const Node& node : joint_.nodes) {
      const bool is_backward =
          std::any_of(node.results.begin(), node.results.end(), [&](ValueId v) { return depends(v); });
      for_each_value(node, [&](ValueId v) {
        const Node* made_by = joint_.maker(v);
        if (!is_backward && made_by != nullptr && checkpoint_of(joint_, *made_by) != 0 &&
            checkpoint_of(joint_, *made_by) != checkpoint_of(joint_, node))
          boundaries_.insert(v);
      });
    }
    for (size_t i = 0; i < layout_.forward_outputs; ++i) boundaries_.insert(joint_.outputs[i]);
    for (const auto& [input, v] : joint_.updates) boundaries_.insert(v);
  }
  // Whether it lies inside a checkpoint. Then it is computed again, at whatever cost.
  bool is_checkpointed(ValueId v) const {
    const Node* node = joint_.maker(v);
    return node != nullptr && checkpoint_of(joint_, *node) != 0 && !boundaries_.contains(v) && is_repeatable(*node);
  }
  // Whether the backward may compute it again.
  bool is_again(ValueId v) const {
    const Node* node = joint_.maker(v);
    if (node == nullptr) return false;
    if (checkpoint_of(joint_, *node) != 0) return is_checkpointed(v);
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
  // Whether it can be saved without a copy: a write before the backward is an error, or impossible.
  bool is_kept_input(uint32_t input) const {
    return input < layout_.keeps_input.size() && layout_.keeps_input[input] && !is_updated(joint_, input) &&
           !unversioned_.contains(joint_.inputs[input]);
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
    if (const auto input = input_of(joint_, layout_, v))
      return is_kept_input(*input) ? 1 : 1 + bytes_of(v) * kWriteWeight;
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

  // What holds it in any case; kValue: nothing, saving it takes memory.
  Saved holder_of(ValueId v) const {
    if (const auto input = input_of(joint_, layout_, v); input && is_kept_input(*input)) return {Saved::kInput, *input};
    if (const auto output = kept_output_of(v)) return {Saved::kOutput, *output};
    return {};
  }
  bool is_own(ValueId v) const { return holder_of(v).of == Saved::kValue; }
  int64_t saved_bytes() const {
    int64_t bytes = 0;
    for (ValueId v : saved_) bytes += is_own(v) ? bytes_of(v) : 0;
    return bytes;
  }
  // The bytes of the values that eager's formulas read.
  int64_t eager_bytes() const {
    std::set<ValueId> memory;
    for (ValueId v : read_)
      if (const ValueId root = memory_of(joint_, v);
          !is_constant(root) && !input_of(joint_, layout_, root) && is_own(v))
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

  const Graph& joint_;
  const JointLayout& layout_;
  const int64_t budget_;  // percent
  const std::set<ValueId>& unversioned_;
  enum class Effort : uint8_t { kUsual, kFewestBytes, kRepeatRowPasses } effort_ = Effort::kUsual;
  std::vector<bool> depends_;
  std::vector<int64_t> rank_;  // the distance to its reader; -1: the backward does not need it
  std::set<ValueId> read_;  // by ops of the backward, or gradients themselves
  std::set<ValueId> library_operands_;
  std::set<ValueId> boundaries_;
  std::map<ValueId, size_t> vertex_;
  std::set<ValueId> saved_;
};

}  // namespace

bool may_fail(const Graph& graph, const Node& node) {
  if (node.op->has(kChecksData)) return true;
  return node.op->has(kDivides) && !(node.results.size() == 1 && is_float(graph.meta(node.results[0]).dtype));
}

std::optional<uint32_t> input_of(const Graph& joint, const JointLayout& layout, ValueId v) {
  for (uint32_t i = 0; i < layout.forward_inputs; ++i)
    if (joint.inputs[i] == v) return i;
  return std::nullopt;
}

bool is_updated(const Graph& joint, uint32_t input) {
  return std::any_of(joint.updates.begin(), joint.updates.end(), [&](const auto& u) { return u.first == input; });
}

SavedValues choose_saved(const Graph& joint, const JointLayout& layout, int64_t budget,
                         const std::set<ValueId>& unversioned) {
  return SaveChoice(joint, layout, budget, unversioned).run();
}

}  // namespace framejit::graph
