#include "graph/forward_again.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "graph/lost_values.h"
#include "graph/node_values.h"
#include "graph/op_lists.h"
#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"
#include "graph/shape_rule.h"

namespace framejit::graph {
namespace {

bool gives_to_root(const TrainingGraphs& graphs, uint32_t root) {
  const GradientOf own{GradientOf::kRoot, root};
  return std::find(graphs.gradients.begin(), graphs.gradients.end(), own) != graphs.gradients.end();
}

// Per root: whether a backward from the given roots starts at it or reaches it. given: empty if all may be given.
std::vector<bool> roots_reached(const TrainingGraphs& graphs, const std::vector<bool>& given) {
  std::vector<bool> reached = given.empty() ? std::vector<bool>(graphs.roots.size(), true) : given;
  for (size_t r = 0; r < given.size(); ++r)
    for (size_t g = 0; given[r] && g < graphs.gradients.size(); ++g)
      if (graphs.gradients[g].of == GradientOf::kRoot && graphs.reaches[r][g])
        reached[graphs.gradients[g].index] = true;
  return reached;
}

// The part of a joint graph that was recorded before its backward. Outputs: a clone of each root, then a clone of each
// of `others`. A clone has the value that ops after the root read. (A root that is a view would be made again, from the
// later contents of its base.) A zero replaces a root that the backward does not reach.
Graph forward_of(const TrainingGraphs& graphs, const std::vector<bool>& given, const std::vector<ValueId>& others) {
  Graph made = *graphs.recorded;
  const std::vector<bool> reached = roots_reached(graphs, given);
  std::vector<ValueId> cloned;
  for (size_t r = 0; r < graphs.roots.size(); ++r)
    cloned.push_back(reached[r] ? made.outputs[graphs.roots[r]] : kNoValue);
  cloned.insert(cloned.end(), others.begin(), others.end());
  made.inputs.resize(made.inputs.size() - graphs.roots.size());
  made.input_names.resize(made.inputs.size());
  made.nodes.resize(graphs.forward_nodes);
  uint32_t storage = 0;
  for (ValueInfo& value : made.values) {
    storage = std::max(storage, value.storage + 1);
    if (value.node >= static_cast<int32_t>(graphs.forward_nodes)) value.node = -1;
  }
  made.outputs.clear();
  for (ValueId v : cloned) {
    if (v == kNoValue) {
      v = ValueId{static_cast<uint32_t>(made.values.size())};
      made.values.push_back({TensorMeta{}, static_cast<int32_t>(made.nodes.size()), storage++});
      made.nodes.push_back({find_op("full"), {SymSizes{}, 0.0, DType::kFloat32, Arg{}, Device{}, Arg{}}, {v}, {}, 0});
    }
    const ValueId clone{static_cast<uint32_t>(made.values.size())};
    TensorMeta meta = made.meta(v);
    meta.strides = contiguous_strides(meta.sizes);
    meta.offset = 0;
    made.values.push_back({std::move(meta), static_cast<int32_t>(made.nodes.size()), storage++});
    made.nodes.push_back({find_op("clone"), {v, Arg{}}, {clone}, {}, 0});
    made.outputs.push_back(clone);
  }
  made.output_aliases.assign(made.outputs.size(), OutputAlias{});
  made.updates.clear();
  return made;
}

std::set<ValueId> values_read(const Graph& graph) {
  std::set<ValueId> read(graph.outputs.begin(), graph.outputs.end());
  for (const Node& node : graph.nodes) for_each_value(node, [&](ValueId v) { read.insert(v); });
  return read;
}

bool draws_from_own_generator(const Node& node) {
  return node.op->has(kRandom) && std::any_of(node.args.begin(), node.args.end(),
                                              [](const Arg& arg) { return arg.get<OpaqueSlot>() != nullptr; });
}

// Cuts the forward where values without a history begin: constants() makes these values, rest() takes them.
class Cutter {
 public:
  Cutter(const Graph& forward, const std::vector<uint32_t>& without_history)
      : forward_(forward),
        without_history_(without_history.begin(), without_history.end()),
        has_history_(forward.values.size()) {}

