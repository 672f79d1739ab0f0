// graph/passes/partial_backward.cpp — the backward when some outputs get no gradient, or some inputs need none.
//
// In eager an undefined gradient is left out of sums, and an op all of whose gradients are undefined does not run, so
// that the gradients before it are undefined too. The same here: "undefined" goes through the graph from the tangents.
// If an op takes both defined and undefined gradients (a cat of the gradients of pieces), eager makes zeros for the
// undefined ones. So does this pass.
#include <algorithm>

#include "graph/node_values.h"
#include "graph/passes/partition.h"
#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"

namespace framejit::graph {
namespace {

class PartialBackward {
 public:
  PartialBackward(const Graph& from, size_t first_tangent, const std::vector<bool>& given)
      : from_(from), rebuild_(from, false), gradient_(from.values.size()), undefined_(from.values.size()) {
    for (size_t i = first_tangent; i < from.inputs.size(); ++i) {
      gradient_[index_of(from.inputs[i])] = true;
      undefined_[index_of(from.inputs[i])] = !given[i - first_tangent];
    }
  }

  // `reached`: per gradient, whether eager makes it.
  Graph run(const std::vector<bool>& wanted, const std::vector<bool>& reached) {
    for (const Node& node : from_.nodes) take(node);
    std::vector<ValueId> outputs;
    std::vector<OutputAlias> aliases;
    for (size_t i = 0; i < from_.outputs.size(); ++i) {
      const ValueId v = from_.outputs[i];
      const bool is_absent = v == kNoValue || !wanted[i] || !reached[i];
      const bool is_shown = !is_absent && !is_undefined(v) && from_.output_aliases[i].kind != OutputKind::kFresh;
      outputs.push_back(is_absent  ? kNoValue
                        : is_shown ? rebuild_.get(v)
                                   : with_layout(rebuild_.out(), value_of(v), from_.meta(v)));
      aliases.push_back(is_shown ? from_.output_aliases[i] : OutputAlias{});
    }
    return rebuild_.build(std::move(outputs), std::move(aliases), {});
  }

 private:
  bool is_undefined(ValueId v) const { return v != kNoValue && undefined_[index_of(v)]; }
  bool is_gradient(ValueId v) const { return v != kNoValue && gradient_[index_of(v)]; }

  void take(const Node& node) {
    bool any = false, any_defined = false, any_undefined = false;
    for_each_value(node, [&](ValueId v) {
      if (!is_gradient(v)) return;
      any = true;
      (is_undefined(v) ? any_undefined : any_defined) = true;
    });
    for (ValueId v : node.results)
      if (v != kNoValue) gradient_[index_of(v)] = any;
    if (any && !any_defined) {
      for (ValueId v : node.results)
        if (v != kNoValue) undefined_[index_of(v)] = true;
      return;
    }
    if (any_undefined && take_sum(node)) return;
    if (any_undefined) fill(node);  // for this op alone: to others the gradients stay undefined
    rebuild_.copy_node(node);
  }

  // The other term of a sum of two gradients.
  bool take_sum(const Node& node) {
    if (!node.op->is(KnownOp::add_tensor) || node.args.size() < 3 || !is_one(node.args[2])) return false;
    const ValueId *left = node.args[0].get<ValueId>(), *right = node.args[1].get<ValueId>();
    if (left == nullptr || right == nullptr) return false;
    const ValueId defined = is_undefined(*left) ? *right : *left;
    const TensorMeta &meta = from_.meta(defined), &sum = from_.meta(node.results[0]);
    if (meta.dtype != sum.dtype || meta.device != sum.device || meta.sizes != sum.sizes) return false;
    rebuild_.begin(node);
    rebuild_.set(node.results[0], with_layout(rebuild_.out(), rebuild_.get(defined), sum));
    return true;
  }

  void fill(const Node& node) {
    rebuild_.begin(node);
    for_each_value(node, [&](ValueId v) {
      if (is_undefined(v)) rebuild_.set(v, with_layout(rebuild_.out(), value_of(v), from_.meta(v)));
    });
  }

  // A gradient that eager makes, although its value comes from the gradients that are not given, is zero.
  ValueId value_of(ValueId v) {
    if (!undefined_[index_of(v)]) return rebuild_.get(v);
    const TensorMeta& like = from_.meta(v);
    return rebuild_.out().emit("full", {like.sizes, 0.0, like.dtype, Arg{}, like.device, Arg{}});
  }

  const Graph& from_;
  Rebuild rebuild_;
  std::vector<bool> gradient_, undefined_;
};

}  // namespace

Result<Graph> partial_backward(const TrainingGraphs& graphs, const std::vector<bool>& given,
                               const std::vector<bool>& wanted) {
  std::vector<bool> reached(wanted.size());
  for (size_t r = 0; r < given.size(); ++r)
    for (size_t g = 0; given[r] && g < wanted.size(); ++g) reached[g] = reached[g] || graphs.reaches[r][g];
  PartialBackward partial(graphs.backward, graphs.saved.size(), given);
  return dce_of_backward(partial.run(wanted, reached), graphs.saved.size());
}

}  // namespace framejit::graph
