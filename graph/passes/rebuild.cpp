#include "graph/passes/rebuild.h"

#include <algorithm>
#include <set>

#include "graph/node_values.h"
#include "graph/shape_rule.h"

namespace framejit::graph {
namespace {

constexpr TorchEnum kContiguous{'m', 0};

// The dimensions of a layout without gaps and overlaps, slowest first.
std::optional<std::vector<size_t>> dense_order(const TensorMeta& layout) {
  std::vector<size_t> order;
  std::vector<bool> taken(layout.ndim());
  SymExpr expected = 1;
  for (size_t k = 0; k < layout.ndim(); ++k) {  // fastest first; of equal strides, size 1 comes first
    size_t found = layout.ndim();
    for (size_t d = layout.ndim(); d-- > 0;)
      if (!taken[d] && layout.strides[d] == expected && (found == layout.ndim() || layout.sizes[d] == SymExpr(1)))
        found = d;
    if (found == layout.ndim()) return std::nullopt;
    taken[found] = true;
    order.insert(order.begin(), found);
    expected = expected * layout.sizes[found];
  }
  return order;
}

// The value in the old layout; if the layout is dense, a view of a contiguous clone, for which kernels need no copy.
ValueId relaid(GraphBuilder& out, ValueId value, const TensorMeta& layout) {
  if (same_layout(out.meta(value), layout)) return value;
  const auto order = dense_order(layout);
  if (!order || layout.strides == contiguous_strides(layout.sizes)) return with_layout(out, value, layout);
  SymSizes there, back(order->size());
  for (size_t k = 0; k < order->size(); ++k) {
    there.emplace_back(static_cast<int64_t>((*order)[k]));
    back[(*order)[k]] = SymExpr(static_cast<int64_t>(k));
  }
  return out.emit("permute", {contiguous_clone(out, out.emit("permute", {value, there})), back});
}

// Results of a view of `before` become those of a view of `now`: the layout of a view follows from its base.
void follow_base(const Node& view, const TensorMeta& now, const TensorMeta& before, std::vector<TensorMeta>& results) {
  if (has_own_offset(view)) return;
  const SymExpr distance = now.offset - before.offset;
  for (TensorMeta& meta : results) meta.offset = meta.offset + distance;
}

}  // namespace

Rebuild::Rebuild(const Graph& from, bool merge)
    : from_(from), out_(from.name, merge), map_(from.values.size(), kNoValue), viewed_(from.values.size()) {
  for (const Node& node : from.nodes)
    if (const ValueId* base = node.op->has(kView) && !node.args.empty() ? node.args[0].get<ValueId>() : nullptr)
      viewed_[index_of(*base)] = true;
  out_.shapes() = from.shapes;
  for (const Line& line : from.lines) lines_.push_back(out_.intern_line(line));
  for (uint32_t i = 0; i < from.opaque_count; ++i) out_.new_opaque();
  for (size_t i = 0; i < from.inputs.size(); ++i)
    set(from.inputs[i], out_.add_input(from.meta(from.inputs[i]), out_.new_storage(), from.input_names[i]));
  for (ValueId v : from.constants) set(v, out_.add_constant(from.meta(v), out_.new_storage()));
}

Arg Rebuild::map(const Arg& arg) const {
  const auto made = [&](ValueId old) {
    const ValueId v = get(old);
    FJ_ASSERT(old == kNoValue || v != kNoValue, "a pass reads a value before it is made");
    return v;
  };
  if (const ValueId* v = arg.get<ValueId>()) return made(*v);
  if (const auto* list = arg.get<std::vector<ValueId>>()) {
    std::vector<ValueId> mapped;
    for (ValueId v : *list) mapped.push_back(made(v));
    return mapped;
  }
  return arg;
}

std::vector<Arg> Rebuild::map_args(const Node& node) const {
  std::vector<Arg> args;
  for (const Arg& arg : node.args) args.push_back(map(arg));
  return args;
}

void Rebuild::begin(const Node& node) { out_.set_line(node.line < lines_.size() ? lines_[node.line] : 0); }

std::vector<ValueId> Rebuild::emit_like(const Node& like, const OpDef* op, std::vector<Arg> args) {
  if (const std::vector<ValueId>* known = out_.find_equal(*op, args)) return *known;
  // Old and new tensors pair up in order: the arguments are those of `like`, or fewer if a functional form drops some.
  std::vector<ValueId> before;
  for_each_value(like, [&](ValueId v) { before.push_back(v); });
  bool unchanged = op == like.op && args.size() == like.args.size();
  size_t at = 0;
  for (const Arg& arg : args)
    for_each_value(arg, [&](ValueId v) {
      const ValueId old = at < before.size() ? before[at++] : kNoValue;
      unchanged = unchanged && (v == kNoValue) == (old == kNoValue) &&
                  (v == kNoValue || same_layout(out_.meta(v), from_.meta(old)));
    });
  // The strides in its arguments are those of the recorded layout. With another layout, the result is a view or a copy
  // with the same elements.
  if (!unchanged && op->is(KnownOp::reshape_alias))
    return {reshaped(out_, *args[0].get<ValueId>(), from_.meta(like.results[0]).sizes)};
  std::vector<TensorMeta> metas;
  const bool keeps_layouts = op == like.op && op->has(kRandom);  // numbers are drawn in the order of memory
  const bool inferred = !unchanged && !keeps_layouts &&
                        infer_metas(*op, args, out_.peek().values, out_.shapes(), metas) &&
                        metas.size() == like.results.size();
  if (!inferred) {
    at = 0;
    if (!unchanged && op == like.op)
      for (Arg& arg : args) {
        auto restore = [&](ValueId& v) {
          const ValueId old = before[at++];
          if (v != kNoValue && old != kNoValue) v = with_layout(out_, v, from_.meta(old));
        };
        if (auto* v = std::get_if<ValueId>(&arg.payload)) restore(*v);
        if (auto* list = std::get_if<std::vector<ValueId>>(&arg.payload))
          std::for_each(list->begin(), list->end(), restore);
      }
    metas.clear();
    for (ValueId v : like.results) metas.push_back(v == kNoValue ? TensorMeta{} : from_.meta(v));
    const ValueId* base = op->has(kView) && op == like.op && !args.empty() ? args[0].get<ValueId>() : nullptr;
    if (base != nullptr) follow_base(like, out_.meta(*base), from_.meta(before[0]), metas);
  }
  Node node;
  node.op = op;
  node.args = std::move(args);
  node.result_lists = like.result_lists;
  for (size_t i = 0; i < like.results.size(); ++i)
    node.results.push_back(like.results[i] == kNoValue ? kNoValue
                                                       : out_.new_value(std::move(metas[i]), out_.new_storage()));
  std::vector<ValueId> results = node.results;
  out_.add_node(std::move(node));
  return results;
}

void Rebuild::copy_node(const Node& node) {
  begin(node);
  const std::vector<ValueId> results = emit_like(node, node.op, map_args(node));
  for (size_t i = 0; i < results.size(); ++i)
    if (node.results[i] != kNoValue) adopt(node.results[i], results[i]);
}

void Rebuild::adopt(ValueId old, ValueId made) {
  set(old, viewed_[index_of(old)] ? relaid(out_, made, from_.meta(old)) : made);
}

Graph Rebuild::build() {
  std::vector<ValueId> outputs;
  for (size_t i = 0; i < from_.outputs.size(); ++i) {
    const ValueId old = from_.outputs[i];
    outputs.push_back(get(old));
    // The graph promises the strides of a fresh output.
    if (old != kNoValue && from_.output_aliases[i].kind == OutputKind::kFresh)
      outputs[i] = with_layout(out_, outputs[i], from_.meta(old));
  }
  // An output that is a view of all of another output follows it.
  for (size_t j = 0; j < outputs.size(); ++j) {
    const OutputAlias& alias = from_.output_aliases[j];
    if (outputs[j] != kNoValue && alias.kind == OutputKind::kViewOfOutput && outputs[j] == get(from_.outputs[alias.of]))
      outputs[j] = outputs[alias.of];
  }
  std::vector<std::pair<uint32_t, ValueId>> updates;
  for (const auto& [input, value] : from_.updates) updates.emplace_back(input, get(value));
  return build(std::move(outputs), from_.output_aliases, std::move(updates));
}

namespace {

// A copy that is not merged with an equal one, because it must have memory of its own.
ValueId new_clone(GraphBuilder& out, ValueId value) {
  const OpDef* op = find_op("clone");
  const std::vector<Arg> args{value, Arg{}};
  std::vector<TensorMeta> metas;
  FJ_ASSERT(op != nullptr && infer_metas(*op, args, out.peek().values, out.shapes(), metas), "clone has no shape rule");
  Node node{op, args, {out.new_value(std::move(metas[0]), out.new_storage())}, {}, 0};
  const ValueId made = node.results[0];
  out.add_node(std::move(node));
  return made;
}

// The same values in their own memory. A layout with holes or overlaps becomes a view of a copy of the memory.
ValueId own_copy(GraphBuilder& out, ValueId value, ValueId memory) {
  const TensorMeta meta = out.meta(value), base = out.meta(memory);
  const ValueId copy = new_clone(out, value);
  if (same_layout(out.meta(copy), meta)) return copy;
  const ValueId own = new_clone(out, memory);
  if (!same_layout(out.meta(own), base)) return copy;
  return out.emit("as_strided", {own, meta.sizes, meta.strides, meta.offset - base.offset});
}

}  // namespace

Graph Rebuild::build(std::vector<ValueId> outputs, std::vector<OutputAlias> aliases,
                     std::vector<std::pair<uint32_t, ValueId>> updates) {
  std::set<ValueId> taken;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == kNoValue || aliases[i].kind != OutputKind::kFresh) continue;
    const ValueId memory = memory_of(out_.peek(), outputs[i]);
    const auto& inputs = out_.peek().inputs;
    const auto& constants = out_.peek().constants;
    const bool is_boundary = std::find(inputs.begin(), inputs.end(), memory) != inputs.end() ||
                             std::find(constants.begin(), constants.end(), memory) != constants.end();
    if (is_boundary || !taken.insert(memory).second) give_own_memory(outputs, aliases, i, memory);
  }
  return out_.build(std::move(outputs), std::move(aliases), std::move(updates));
}