  Result<void> run() {
    for (ValueId input : forward_.inputs) has_history_[index_of(input)] = forward_.meta(input).requires_grad;
    for (const Node& node : forward_.nodes)
      for (int8_t i : node.op->write_args)
        for_each_value(node.args[static_cast<size_t>(i)], [&](ValueId v) {
          if (v != kNoValue) written_.insert(forward_.values[index_of(v)].storage);
        });
    for (uint32_t i = 0; i < forward_.nodes.size(); ++i) FJ_TRY_VOID(look_at(forward_.nodes[i], i));
    return {};
  }
  bool has_cut() const { return !cut_.empty(); }

  // Drops constants that the rest does not read: the inputs that they need may be gone.
  void drop_unread(Graph& rest) {
    const std::set<ValueId> read = values_read(rest);
    for (size_t i = cut_.size(), first = forward_.inputs.size(); i-- > 0;) {
      if (read.contains(rest.inputs[first + i])) continue;
      cut_.erase(cut_.begin() + static_cast<ptrdiff_t>(i));
      rest.inputs.erase(rest.inputs.begin() + static_cast<ptrdiff_t>(first + i));
      rest.input_names.erase(rest.input_names.begin() + static_cast<ptrdiff_t>(first + i));
    }
  }

  Graph constants() const {
    Graph made = forward_;
    made.outputs = cut_;
    made.output_aliases.assign(cut_.size(), OutputAlias{});
    return made;
  }

  // The nodes that made the constants stay, with results that nobody reads.
  Graph rest() const {
    Graph made = forward_;
    uint32_t storage = 0;
    for (const ValueInfo& value : made.values) storage = std::max(storage, value.storage + 1);
    for (size_t i = 0; i < cut_.size(); ++i) {
      ValueInfo& info = made.values[index_of(cut_[i])];
      Node& node = made.nodes[static_cast<size_t>(info.node)];
      const ValueId unread{static_cast<uint32_t>(made.values.size())};
      std::replace(node.results.begin(), node.results.end(), cut_[i], unread);
      ValueInfo kept = info;
      info.node = -1;
      info.storage = storage++;
      made.values.push_back(std::move(kept));
      made.inputs.push_back(cut_[i]);
      made.input_names.push_back("without history " + std::to_string(i));
    }
    return made;
  }

 private:
  bool is_written(ValueId v) const { return written_.contains(forward_.values[index_of(v)].storage); }

  Result<void> look_at(const Node& node, uint32_t index) {
    bool depends = false;
    for_each_value(node, [&](ValueId v) { depends = depends || (v != kNoValue && has_history_[index_of(v)]); });
    if (!depends) return {};
    const bool is_cut = without_history_.contains(index) || node.op->is(KnownOp::detach);
    for (ValueId v : node.results) {
      if (v == kNoValue) continue;
      if (is_cut && is_written(v))
        return Error{Reason::no_backward, "the memory of a value without a history is written"};
      if (is_cut) cut_.push_back(v);
      else has_history_[index_of(v)] = true;
    }
    if (is_cut && !node.op->write_args.empty())
      return Error{Reason::no_backward, "a write without grad mode to a value with a history"};
    return {};
  }

  const Graph& forward_;
  const std::set<uint32_t> without_history_;
  std::vector<bool> has_history_;
  std::set<uint32_t> written_;  // storages
  std::vector<ValueId> cut_;
};

// Makes a written value depend on the value that it replaces, because eager's formulas continue there, with zeros. The
// functional form of copy_() is its source alone, and those of some random ops have no derivative. Random ops that read
// only the shape of their operand have none either, because torch's functions call them below autograd. They get an
// operand without a history.
// The zeros of fill()'s formula have no history. For a view, eager overwrites a part of the base's gradient. The result
// has a history, so masked_fill() stands for that write.
class Overwriting {
 public:
  explicit Overwriting(Graph forward) : made_(std::move(forward)) {
    for (const ValueInfo& value : made_.values) next_storage_ = std::max(next_storage_, value.storage + 1);
    for (ValueId input : made_.inputs)
      if (made_.meta(input).requires_grad) with_history_.insert(storage_of(input));
  }

