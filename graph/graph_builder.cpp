// graph/graph_builder.cpp — emission: numbers values, merges equal pure nodes, undoes a failed call.
#include "graph/graph_builder.h"

#include <algorithm>
#include <bit>

#include "graph/node_values.h"
#include "graph/shape_rule.h"
#include "runtime/base/hash_index.h"

namespace framejit::graph {
namespace {

struct ArgHash {
  uint64_t operator()(None) const { return 1; }
  uint64_t operator()(ValueId v) const { return mix(2, index_of(v)); }
  uint64_t operator()(const SymExpr& e) const { return e.hash(); }
  uint64_t operator()(double d) const { return mix(3, std::bit_cast<uint64_t>(d)); }
  uint64_t operator()(bool b) const { return b ? 5 : 7; }
  uint64_t operator()(const std::string& s) const { return std::hash<std::string>()(s); }
  uint64_t operator()(DType d) const { return mix(11, static_cast<uint64_t>(d)); }
  uint64_t operator()(const Device& d) const {
    return mix(13, static_cast<uint64_t>(d.type) * 256 + static_cast<uint8_t>(d.index));
  }
  uint64_t operator()(const TorchEnum& e) const {
    return mix(17, static_cast<uint64_t>(e.kind) * 256 + static_cast<uint8_t>(e.value));
  }
  uint64_t operator()(const OpaqueSlot& o) const { return mix(19, o.index); }
  template <class T>
  uint64_t operator()(const std::vector<T>& list) const {
    uint64_t h = mix(23, list.size());
    for (const auto& item : list) h = mix(h, (*this)(static_cast<const T&>(item)));
    return h;
  }
};

uint64_t hash_of(const OpDef& op, const std::vector<Arg>& args) {
  uint64_t h = std::hash<const void*>()(&op);
  for (const Arg& arg : args) h = mix(h, std::visit(ArgHash{}, arg.payload));
  return h;
}

// -0.0 and 0.0 compare equal but are different constants.
bool same_args(const std::vector<Arg>& a, const std::vector<Arg>& b) {
  if (a != b) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const double* x = a[i].get<double>();
    if (x != nullptr && std::bit_cast<uint64_t>(*x) != std::bit_cast<uint64_t>(*b[i].get<double>())) return false;
  }
  return true;
}

bool is_pure(const OpDef& op) { return (op.flags & (kMutates | kRandom | kSideEffect)) == 0; }

}  // namespace

GraphBuilder::GraphBuilder(std::string name, bool merge) : merge_(merge) { graph_.name = std::move(name); }

ValueId GraphBuilder::new_value(TensorMeta meta, uint32_t storage) {
  graph_.values.push_back({std::move(meta), -1, storage});
  next_storage_ = std::max(next_storage_, storage + 1);
  return ValueId{static_cast<uint32_t>(graph_.values.size() - 1)};
}

ValueId GraphBuilder::add_input(TensorMeta meta, uint32_t storage, std::string source_name) {
  const ValueId v = new_value(std::move(meta), storage);
  graph_.inputs.push_back(v);
  graph_.input_names.push_back(std::move(source_name));
  return v;
}

ValueId GraphBuilder::add_constant(TensorMeta meta, uint32_t storage) {
  const ValueId v = new_value(std::move(meta), storage);
  graph_.constants.push_back(v);
  return v;
}

LineId GraphBuilder::intern_line(const Line& line) {
  // A line usually repeats at once or soon; older duplicates do no harm.
  const size_t oldest = graph_.lines.size() > 8 ? graph_.lines.size() - 8 : 0;
  for (size_t i = graph_.lines.size(); i-- > oldest;) {
    const Line& known = graph_.lines[i];
    if (known.number == line.number && known.checkpoint == line.checkpoint && known.file == line.file &&
        known.function == line.function)
      return static_cast<LineId>(i);
  }
  graph_.lines.push_back(line);
  return static_cast<LineId>(graph_.lines.size() - 1);
}

