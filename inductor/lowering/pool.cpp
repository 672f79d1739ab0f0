// inductor/lowering/pool.cpp — poolings over small windows: each element of the window is a separate load.
//
// If a window may reach outside the input, its loads are masked. The masks compare positions in the result, not in
// the input, so that lanes step through them one by one (inductor/cpu/nest_masks.cpp). Larger windows are left to
// PyTorch, and so are maxima whose position is needed (of several NaN, eager takes the last).
#include <algorithm>
#include <array>
#include <cmath>

#include "graph/node_values.h"
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::ValueId;

namespace {

// Along one of the two dimensions: element k of window o is element o * stride - padding + k * dilation of the input.
struct Side {
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  SymExpr size, results;
  SymExpr place(const SymExpr& o, int64_t k) const { return o * SymExpr(stride) + SymExpr(k * dilation - padding); }
  // Windows whose element k is inside: from `first` up to, but not including, `end`.
  SymExpr first(int64_t k) const {
    return SymExpr(std::max<int64_t>((padding - k * dilation + stride - 1) / stride, 0));
  }
  SymExpr end(int64_t k) const {
    return SymExpr::floor_div(size + SymExpr(padding - k * dilation + stride - 1), stride);
  }
};
using Window = std::array<Side, 2>;

// self, kernel_size, stride (none: the kernel's size), padding; and dilation, if the op has one.
std::optional<Window> window_of(LowerContext& ctx, size_t dilation_at) {
  const auto self = ctx.tensor(0);
  const auto kernel = ctx.integers(1);
  if (!self || !kernel || kernel->empty() || !is_float(ctx.meta(*self).dtype) || ctx.meta(*self).ndim() < 3)
    return std::nullopt;
  const auto list = [&](size_t i, const std::vector<int64_t>& otherwise) -> std::optional<std::vector<int64_t>> {
    if (!ctx.given(i)) return otherwise;
    auto given = ctx.integers(i);
    return given && given->empty() ? std::optional(otherwise) : given;
  };
  const auto stride = list(2, *kernel), padding = list(3, {0}),
             dilation = dilation_at == 0 ? std::optional(std::vector<int64_t>{1}) : list(dilation_at, {1});
  if (!stride || !padding || !dilation) return std::nullopt;
  const auto side = [](const std::vector<int64_t>& v, size_t d) { return v[v.size() == 1 ? 0 : d]; };
  Window window;
  const size_t first = ctx.meta(*self).ndim() - 2;
  for (size_t d = 0; d < 2; ++d)
    window[d] = {side(*kernel, d),
                 side(*stride, d),
                 side(*padding, d),
                 side(*dilation, d),
                 ctx.meta(*self).sizes[first + d],
                 ctx.result_meta().sizes[first + d]};
  return is_pool_kernel(ctx.graph(), ctx.target(), ctx.node()) ? std::optional(window) : std::nullopt;
}

// Element k[0], k[1] of the window; `outside` if the input has no such element.
InstId element(LowerContext& ctx, NestBuilder& b, const Window& window, std::array<int64_t, 2> k, double outside) {
  std::vector<SymExpr> at = b.range_dims();
  const size_t first = at.size() - 2;
  InstId inside = b.constant(1, DType::kBool);
  const auto require = [&](ScalarOp op, const SymExpr& place, const SymExpr& border) {
    inside = b.scalar(ScalarOp::k_bit_and, {inside, b.scalar(op, {b.index(place), b.index(border)})});
  };
  for (size_t d = 0; d < 2; ++d) {
    const SymExpr o = at[first + d];
    require(ScalarOp::k_ge, o, window[d].first(k[d]));
    require(ScalarOp::k_lt, o, window[d].end(k[d]));
    at[first + d] = window[d].place(o, k[d]);
  }
  return ctx.load_masked(b, *ctx.tensor(0), std::move(at), inside, b.constant(outside, ctx.meta(*ctx.tensor(0)).dtype));
}

using Join = InstId (*)(NestBuilder& b, InstId element, InstId before);

// The elements joined row by row, each with those before it.
InstId joined(LowerContext& ctx, NestBuilder& b, const Window& window, double outside, Join join) {
  InstId value = kNoInst;
  for (int64_t row = 0; row < window[0].kernel; ++row)
    for (int64_t column = 0; column < window[1].kernel; ++column) {
      const InstId x = element(ctx, b, window, {row, column}, outside);
      value = value == kNoInst ? x : join(b, x, value);
    }
  return value;
}

// Of two zeros, the first one in the window wins, as in eager.
InstId larger(NestBuilder& b, InstId element, InstId before) {
  return b.scalar(ScalarOp::k_maximum, {element, before});
}
InstId larger_by_comparison(NestBuilder& b, InstId element, InstId before) {
  const InstId is_larger = b.scalar(ScalarOp::k_gt, {element, before}),
               is_nan = b.scalar(ScalarOp::k_ne, {element, element});
  return b.scalar(ScalarOp::k_select, {b.scalar(ScalarOp::k_bit_or, {is_larger, is_nan}), element, before});
}
InstId added(NestBuilder& b, InstId element, InstId before) { return b.scalar(ScalarOp::k_add, {element, before}); }

bool is_used(const graph::Graph& graph, ValueId v) {
  const auto is = [&](ValueId other) { return other == v; };
  if (v == graph::kNoValue) return false;
  if (std::any_of(graph.outputs.begin(), graph.outputs.end(), is)) return true;
  if (std::any_of(graph.updates.begin(), graph.updates.end(), [&](const auto& update) { return is(update.second); }))
    return true;
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const graph::Node& node) { return graph::has_argument(node, v); });
}