  Graph run() {
    for (Node& node : std::exchange(made_.nodes, {})) {
      bool depends = false;
      for_each_value(node, [&](ValueId v) { depends = depends || has_history(v); });
      if (is_draw_of_shape(node) && has_history(*node.args[0].get<ValueId>())) {
        const ValueId like = emit_empty_like(*node.args[0].get<ValueId>(), node.line);
        if (like != kNoValue) node.args[0] = like;
        depends = depends && like == kNoValue;
      }
      if (!overwrites(node) || !add_dependent(node)) add(std::move(node));
      for (ValueId v : made_.nodes.back().results) {
        if (depends && v != kNoValue) with_history_.insert(storage_of(v));
        if (v != kNoValue && is_view(made_.nodes.back(), v)) views_.insert(v);
      }
    }
    return std::move(made_);
  }

 private:
  uint32_t storage_of(ValueId v) const { return made_.values[index_of(v)].storage; }
  bool has_history(ValueId v) const { return v != kNoValue && with_history_.contains(storage_of(v)); }
  bool is_view(const Node& node, ValueId result) const {
    bool shares = false;
    for_each_value(node, [&](ValueId v) {
      shares = shares || (v != kNoValue && v != result && storage_of(v) == storage_of(result));
    });
    return shares;
  }
  static bool is_draw(const Node& node) {
    return node.op->has(kRandom) && node.op->has(kMutates) && node.op->write_args == std::vector<int8_t>{0};
  }
  static bool is_draw_of_shape(const Node& node) {
    return node.op->has(kRandom) &&
           (is_in(OpList::of_shapes, node.op->name) || node.op == find_op("randint_like.Tensor"));
  }
  bool overwrites(const Node& node) const {
    return (is_draw(node) || node.op->is(KnownOp::copy_in_place)) && has_history(*node.args[0].get<ValueId>());
  }

  void add(Node node) {
    for (ValueId v : node.results) {
      if (v == kNoValue || !placed_.insert(v).second) continue;
      int32_t& maker = made_.values[index_of(v)].node;
      if (maker >= 0) maker = static_cast<int32_t>(made_.nodes.size());
    }
    made_.nodes.push_back(std::move(node));
  }

  // kNoValue: no shape rule covers it.
  ValueId emit(const char* op, std::vector<Arg> args, LineId line) {
    std::vector<TensorMeta> metas;
    if (!infer_metas(*find_op(op), args, made_.values, made_.shapes, metas)) return kNoValue;
    const ValueId v{static_cast<uint32_t>(made_.values.size())};
    made_.values.push_back({std::move(metas[0]), 0, next_storage_++});
    add({find_op(op), std::move(args), {v}, {}, line});
    return v;
  }

  ValueId emit_empty_like(ValueId self, LineId line) {
    return emit("empty_like", {self, Arg{}, Arg{}, Arg{}, Arg{}, Arg{}}, line);
  }

  // x + -0.0 is x, for every x.
  ValueId negative_zeros(ValueId self, LineId line) {
    if (!views_.contains(self)) return emit("fill.Scalar", {self, -0.0}, line);
    const ValueId all = emit("full", {SymSizes{}, true, DType::kBool, Arg{}, made_.meta(self).device, Arg{}}, line);
    return all == kNoValue ? all : emit("masked_fill.Scalar", {self, all, -0.0}, line);
  }

  // False: the node must stay as it is.
  bool add_dependent(const Node& node) {
    const ValueId self = *node.args[0].get<ValueId>();
    const ValueId content = is_draw(node) ? emit_empty_like(self, node.line) : *node.args[1].get<ValueId>();
    if (content == kNoValue || made_.meta(content).device != made_.meta(self).device) return false;
    const ValueId nothing = negative_zeros(self, node.line);
    if (nothing == kNoValue) return false;
    if (is_draw(node)) {
      Node draw = node;
      draw.args[0] = content;
      std::replace(draw.results.begin(), draw.results.end(), self, content);
      add(std::move(draw));
    }
    const ValueId sum = emit("add.Tensor", {nothing, content, SymExpr(1)}, node.line);
    FJ_ASSERT(sum != kNoValue, "add.Tensor refuses what copy_() takes");
    add({find_op("copy_"), {self, sum, false}, {self}, {}, node.line});
    return true;
  }

