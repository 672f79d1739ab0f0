#include "tests/unit/graph_aten/op_by_op.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>

#include <sstream>

#include "graph/aten/op_info.h"
#include "graph/int64_range.h"

namespace framejit::graph {
namespace {

bool holds(const SizeFact& fact, const std::vector<int64_t>& symbols) {
  const std::optional<int64_t> a = value_of(fact.left, symbols), b = value_of(fact.right, symbols);
  return a && b && graph::holds(*a, fact.relation, *b);
}

class OpByOpRun {
 public:
  OpByOpRun(const Graph& graph, const OpByOpInputs& in, const std::vector<int64_t>& symbols, bool compare)
      : graph_(graph), in_(in), values_(graph.values.size()), symbols_(symbols), compare_(compare) {}

  OpByOpResult run() {
    for (const SizeFact& fact : graph_.shapes.facts())
      if (!holds(fact, symbols_))
        result_.broken_facts.push_back(fact.left.text() + " against " + fact.right.text() + " (" + fact.why + ")");
    if (!result_.broken_facts.empty()) return std::move(result_);
    for (size_t i = 0; i < graph_.inputs.size(); ++i) values_[index_of(graph_.inputs[i])] = in_.inputs[i];
    for (size_t i = 0; i < graph_.constants.size(); ++i) values_[index_of(graph_.constants[i])] = in_.constants[i];
    for (const Node& node : graph_.nodes) run_node(node);
    for (ValueId v : graph_.outputs) result_.outputs.push_back(values_[index_of(v)]);
    for (const auto& [input, value] : graph_.updates) in_.inputs[input].copy_(values_[index_of(value)]);
    return std::move(result_);
  }

 private:
  void run_node(const Node& node) {
    const OpInfo* info = find_op_info(node.op->name);
    FJ_ASSERT(info != nullptr, "no operator " + node.op->name);
    const auto& arguments = info->handle.schema().arguments();
    torch::jit::Stack stack;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (i < node.args.size())
        stack.push_back(ivalue_of(node.args[i], arguments[i], values_, in_.opaques,
                                  [this](const SymExpr& e) { return e.eval(symbols_); }));
      else stack.push_back(arguments[i].default_value().value_or(c10::IValue()));
    }
    info->handle.callBoxed(stack);
    size_t next = 0;
    for (const c10::IValue& value : stack) {
      if (value.isTensor()) take(node, next++, value.toTensor());
      if (value.isTensorList())
        for (const at::Tensor& t : value.toTensorVector()) take(node, next++, t);
    }
    if (next != node.results.size() && !node.results.empty())
      result_.wrong_shapes.push_back(node.op->name + ": " + std::to_string(next) + " results, recorded " +
                                     std::to_string(node.results.size()));
  }

  void take(const Node& node, size_t index, const at::Tensor& tensor) {
    if (index >= node.results.size() || node.results[index] == kNoValue) return;
    const ValueId v = node.results[index];
    values_[index_of(v)] = tensor;
    if (compare_) compare(node, v, tensor);
  }

  void compare(const Node& node, ValueId v, const at::Tensor& tensor) {
    const TensorMeta& meta = graph_.meta(v);
    if (!tensor.defined()) {
      result_.wrong_shapes.push_back(node.op->name + ": undefined, recorded " + text_of(meta));
      return;
    }
    bool same = dtype_of(tensor.scalar_type()) == meta.dtype && static_cast<size_t>(tensor.dim()) == meta.ndim();
    for (size_t d = 0; same && d < meta.ndim(); ++d) {
      const auto i = static_cast<int64_t>(d);
      same = meta.sizes[d].eval(symbols_) == tensor.size(i) &&
             (tensor.size(i) <= 1 || tensor.numel() == 0 || meta.strides[d].eval(symbols_) == tensor.stride(i));
    }
    if (same) return;
    std::ostringstream text;
    text << "%" << index_of(v) << " = " << node.op->name << ": recorded " << text_of(meta) << " real "
         << tensor.scalar_type() << tensor.sizes() << " strides " << tensor.strides();
    result_.wrong_shapes.push_back(text.str());
  }

  const Graph& graph_;
  const OpByOpInputs& in_;
  std::vector<at::Tensor> values_;
  const std::vector<int64_t>& symbols_;
  bool compare_;
  OpByOpResult result_;
};

}  // namespace

OpByOpResult run_op_by_op(const Graph& graph, const OpByOpInputs& in, const std::vector<int64_t>& symbols,
                          bool compare) {
  at::AutoDispatchBelowADInplaceOrView below;
  return OpByOpRun(graph, in, symbols, compare).run();
}

}  // namespace framejit::graph
