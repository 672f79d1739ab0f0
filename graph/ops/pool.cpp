// graph/ops/pool.cpp — poolings over windows and to given sizes, of two and three dimensions, unpoolings, and their
// gradients.
#include <algorithm>

#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;

SymExpr pooled(ShapeEnv& env, const SymExpr& size, const SymExpr& kernel, const SymExpr& stride, const SymExpr& padding,
               const SymExpr& dilation, bool ceil_mode) {
  const SymExpr span = size + padding * 2 - dilation * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : SymExpr(0));
  const SymExpr out = SymExpr::floor_div(span, stride) + 1;
  // The last window must start inside the input or its left padding.
  if (ceil_mode && env.decide(size + padding, Relation::kLe, (out - 1) * stride, "last pooling window")) return out - 1;
  return out;
}

// A window with positive steps, and padding of at most half of it.
bool is_pool_window(ShapeEnv& env, const SymSizes& kernel, const SymSizes& stride, const SymSizes& padding,
                    const SymSizes& dilation) {
  const auto positive = [&](const SymExpr& e) { return env.decide(0, Relation::kLt, e, "pooling window"); };
  for (size_t i = 0; i < kernel.size(); ++i) {
    if (!positive(kernel[i]) || !positive(stride[i]) || !positive(dilation[i]) || any_negative(env, {padding[i]}))
      return false;
    if (!env.decide(padding[i] * 2, Relation::kLe, kernel[i], "pooling padding")) return false;
  }
  return true;
}

// Images have the format that their input suggests. Volumes without a batch are contiguous; one that looks like a
// channels_last image is refused.
bool add_in_format(const TensorMeta& self, SymSizes sizes, size_t count, ShapeEnv& env, Results& results) {
  if (count == 3 && self.ndim() == 4 && suggests_channels_last(self, env)) return false;
  results.push_back(in_suggested_format(self, std::move(sizes), env));
  return true;
}

// self, kernel, stride (default: kernel), padding, then dilation and ceil_mode at the given places.
template <size_t count>
bool pooled_sizes(const RuleArgs& args, ShapeEnv& env, size_t dilation_at, size_t ceil_at, SymSizes& sizes) {
  const TensorMeta* self = args.tensor(0);
  SymSizes kernel, stride, padding, dilation(count, SymExpr(1));
  if (self == nullptr || self->ndim() < count + 1 || self->ndim() > count + 2 || !spatial(args, 1, count, {}, kernel))
    return false;
  if (!spatial(args, 2, count, kernel, stride) || !spatial(args, 3, count, {0}, padding)) return false;
  if (dilation_at != 0 && !spatial(args, dilation_at, count, {1}, dilation)) return false;
  if (!is_pool_window(env, kernel, stride, padding, dilation)) return false;
  sizes = self->sizes;
  for (size_t i = 0; i < count; ++i) {
    SymExpr& size = sizes[self->ndim() - count + i];
    size = pooled(env, size, kernel[i], stride[i], padding[i], dilation[i], args.flag(ceil_at));
    if (env.decide(size, Relation::kLe, 0, "the pooled result has elements")) return false;
  }
  return true;
}

template <size_t count>
bool max_pool_with_indices(const RuleArgs& args, ShapeEnv& env, Results& results) {
  SymSizes sizes;
  if (!pooled_sizes<count>(args, env, 4, 5, sizes) ||
      !add_in_format(*args.tensor(0), std::move(sizes), count, env, results))
    return false;
  results.push_back(results[0]);
  results[1].dtype = DType::kInt64;
  return true;
}

bool avg_pool2d(const RuleArgs& args, ShapeEnv& env, Results& results) {
  SymSizes sizes;
  return pooled_sizes<2>(args, env, 0, 4, sizes) && add_in_format(*args.tensor(0), std::move(sizes), 2, env, results);
}

// The kernels for volumes do not support half precision.
bool holds_halves(const TensorMeta* t) { return t != nullptr && is_half(t->dtype); }

bool avg_pool3d(const RuleArgs& args, ShapeEnv& env, Results& results) {
  SymSizes sizes;
  if (holds_halves(args.tensor(0)) || !pooled_sizes<3>(args, env, 0, 4, sizes)) return false;
  results.push_back(dense_like(*args.tensor(0), std::move(sizes)));
  return true;
}

// self, output_size: the last dimensions are replaced. Pooled dimensions must have elements.
template <size_t count>
bool adapted_sizes(const RuleArgs& args, ShapeEnv& env, SymSizes& sizes) {
  const TensorMeta* self = args.tensor(0);
  SymSizes target;
  if (self == nullptr || self->ndim() < count + 1 || self->ndim() > count + 2 || !args.sizes(1, target) ||
      target.size() != count || any_negative(env, target))
    return false;
  for (size_t i = self->ndim() - count - 1; i < self->ndim(); ++i)
    if (!env.decide(0, Relation::kLt, self->sizes[i], "pooled dimension has elements")) return false;
  sizes = self->sizes;
  std::copy(target.begin(), target.end(), sizes.end() - static_cast<std::ptrdiff_t>(count));
  return true;
}