  Graph made_;
  std::set<uint32_t> with_history_;  // storages
  std::set<ValueId> placed_, views_;
  uint32_t next_storage_ = 0;
};

// The input or earlier output whose memory an output shares. An output that counts as fresh would become a copy, and no
// other op would read the copy.
OutputAlias shared_memory(const Graph& graph, size_t output) {
  const ValueId memory = memory_of(graph, graph.outputs[output]);
  const auto input = std::find(graph.inputs.begin(), graph.inputs.end(), memory);
  if (input != graph.inputs.end())
    return {OutputKind::kViewOfInput, static_cast<uint32_t>(input - graph.inputs.begin())};
  for (uint32_t i = 0; i < output; ++i)
    if (memory_of(graph, graph.outputs[i]) == memory) return {OutputKind::kViewOfOutput, i};
  return {};
}

// In training, batch norm does not use its running statistics. It only updates them, and the forward has done that.
bool take_without_statistics(Rebuild& rebuild, const Node& node) {
  if (!node.op->is(KnownOp::legit_batch_norm)) return false;
  const bool* const training = node.args[5].get<bool>();
  if (training == nullptr || !*training) return false;
  rebuild.begin(node);
  const std::vector<Arg> args = rebuild.map_args(node);
  const std::vector<ValueId> made = rebuild.out().emit_many("_native_batch_norm_legit.no_stats",
                                                            {args[0], args[1], args[2], args[5], args[6], args[7]}, {});
  for (size_t i = 0; i < made.size(); ++i)
    if (node.results[i] != kNoValue) rebuild.set(node.results[i], made[i]);
  return true;
}

// Recognises the fills that Overwriting emits.
bool reads_only_shape(const Graph& graph, const Node& node) {
  return node.op->is(KnownOp::fill_scalar) || (node.op->is(KnownOp::masked_fill_scalar) &&
                                               graph.maker(*node.args[1].get<ValueId>(), KnownOp::full) != nullptr &&
                                               graph.maker(*node.args[1].get<ValueId>())->args[1] == Arg(true));
}

// Whether a root needs the value that an input had before the forward wrote to it. now: aliases of its new value.
bool needs_old_value(const Graph& graph, uint32_t input, const std::set<ValueId>& now) {
  std::set<ValueId> needed(graph.outputs.begin(), graph.outputs.end());
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const auto is_read = [&](ValueId v) { return needed.contains(v) && !now.contains(v); };
    if (std::none_of(node->results.begin(), node->results.end(), is_read)) continue;
    if (node->op->is(KnownOp::relu) && has_argument(*node, graph.inputs[input])) continue;  // relu(relu(x)) is relu(x)
    if (reads_only_shape(graph, *node)) continue;
    for_each_value(*node, [&](ValueId v) { needed.insert(v); });
  }
  return needed.contains(graph.inputs[input]);
}

// It runs after the forward, so an input that the forward writes holds its new value. If that value is a
// constant to every derivative, it is read from the input.
Result<Graph> with_written_inputs(const Graph& from, const std::vector<std::pair<uint32_t, ValueId>>& updates,
                                  bool has_histories) {
  std::vector<bool> has_history(from.values.size());
  for (ValueId input : from.inputs) has_history[index_of(input)] = has_histories && from.meta(input).requires_grad;
  std::set<ValueId> now;
  Rebuild rebuild(from, false);
  for (const Node& node : from.nodes) {
    if (!take_without_statistics(rebuild, node)) rebuild.copy_node(node);
    bool depends = false;
    for_each_value(node, [&](ValueId v) { depends = depends || (v != kNoValue && has_history[index_of(v)]); });
    for (ValueId v : node.results) {
      if (v == kNoValue) continue;
      has_history[index_of(v)] = depends;
      for (const auto& [input, written] : updates)
        if (v == written && !depends && same_layout(from.meta(v), from.meta(from.inputs[input]))) {
          rebuild.set(v, rebuild.out().emit("alias", {rebuild.get(from.inputs[input])}));
          now.insert(rebuild.get(v));
          break;
        }
    }
  }
  std::vector<ValueId> outputs;
  for (ValueId v : from.outputs) outputs.push_back(rebuild.get(v));
  Graph made = rebuild.build(std::move(outputs), from.output_aliases, {});
  for (const auto& [input, written] : updates)
    if (needs_old_value(made, input, now))
      return Error{Reason::no_backward, "the input " + from.input_names[input] +
                                            " is needed as it was before the compiled forward wrote to it"};
  return made;
}

// Makes the forward functional and drops its writes to inputs. Equal values are not merged: a merged root would become
// a copy that no later op reads.
Result<Graph> without_writes(Graph forward, bool of_roots) {
  FJ_TRY(Graph made, fix_sizes(std::move(forward)));
  FJ_TRY(made, of_roots ? functionalize_histories(std::move(made)) : functionalize(std::move(made)));
  for (ValueId& output : made.outputs) {
    if (!of_roots) continue;
    const Node& clone = made.nodes[static_cast<size_t>(made.values[index_of(output)].node)];
    FJ_ASSERT(clone.op->is(KnownOp::clone), "the outputs of the second run are clones of the roots");
    output = *clone.args[0].get<ValueId>();
  }
  for (size_t i = 0; i < made.outputs.size(); ++i)
    made.output_aliases[i] = of_roots ? shared_memory(made, i) : OutputAlias{};
  if (made.updates.empty()) return dce(std::move(made));
  FJ_TRY(made, with_written_inputs(made, std::exchange(made.updates, {}), of_roots));
  for (size_t i = 0; of_roots && i < made.outputs.size(); ++i) made.output_aliases[i] = shared_memory(made, i);
  return dce(std::move(made));
}

// Whether a root with its own gradient is the same value as another root or an input. copy_() makes such roots.
bool has_shared_root(const Graph& graph, const TrainingGraphs& graphs) {
  const auto end = graph.outputs.begin() + static_cast<ptrdiff_t>(graphs.roots.size());
  for (uint32_t r = 0; r < graphs.roots.size(); ++r) {
    const ValueId root = graph.outputs[r];
    if (gives_to_root(graphs, r) && (std::count(graph.outputs.begin(), end, root) > 1 ||
                                     std::find(graph.inputs.begin(), graph.inputs.end(), root) != graph.inputs.end()))
      return true;
  }
  return false;
}

// If a root has its own gradient, later ops read an alias of it. The alias's gradient is what those ops contribute.
Graph with_aliases(const Graph& from, const TrainingGraphs& graphs) {
  std::set<ValueId> parted;
  for (const GradientOf& gradient : graphs.gradients)
    if (gradient.of == GradientOf::kRoot) parted.insert(from.outputs[gradient.index]);
  Rebuild rebuild(from, false);
  std::map<ValueId, ValueId> root;  // the value before its alias
  const auto part = [&](ValueId v) {
    if (v == kNoValue || !parted.contains(v) || root.contains(v)) return;
    root[v] = rebuild.get(v);
    rebuild.set(v, rebuild.out().emit("alias", {root[v]}));
  };
  for (ValueId input : from.inputs) part(input);
  for (const Node& node : from.nodes) {
    if (!take_without_statistics(rebuild, node)) rebuild.copy_node(node);
    for (ValueId v : node.results) part(v);
  }
  std::vector<ValueId> outputs;
  std::vector<OutputAlias> aliases;
  const size_t roots = graphs.roots.size();
  for (size_t r = 0; r < roots; ++r) {
    const ValueId v = from.outputs[r];
    outputs.push_back(root.contains(v) ? root[v] : rebuild.get(v));
    aliases.push_back(from.output_aliases[r]);
  }
  for (uint32_t r = 0; r < roots; ++r)
    if (gives_to_root(graphs, r)) {
      outputs.push_back(rebuild.get(from.outputs[r]));
      aliases.push_back({OutputKind::kViewOfOutput, r});
    }
  const size_t moved = outputs.size() - roots;
  for (size_t i = roots; i < from.outputs.size(); ++i) {
    outputs.push_back(rebuild.get(from.outputs[i]));
    OutputAlias alias = from.output_aliases[i];
    if (alias.kind == OutputKind::kViewOfOutput && alias.of >= roots) alias.of += static_cast<uint32_t>(moved);
    aliases.push_back(alias);
  }
  return rebuild.build(std::move(outputs), std::move(aliases), {});
}

// The formula of rrelu reads the noise that the op drew. torch's formula for the functional form reads the noise that
// the op was given. So the op itself runs, and writes its noise to a clone. Its result is contiguous; that of the
// functional form need not be.
Graph with_drawn_noise(const Graph& from) {
  Rebuild rebuild(from, false);
  for (const Node& node : from.nodes) {
    if (node.op != find_op("rrelu_with_noise_functional")) {
      rebuild.copy_node(node);
      continue;
    }
    rebuild.begin(node);
    std::vector<Arg> args = rebuild.map_args(node);
    const ValueId noise = rebuild.out().emit("clone", {args[1], Arg{}});
    args[1] = noise;
    const ValueId result = rebuild.out().emit("rrelu_with_noise", std::move(args));
    if (node.results[0] != kNoValue) rebuild.set(node.results[0], result);
    if (node.results[1] != kNoValue) rebuild.set(node.results[1], noise);
  }
  std::vector<ValueId> outputs;
  for (ValueId v : from.outputs) outputs.push_back(rebuild.get(v));
  return rebuild.build(std::move(outputs), from.output_aliases, {});
}

void mark_reads(const Graph& graph, std::vector<bool>& reads) {
  const std::set<ValueId> read = values_read(graph);
  for (size_t i = 0; i < reads.size(); ++i) reads[i] = reads[i] || read.contains(graph.inputs[i]);
}

}  // namespace

