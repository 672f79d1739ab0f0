#include "inductor/lowering/one_query.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "graph/node_values.h"
#include "graph/op_lists.h"
#include "inductor/lowering/users.h"

namespace framejit::inductor {

using graph::Arg;
using graph::Node;
using graph::TensorMeta;
using graph::ValueId;

namespace {

std::optional<ValueId> mask_of(const Node& node) {
  const Arg* arg = graph::named_argument(node, "attn_bias");
  const ValueId* mask = arg == nullptr ? nullptr : arg->get<ValueId>();
  return mask == nullptr || *mask == graph::kNoValue ? std::nullopt : std::optional(*mask);
}

std::optional<double> scale_of(const Node& node, int64_t size) {
  const Arg* arg = graph::named_argument(node, "scale");
  if (arg == nullptr || arg->is_none()) return 1 / std::sqrt(static_cast<double>(size));
  const double* scale = arg->get<double>();
  return scale == nullptr ? std::nullopt : std::optional(*scale);
}

bool is_causal(const Node& node) {
  const Arg* arg = graph::named_argument(node, "is_causal");
  const bool* causal = arg == nullptr ? nullptr : arg->get<bool>();
  return causal == nullptr || *causal;
}

bool is_first_result_alone(const graph::Graph& graph, const Node& node) {
  const auto is_other = [&](ValueId v) {
    return v != graph::kNoValue && std::find(node.results.begin() + 1, node.results.end(), v) != node.results.end();
  };
  const auto reads_other = [&](const Node& user) {
    bool reads = false;
    graph::for_each_value(user, [&](ValueId v) { reads = reads || is_other(v); });
    return reads;
  };
  return std::none_of(graph.outputs.begin(), graph.outputs.end(), is_other) &&
         std::none_of(graph.updates.begin(), graph.updates.end(), [&](const auto& u) { return is_other(u.second); }) &&
         std::none_of(graph.nodes.begin(), graph.nodes.end(), reads_other);
}

// The threads of a key are a power of two, each with a word of 16 bytes of it.
bool has_rows_of_words(const TensorMeta& m) {
  constexpr int64_t kWord = 16, kMostThreads = 32;
  const int64_t bytes = m.sizes[3].constant() * row_of(m.dtype).bytes, words = bytes / kWord;
  return bytes % kWord == 0 && words <= kMostThreads && std::has_single_bit(static_cast<uint64_t>(words));
}

bool takes(const TensorMeta& m, const TensorMeta& q) {
  return m.ndim() == 4 && graph::all_constant(m.sizes) && m.dtype == q.dtype;
}

bool is_mask_for(const TensorMeta& mask, const TensorMeta& q, const TensorMeta& k) {
  const SymSizes scores{q.sizes[0], q.sizes[1], SymExpr(1), k.sizes[2]};
  if (mask.ndim() != 4 || !is_float(mask.dtype) || mask.dtype == DType::kFloat64) return false;
  for (size_t d = 0; d < 4; ++d)
    if (!(mask.sizes[d] == SymExpr(1)) && !(mask.sizes[d] == scores[d])) return false;
  return true;
}

}  // namespace

bool is_one_query_attention(const graph::Graph& graph, const Node& node, const TargetInfo& target) {
  if (!target.traits.multiplies_few_rows || !target.traits.blocks_meet) return false;
  if (!is_in(graph::OpList::takes_columns, node.op->name) || graph::draws_numbers(node) || is_causal(node))
    return false;
  const auto meta = [&](size_t i) -> const TensorMeta& { return graph.meta(*node.args[i].get<ValueId>()); };
  const TensorMeta &q = meta(0), &k = meta(1), &v = meta(2);
  if (!(is_half(q.dtype) || q.dtype == DType::kFloat32) || !takes(q, q) || !takes(k, q) || !takes(v, q)) return false;
  if (q.sizes[2].constant() != 1 || !(k.sizes == v.sizes) || !(q.sizes[0] == k.sizes[0]) ||
      !(q.sizes[1] == k.sizes[1]) || !(q.sizes[3] == k.sizes[3]))
    return false;
  const int64_t keys = k.sizes[2].constant();
  if (q.numel().constant() == 0 || keys < 2 || keys > target.costs.one_query_keys || !has_rows_of_words(q))
    return false;
  const std::optional<ValueId> mask = mask_of(node);
  return (!mask || is_mask_for(graph.meta(*mask), q, k)) && scale_of(node, q.sizes[3].constant()) &&
         is_first_result_alone(graph, node);
}

bool lower_one_query_attention(LowerContext& ctx) {
  const ValueId q = *ctx.tensor(0), k = *ctx.tensor(1), v = *ctx.tensor(2);
  const SymSizes& sizes = ctx.meta(k).sizes;
  const SymSizes heads{sizes[0], sizes[1]}, all{sizes[0], sizes[1], sizes[2]}, row{sizes[0], sizes[1], sizes[3]};
  const LoopBufferId scores = ctx.temp(DType::kFloat32, all), most = ctx.temp(DType::kFloat32, heads),
                     total = ctx.temp(DType::kFloat32, heads);
  {
    NestBuilder b = ctx.nest(all, {sizes[3]});
    const InstId x = ctx.load(b, q, {b.dim(0), b.dim(1), SymExpr(0), b.dim(3)});
    const InstId key = ctx.load(b, k, {b.dim(0), b.dim(1), b.dim(2), b.dim(3)});
    const InstId product = b.reduce(ReduceOp::kSum, b.scalar(ScalarOp::k_mul, {x, key}));
    const double scale = *scale_of(ctx.node(), sizes[3].constant());
    InstId score = b.scalar(ScalarOp::k_mul, {product, b.constant(scale, DType::kFloat32)});
    if (const auto mask = mask_of(ctx.node()))
      score =
          b.scalar(ScalarOp::k_add, {score, ctx.load_broadcast(b, *mask, {b.dim(0), b.dim(1), SymExpr(0), b.dim(2)})});
    ctx.add_nest(std::move(b), scores, {b.dim(0), b.dim(1), b.dim(2)}, score);
  }
  const auto score_of = [&](NestBuilder& b, const SymExpr& key) {
    return ctx.load_temp(b, scores, {b.dim(0), b.dim(1), key});
  };
  const auto power_of = [&](NestBuilder& b, const SymExpr& key) {
    const InstId score = score_of(b, key), largest = ctx.load_temp(b, most, {b.dim(0), b.dim(1)});
    return b.scalar(ScalarOp::k_exp, {b.scalar(ScalarOp::k_sub, {score, largest})});
  };
  {
    NestBuilder b = ctx.nest(heads, {sizes[2]});
    const InstId largest = b.reduce(ReduceOp::kMax, score_of(b, b.dim(2)));
    const InstId lowest = b.constant(-std::numeric_limits<double>::infinity(), DType::kFloat32);
    const InstId is_empty = b.scalar(ScalarOp::k_eq, {largest, lowest});  // the mask excludes everything
    const InstId value = b.scalar(ScalarOp::k_select, {is_empty, b.constant(0, DType::kFloat32), largest});
    ctx.add_nest(std::move(b), most, {b.dim(0), b.dim(1)}, value);
  }
  {
    NestBuilder b = ctx.nest(heads, {sizes[2]});
    const InstId sum = b.reduce(ReduceOp::kSum, power_of(b, b.dim(2)));
    ctx.add_nest(std::move(b), total, {b.dim(0), b.dim(1)}, sum);
  }
  NestBuilder b = ctx.nest(row, {sizes[2]});
  const InstId power = power_of(b, b.dim(3));
  const InstId value = ctx.load(b, v, {b.dim(0), b.dim(1), b.dim(3), b.dim(2)});
  const InstId sum = b.reduce(ReduceOp::kSum, b.scalar(ScalarOp::k_mul, {power, value}));
  const InstId weight = ctx.load_temp(b, total, {b.dim(0), b.dim(1)}), zero = b.constant(0, DType::kFloat32);
  const InstId is_empty = b.scalar(ScalarOp::k_eq, {weight, zero});
  const InstId result = b.scalar(ScalarOp::k_select, {is_empty, zero, b.scalar(ScalarOp::k_div, {sum, weight})});
  ctx.add_nest(std::move(b), ctx.result_buffer(), {b.dim(0), b.dim(1), SymExpr(0), b.dim(2)}, result);
  return true;
}

}  // namespace framejit::inductor
