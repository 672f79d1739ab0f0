#include "inductor/lowering/few_rows.h"

#include <algorithm>

#include "graph/passes/decompose.h"
#include "graph/passes/rebuild.h"

namespace framejit::inductor {

using graph::Node;
using graph::TensorMeta;
using graph::ValueId;

namespace {

// Which argument is the left operand; the right one follows.
constexpr size_t kNoProduct = SIZE_MAX;
size_t left_argument(const Node& node) {
  if (node.op->is(graph::KnownOp::mm)) return 0;
  const bool adds =
      node.op->is(graph::KnownOp::addmm) && std::all_of(node.args.begin() + 3, node.args.end(), graph::is_one);
  return adds ? 1 : kNoProduct;
}

bool has_dense_shape(const TensorMeta& meta) {
  return graph::all_constant(meta.sizes) && graph::all_constant(meta.strides);
}

}  // namespace

bool is_few_row_product(const graph::Graph& graph, const Node& node, const TargetInfo& target) {
  if (!target.traits.multiplies_few_rows) return false;
  const size_t at = left_argument(node);
  if (at == kNoProduct) return false;
  const TensorMeta &left = graph.meta(*node.args[at].get<ValueId>()),
                   &right = graph.meta(*node.args[at + 1].get<ValueId>()), &result = graph.meta(node.results[0]);
  const bool is_single_or_half = result.dtype == DType::kFloat32 || is_half(result.dtype);
  if (!is_single_or_half || left.dtype != result.dtype || right.dtype != result.dtype) return false;
  if (!has_dense_shape(left) || !has_dense_shape(right)) return false;
  const Costs& costs = target.costs;
  const int64_t rows = left.sizes[0].constant(), terms = left.sizes[1].constant(), columns = right.sizes[1].constant();
  if (rows < 1 || rows > costs.few_product_rows || columns < 1) return false;
  if (terms < 1 || terms > costs.few_product_terms) return false;
  constexpr int64_t kWord = 16;
  const int64_t together = kWord / row_of(right.dtype).bytes;
  const auto is_whole = [&](const SymExpr& step) { return step.constant() % together == 0; };
  const bool steps_along_rows = left.strides[1].constant() == 1 && (rows == 1 || is_whole(left.strides[0]));
  const bool steps_along_columns = right.strides[0].constant() == 1 && (columns == 1 || is_whole(right.strides[1]));
  return terms % together == 0 && steps_along_rows && steps_along_columns;
}

bool lower_few_row_product(LowerContext& ctx) {
  const size_t at = left_argument(ctx.node());
  const ValueId left = *ctx.tensor(at), right = *ctx.tensor(at + 1);
  const SymSizes& sizes = ctx.meta(left).sizes;
  NestBuilder b = ctx.nest({sizes[0], ctx.meta(right).sizes[1]}, {sizes[1]});
  const InstId x = ctx.load(b, left, {b.dim(0), b.dim(2)});
  const InstId w = ctx.load(b, right, {b.dim(2), b.dim(1)});
  InstId result = b.reduce(ReduceOp::kSum, b.scalar(ScalarOp::k_mul, {x, w}));
  if (at > 0) result = b.scalar(ScalarOp::k_add, {result, ctx.load_broadcast(b, *ctx.tensor(0), b.range_dims())});
  ctx.store_result(std::move(b), result);
  return true;
}

}  // namespace framejit::inductor