Result<ForwardAgainGraphs> forward_again(const TrainingGraphs& graphs, const WhatIsLeft& left) {
  if (graphs.has_functions)
    return Error{Reason::no_backward, "the backward of a torch.autograd.Function is traced without its own derivative"};
  FJ_TRY(const std::vector<ValueId> lost, lost_values(graphs, left));
  const Graph forward = forward_of(graphs, left.given, lost);
  if (std::any_of(forward.nodes.begin(), forward.nodes.end(), draws_from_own_generator))
    return Error{Reason::no_backward, "the forward draws from a torch.Generator, whose state is not kept"};
  Cutter cutter(forward, graphs.without_history);
  FJ_TRY_VOID(cutter.run());
  ForwardAgainGraphs made;
  made.reads.resize(forward.inputs.size());
  FJ_TRY(made.roots, without_writes(Overwriting(cutter.has_cut() ? cutter.rest() : forward).run(), true));
  if (has_shared_root(made.roots, graphs)) return Error{Reason::no_backward, "an output is a copy of another value"};
  FJ_TRY(made.roots, dce(with_aliases(made.roots, graphs)));
  made.roots = with_drawn_noise(made.roots);
  cutter.drop_unread(made.roots);
  if (cutter.has_cut()) {
    FJ_TRY(made.constants, without_writes(cutter.constants(), false));
    mark_reads(*made.constants, made.reads);
  }
  mark_reads(made.roots, made.reads);
  if (lost.empty()) return made;
  FJ_TRY(Graph values, fix_sizes(forward));
  FJ_TRY(values, functionalize(std::move(values)));
  values.outputs.erase(values.outputs.begin(), values.outputs.begin() + static_cast<ptrdiff_t>(graphs.roots.size()));
  FJ_TRY(made.lost, lost_contents(graphs, left, std::move(values)));
  return made;
}

}  // namespace framejit::graph
