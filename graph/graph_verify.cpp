// graph/graph_verify.cpp — the invariants of every graph, in both dialects. The error names the first broken one and
// its node.
#include <algorithm>

#include "graph/node_values.h"

namespace framejit::graph {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), defined_(graph.values.size(), false) {}

  Result<void> run() {
    if (graph_.inputs.size() != graph_.input_names.size())
      return fail("there must be as many input names as inputs");
    for (ValueId v : graph_.inputs) FJ_TRY_VOID(define(v, "input"));
    for (ValueId v : graph_.constants) FJ_TRY_VOID(define(v, "constant"));
    for (size_t i = 0; i < graph_.nodes.size(); ++i) FJ_TRY_VOID(node(i));
    return results();
  }

 private:
  Error fail(const std::string& what) const { return {Reason::not_verified, "graph @" + graph_.name + ": " + what}; }

  Result<void> meta(const TensorMeta& meta, const std::string& where) const {
    if (meta.sizes.size() != meta.strides.size())
      return fail(where + " has " + std::to_string(meta.sizes.size()) + " sizes but " +
                  std::to_string(meta.strides.size()) + " strides");
    std::vector<SymbolId> symbols;
    for (const SymExpr& e : meta.sizes) e.collect_symbols(symbols);
    for (const SymExpr& e : meta.strides) e.collect_symbols(symbols);
    meta.offset.collect_symbols(symbols);
    if (!symbols.empty() && symbols.back() >= graph_.shapes.symbol_count())
      return fail(where + " uses unknown symbol s" + std::to_string(symbols.back()));
    return {};
  }

  Result<void> define(ValueId v, const std::string& where) {
    if (index_of(v) >= graph_.values.size()) return fail(where + " is out of range");
    if (defined_[index_of(v)]) return fail(where + " is defined twice");
    defined_[index_of(v)] = true;
    return meta(graph_.meta(v), where);
  }

  bool is_defined(ValueId v) const { return v == kNoValue || (index_of(v) < defined_.size() && defined_[index_of(v)]); }

  Result<void> node(size_t index) {
    const Node& n = graph_.nodes[index];
    if (n.op == nullptr) return fail("node " + std::to_string(index) + " has no op");
    const std::string where = "node " + std::to_string(index) + " (" + n.op->name + ")";
    if (!n.op->arg_names.empty() && n.args.size() > n.op->arg_names.size())
      return fail(where + " has too many arguments");
    std::vector<ValueId> arguments;
    for_each_value(n, [&](ValueId v) { arguments.push_back(v); });
    for (ValueId v : arguments)
      if (!is_defined(v)) return fail(where + " uses a value before it is defined");
    if (!n.result_lists.empty()) {
      size_t expected = 0;
      for (int16_t length : n.result_lists) expected += length < 0 ? 1 : static_cast<size_t>(length);
      if (expected != n.results.size()) return fail(where + " has result lists that do not add up");
    }
    for (ValueId v : n.results) {
      if (v == kNoValue || std::find(arguments.begin(), arguments.end(), v) != arguments.end()) continue;
      FJ_TRY_VOID(define(v, "a result of " + where));
      if (graph_.values[index_of(v)].node != static_cast<int32_t>(index))
        return fail(where + " does not own its result");
    }
    if (!graph_.updates.empty() && n.op->has(kMutates)) return fail(where + " writes in a functional graph");
    if (n.line >= graph_.lines.size()) return fail(where + " has an unknown line");
    return {};
  }

  // Whether `v` is a view of the input, or of what is written to it.
  bool shows(ValueId v, uint32_t input) const {
    if (v == kNoValue) return true;
    const ValueId memory = memory_of(graph_, v);
    if (const Node* negated = graph_.maker(memory, KnownOp::neg))  // in place of _neg_view; the call makes such a view
      return shows(*negated->args[0].get<ValueId>(), input);
    return memory == graph_.inputs[input] || std::ranges::any_of(graph_.updates, [&](const auto& update) {
             return update.first == input && memory_of(graph_, update.second) == memory;
           });
  }

  Result<void> results() const {
    for (ValueId v : graph_.outputs)
      if (!is_defined(v)) return fail("an output is not defined");
    if (graph_.output_aliases.size() != graph_.outputs.size())
      return fail("there must be as many output aliases as outputs");
    for (size_t i = 0; i < graph_.output_aliases.size(); ++i) {
      const OutputAlias& alias = graph_.output_aliases[i];
      const bool of_output = alias.kind == OutputKind::kViewOfOutput;
      const size_t limit = of_output ? i : graph_.inputs.size();
      if (alias.kind != OutputKind::kFresh && alias.of >= limit)
        return fail("output " + std::to_string(i) + " aliases something that does not exist");
      if (alias.kind == OutputKind::kViewOfInput && !shows(graph_.outputs[i], alias.of))
        return fail("output " + std::to_string(i) + " does not lie in input " + std::to_string(alias.of));
    }
    for (const auto& [input, value] : graph_.updates) {
      if (input >= graph_.inputs.size() || value == kNoValue || !is_defined(value))
        return fail("an update names something that does not exist");
      const TensorMeta &to = graph_.meta(graph_.inputs[input]), &from = graph_.meta(value);
      if (to.dtype != from.dtype || to.sizes.size() != from.sizes.size())
        return fail("update of input " + std::to_string(input) + " changes its type");
    }
    return {};
  }

  const Graph& graph_;
  std::vector<bool> defined_;
};

}  // namespace

Result<void> verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace framejit::graph