// max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
bool lower_max_pool(LowerContext& ctx) {
  const auto window = window_of(ctx, 4);
  if (!window) return false;
  NestBuilder b = ctx.result_nest();
  const InstId value =
      joined(ctx, b, *window, -INFINITY, ctx.target().traits.maximum_keeps_zeros ? larger : larger_by_comparison);
  ctx.store_result(std::move(b), value);
  return true;
}

// avg_pool2d(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override): added row by row, as
// eager does, which begins with 0: the mean of zeros is never -0.
bool lower_avg_pool(LowerContext& ctx) {
  const auto window = window_of(ctx, 0);
  if (!window || (ctx.given(6) && !ctx.integer(6))) return false;
  NestBuilder b = ctx.result_nest();
  const InstId elements = joined(ctx, b, *window, 0, added);
  const InstId sum = b.scalar(ScalarOp::k_add, {elements, b.constant(0, b.dtype(elements))});
  const bool with_padding = ctx.flag(5, true);
  SymExpr count = 1;
  for (size_t d = 0; d < 2; ++d) {
    const Side& side = (*window)[d];
    const SymExpr begin = side.place(b.range_dims()[b.range_dims().size() - 2 + d], 0),
                  end = begin + SymExpr(side.kernel);
    const bool is_whole = !ctx.flag(4, false) && (with_padding || side.padding == 0);
    const SymExpr taken = with_padding ? SymExpr::min(end, side.size + SymExpr(side.padding)) - begin
                                       : SymExpr::min(end, side.size) - SymExpr::max(begin, 0);
    count = count * (is_whole ? SymExpr(side.kernel) : taken);
  }
  if (ctx.given(6)) count = SymExpr(*ctx.integer(6));
  const InstId mean = b.scalar(ScalarOp::k_div, {sum, b.cast(b.index(count), b.dtype(sum))});
  ctx.store_result(std::move(b), mean);
  return true;
}

}  // namespace

bool is_pool_kernel(const graph::Graph& graph, const TargetInfo& target, const graph::Node& node) {
  const auto* kernel = node.args.size() > 1 ? node.args[1].get<SymSizes>() : nullptr;
  if (kernel == nullptr || kernel->empty() || (node.results.size() > 1 && is_used(graph, node.results[1])))
    return false;
  const SymExpr elements = kernel->size() == 1 ? kernel->front() * kernel->front() : (*kernel)[0] * (*kernel)[1];
  return elements.is_constant() && elements.constant() <= target.costs.pool_elements;
}

void register_pool_lowerings() {
  add_lowering("max_pool2d_with_indices", lower_max_pool);
  add_lowering("avg_pool2d", lower_avg_pool);
}

}  // namespace framejit::inductor
