#include "inductor/schedule/products.h"

#include <algorithm>
#include <optional>

namespace framejit::inductor {

using graph::Graph;
using graph::Node;
using graph::ValueId;

namespace {

// Whether an operand is read in steps of one along `sum`, and with a constant stride along `other`.
bool lies_along(const LoopProgram& program, const LoopInst& load, const DimBounds& bounds, const SymExpr& sum,
                const SymExpr& other) {
  SymExpr along_sum, along_other, rest, left;
  const SymExpr index = linear_index(load.index, program.buffers[load.buffer].strides, bounds);
  return split_linear(index, sum, along_sum, rest) && along_sum == SymExpr(1) &&
         split_linear(rest, other, along_other, left) && !(along_other == SymExpr(0));
}

// With few rows, the library's panels do not pay, however long the sums are.
bool pays(const Costs& costs, int64_t rows, int64_t columns, int64_t terms) {
  if (terms < costs.product_least_terms || columns < costs.product_least_columns) return false;
  if (rows < costs.product_least_rows || rows > costs.product_rows) return false;
  return rows <= costs.product_few_rows || terms <= costs.product_terms;
}

std::optional<Nest> product_nest(const Graph& graph, const std::vector<ValueForm>& forms, const SizeHints& hints,
                                 const Costs& costs, ProductRule rule, const LoopProgram& program,
                                 const ExternCall& call) {
  const Node& node = graph.nodes[call.node];
  if (!node.op->is(graph::KnownOp::mm) || call.writes.size() != 1) return std::nullopt;
  const ValueId left = *node.args[0].get<ValueId>(), right = *node.args[1].get<ValueId>();
  const auto is_float32 = [&](ValueId v) { return graph.meta(v).dtype == DType::kFloat32; };
  if (!is_float32(left) || !is_float32(right) || !is_float32(node.results[0])) return std::nullopt;
  const SymExpr rows = graph.meta(left).sizes[0], terms = graph.meta(left).sizes[1],
                columns = graph.meta(right).sizes[1];
  if (!terms.is_constant() || !columns.is_constant() || terms.constant() < 2 || columns.constant() < 2 ||
      is_size_one(graph, rows))
    return std::nullopt;
  if (rule == ProductRule::kWhereTheyPay &&
      !pays(costs, rows.eval(hints.symbols), columns.constant(), terms.constant()))
    return std::nullopt;
  NestBuilder b(program.symbol_count, "product", {columns, rows}, {terms});
  b.add_origins({call.node});
  const InstId x = load_value(graph, forms, program, b, left, {b.dim(1), b.dim(2)});
  const InstId w = load_value(graph, forms, program, b, right, {b.dim(2), b.dim(0)});
  const DimBounds bounds = b.bounds();
  if (b.peek().body.size() != 2 || !lies_along(program, b.peek().body[x], bounds, b.dim(2), b.dim(1)) ||
      !lies_along(program, b.peek().body[w], bounds, b.dim(2), b.dim(0)))
    return std::nullopt;
  b.store(call.writes[0], {b.dim(1), b.dim(0)}, b.reduce(ReduceOp::kSum, b.scalar(ScalarOp::k_mul, {x, w})));
  return b.build();
}

}  // namespace

void take_products(const Graph& graph, const std::vector<ValueForm>& forms, const SizeHints& hints,
                   const TargetInfo& target, ProductRule rule, Schedule& schedule) {
  if (!target.traits.has_product_kernels) return;
  for (auto& step : schedule.steps) {
    const auto* call = std::get_if<ExternCall>(&step);
    if (call == nullptr) continue;
    if (auto nest = product_nest(graph, forms, hints, target.costs, rule, schedule.program, *call))
      step = Group{{std::move(*nest)}, 1, true};
  }
}

}  // namespace framejit::inductor