size_t GraphBuilder::add_node(Node node) {
  for (Arg& arg : node.args) {
    const ValueId* v = arg.get<ValueId>();
    if (v != nullptr && *v == kNoValue) arg = Arg{};  // one form of "absent"
  }
  if (std::all_of(node.result_lists.begin(), node.result_lists.end(), [](int16_t n) { return n < 0; }))
    node.result_lists.clear();
  if (node.line == 0) node.line = line_;
  const auto index = static_cast<int32_t>(graph_.nodes.size());
  for (ValueId v : node.results) {
    if (v == kNoValue) continue;
    ValueInfo& info = graph_.values[index_of(v)];
    if (info.node < 0 && !has_argument(node, v)) info.node = index;
  }
  if (merge_ && is_pure(*node.op)) seen_.emplace(hash_of(*node.op, node.args), static_cast<size_t>(index));
  graph_.nodes.push_back(std::move(node));
  return static_cast<size_t>(index);
}

const std::vector<ValueId>* GraphBuilder::find_equal(const OpDef& op, const std::vector<Arg>& args) const {
  if (!merge_ || !is_pure(op)) return nullptr;
  const auto [begin, end] = seen_.equal_range(hash_of(op, args));
  for (auto it = begin; it != end; ++it) {
    const Node& known = graph_.nodes[it->second];
    if (known.op == &op && same_args(known.args, args)) return &known.results;
  }
  return nullptr;
}

std::vector<ValueId> GraphBuilder::emit_many(std::string_view op, std::vector<Arg> args,
                                             std::vector<TensorMeta> metas) {
  Node node;
  node.op = find_op(op);
  FJ_ASSERT(node.op != nullptr, "unknown op " + std::string(op));
  node.args = std::move(args);
  if (const std::vector<ValueId>* known = find_equal(*node.op, node.args)) return *known;
  if (metas.empty()) {
    const bool covered = infer_metas(*node.op, node.args, graph_.values, graph_.shapes, metas);
    FJ_ASSERT(covered, "no shape rule covers " + node.op->name);
  }
  std::vector<ValueId> results;
  for (TensorMeta& meta : metas) results.push_back(new_value(std::move(meta), new_storage()));
  node.results = results;
  add_node(std::move(node));
  return results;
}

ValueId GraphBuilder::emit(std::string_view op, std::vector<Arg> args) {
  const auto results = emit_many(op, std::move(args), {});
  FJ_ASSERT(results.size() == 1, std::string(op) + " has more than one result");
  return results[0];
}

ValueId GraphBuilder::emit(std::string_view op, std::vector<Arg> args, TensorMeta meta) {
  return emit_many(op, std::move(args), {std::move(meta)})[0];
}

GraphBuilder::Mark GraphBuilder::mark() const {
  return {graph_.nodes.size(), graph_.values.size(), graph_.shapes.facts().size()};
}

// Facts that the dropped nodes needed stay. They are true for this call and only make the guards stricter.
void GraphBuilder::rollback(const Mark& mark) {
  std::erase_if(seen_, [&](const auto& entry) { return entry.second >= mark.nodes; });
  const bool holds_boundary =
      std::any_of(graph_.inputs.begin(), graph_.inputs.end(), [&](ValueId v) { return index_of(v) >= mark.values; }) ||
      std::any_of(graph_.constants.begin(), graph_.constants.end(),
                  [&](ValueId v) { return index_of(v) >= mark.values; });
  graph_.nodes.resize(mark.nodes);
  for (ValueInfo& info : graph_.values)
    if (info.node >= static_cast<int32_t>(mark.nodes)) info.node = -1;
  if (!holds_boundary) graph_.values.resize(mark.values);  // otherwise the dropped results stay as unused values
}

Graph GraphBuilder::build(std::vector<ValueId> outputs, std::vector<OutputAlias> aliases,
                          std::vector<std::pair<uint32_t, ValueId>> updates) {
  aliases.resize(outputs.size());
  graph_.outputs = std::move(outputs);
  graph_.output_aliases = std::move(aliases);
  graph_.updates = std::move(updates);
  seen_.clear();
  return std::move(graph_);
}

}  // namespace framejit::graph