template <size_t count>
bool adaptive_max_pool(const RuleArgs& args, ShapeEnv& env, Results& results) {
  SymSizes sizes;
  if (!adapted_sizes<count>(args, env, sizes)) return false;
  const TensorMeta& self = *args.tensor(0);
  results.push_back(count == 2 ? in_suggested_format(self, std::move(sizes), env) : dense_like(self, std::move(sizes)));
  results.push_back(results[0]);
  results[1].dtype = DType::kInt64;
  return true;
}

bool adaptive_avg_pool3d(const RuleArgs& args, ShapeEnv& env, Results& results) {
  SymSizes sizes;
  if (!adapted_sizes<3>(args, env, sizes)) return false;
  results.push_back(dense_like(*args.tensor(0), std::move(sizes)));
  return true;
}

// self, indices, output_size, then stride and padding for volumes, which do not affect the result.
template <size_t count>
bool max_unpool(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *self = args.tensor(0), *indices = args.tensor(1);
  SymSizes target;
  if (self == nullptr || indices == nullptr || indices->dtype != DType::kInt64 || self->ndim() < count + 1 ||
      self->ndim() > count + 2 || indices->ndim() != self->ndim() || !args.sizes(2, target) || target.size() != count ||
      any_negative(env, target))
    return false;
  for (size_t i = 0; i < self->ndim(); ++i) {
    const bool may_be_none = i == 0 && self->ndim() == count + 2;
    if (!same_size(env, self->sizes[i], indices->sizes[i]) ||
        (!may_be_none && !env.decide(0, Relation::kLt, self->sizes[i], "unpooled dimension has elements")))
      return false;
  }
  SymSizes sizes = self->sizes;
  std::copy(target.begin(), target.end(), sizes.end() - static_cast<std::ptrdiff_t>(count));
  results.push_back(count == 2 ? in_suggested_format(*self, std::move(sizes), env)
                               : dense_like(*self, std::move(sizes)));
  return true;
}

// grad, self, ...: like the forward's input, in its memory format or contiguous.
bool like_input_in_format(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(1);
  if (self == nullptr || args.tensor(0) == nullptr) return false;
  results.push_back(in_suggested_format(*self, self->sizes, env));
  return true;
}

bool padded_input(const RuleArgs& args, ShapeEnv& env, Results& results) {  // grad, self, padding
  const TensorMeta* self = args.tensor(1);
  if (self == nullptr || args.tensor(0) == nullptr) return false;
  results.push_back(with_edges(*self, self->sizes, env));
  return true;
}

bool volume_like_input(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(1);
  return self != nullptr && args.tensor(0) != nullptr && add_in_format(*self, self->sizes, 3, env, results);
}

bool avg_pool3d_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return !holds_halves(args.tensor(0)) && dense_as<1>(args, env, results);
}

}  // namespace

std::vector<OpRow> pool_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, max_pool_with_indices<2>, {"max_pool2d_with_indices"});
  add_rows(rows, max_pool_with_indices<3>, {"max_pool3d_with_indices"});
  add_rows(rows, avg_pool2d, {"avg_pool2d"});
  add_rows(rows, avg_pool3d, {"avg_pool3d"});
  add_rows(rows, adaptive_max_pool<2>, {"adaptive_max_pool2d"});
  add_rows(rows, adaptive_max_pool<3>, {"adaptive_max_pool3d"});
  add_rows(rows, adaptive_avg_pool3d, {"_adaptive_avg_pool3d"});
  add_rows(rows, max_unpool<2>, {"max_unpool2d"}, kChecksData);
  add_rows(rows, max_unpool<3>, {"max_unpool3d"}, kChecksData);
  add_rows(rows, like_input_in_format,
           {"max_pool2d_with_indices_backward", "_adaptive_avg_pool2d_backward", "adaptive_max_pool2d_backward",
            "avg_pool2d_backward"});
  add_rows(rows, padded_input,
           {"reflection_pad2d_backward", "replication_pad2d_backward", "reflection_pad3d_backward",
            "replication_pad3d_backward"});
  add_rows(rows, volume_like_input, {"max_pool3d_with_indices_backward"});
  add_rows(rows, dense_as<1>,
           {"_adaptive_avg_pool3d_backward", "adaptive_max_pool3d_backward", "fractional_max_pool3d_backward",
            "reflection_pad1d_backward", "replication_pad1d_backward"});
  add_rows(rows, avg_pool3d_backward, {"avg_pool3d_backward"});
  return rows;
}

}  // namespace framejit::graph