// Outputs that are views of output `first` move along with it.
void Rebuild::give_own_memory(std::vector<ValueId>& outputs, const std::vector<OutputAlias>& aliases, size_t first,
                              ValueId memory) {
  std::vector<size_t> group;
  for (size_t j = 0; j < outputs.size(); ++j)
    if (outputs[j] != kNoValue && aliases[j].kind == OutputKind::kViewOfOutput && aliases[j].of == first)
      group.push_back(j);
  const bool shows_parts = out_.meta(outputs[first]).dtype != out_.meta(memory).dtype;  // of complex numbers
  if (group.empty() && !shows_parts) {
    outputs[first] = own_copy(out_, outputs[first], memory);
    return;
  }
  const ValueId own = new_clone(out_, memory);
  group.push_back(first);
  for (size_t j : group) outputs[j] = moved(outputs[j], memory, own);
}

// The value `v`, a chain of views of `from`, as the same views of `to`.
ValueId Rebuild::moved(ValueId v, ValueId from, ValueId to) {
  if (v == from) return to;
  const Node* made_by = out_.peek().maker(v);
  FJ_ASSERT(made_by != nullptr, "outputs that share memory are views of one value");
  const Node node = *made_by;
  std::vector<Arg> args = node.args;
  const ValueId base = *args[0].get<ValueId>(), new_base = moved(base, from, to);
  args[0] = new_base;
  Node copy{node.op, std::move(args), {}, node.result_lists, node.line};
  std::vector<TensorMeta> metas;
  for (ValueId result : node.results) metas.push_back(out_.meta(result));
  follow_base(node, out_.meta(new_base), out_.meta(base), metas);
  for (TensorMeta& meta : metas) copy.results.push_back(out_.new_value(std::move(meta), out_.new_storage()));
  const ValueId made =
      copy.results[static_cast<size_t>(std::find(node.results.begin(), node.results.end(), v) - node.results.begin())];
  out_.add_node(std::move(copy));
  return made;
}

bool is_one(const Arg& number) {
  const SymExpr* n = number.get<SymExpr>();
  const double* d = number.get<double>();
  return (n != nullptr && *n == SymExpr(1)) || (d != nullptr && *d == 1.0);
}

bool same_layout(const TensorMeta& a, const TensorMeta& b) {
  return a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes && a.strides == b.strides;
}

ValueId contiguous_clone(GraphBuilder& out, ValueId value) { return out.emit("clone", {value, kContiguous}); }

ValueId with_layout(GraphBuilder& out, ValueId value, const TensorMeta& layout) {
  if (same_layout(out.meta(value), layout)) return value;
  // Dimensions of one element count as contiguous with any stride, and results keep it.
  if (layout.strides == contiguous_strides(layout.sizes)) return contiguous_clone(out, value);
  const ValueId empty =
      out.emit("empty_strided", {layout.sizes, layout.strides, layout.dtype, Arg{}, layout.device, Arg{}});
  return out.emit("copy", {empty, value, false});
}

ValueId reshaped(GraphBuilder& out, ValueId value, const SymSizes& sizes) {
  if (out.meta(value).sizes == sizes) return value;
  const OpDef* view = find_op("view");
  std::vector<TensorMeta> metas;
  const std::vector<Arg> args{value, sizes};
  if (!infer_metas(*view, args, out.peek().values, out.shapes(), metas))
    return out.emit("view", {contiguous_clone(out, value), sizes});
  return out.emit("view", args, metas[0]);
}

ValueId converted(GraphBuilder& out, ValueId value, DType dtype) {
  if (out.meta(value).dtype == dtype) return value;
  return out.emit("_to_copy", {value, dtype, Arg{}, Arg{}, Arg{}, false, Arg{}});
}

std::set<ValueId> settled_memory(const Graph& graph) {
  std::set<ValueId> memory;
  const auto settle = [&](ValueId v) {
    if (v != kNoValue) memory.insert(memory_of(graph, v));
  };
  for (ValueId v : graph.outputs) settle(v);
  for (const auto& [input, v] : graph.updates) settle(v);
  for (const Node& node : graph.nodes)
    if (is_as_strided(*node.op)) for_each_value(node, settle);
  return memory;
}

std::set<ValueId> addressed_memory(const Graph& graph) {
  std::set<ValueId> memory;
  for (const Node& node : graph.nodes)
    if (has_own_offset(node)) memory.insert(memory_of(graph, *node.args[0].get<ValueId>()));
  return memory;
}

}  // namespace framejit::graph
