// graph/ops/nn.cpp — normalisation, softmax, convolution, pooling, resampling, sliding windows, recurrent layers, with
// the memory formats of the CPU kernels.
#include <algorithm>
#include <utility>

#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;

// at::native::param_scalar_type: statistics are float32 if a half-precision input meets float32 parameters.
DType statistics_dtype(const TensorMeta& input, const TensorMeta* weight) {
  const bool half = input.dtype == DType::kBFloat16 || input.dtype == DType::kFloat16;
  return half && weight != nullptr && weight->dtype == DType::kFloat32 ? DType::kFloat32 : input.dtype;
}

bool same_sizes(ShapeEnv& env, const SymSizes& a, const SymSizes& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const SymExpr& x, const SymExpr& y) { return same_size(env, x, y); });
}

bool native_layer_norm(const RuleArgs& args, ShapeEnv& env,
                       Results& results) {  // input, normalized_shape, weight, bias, eps
  const TensorMeta* input = args.tensor(0);
  SymSizes normalized;
  if (input == nullptr || !args.sizes(1, normalized) || normalized.empty() || normalized.size() > input->ndim())
    return false;
  SymSizes kept = input->sizes;
  const size_t first = kept.size() - normalized.size();
  for (size_t i = first; i < kept.size(); ++i)
    if (!same_size(env, std::exchange(kept[i], SymExpr(1)), normalized[i - first])) return false;
  for (const size_t i : {2, 3})
    if (const TensorMeta* parameter = args.tensor(i);
        parameter != nullptr && !same_sizes(env, parameter->sizes, normalized))
      return false;
  results.push_back(dense_like(*input, input->sizes));
  results.push_back(dense(statistics_dtype(*input, args.tensor(2)), input->device, std::move(kept)));
  results.push_back(results[1]);
  return true;
}

bool native_group_norm(const RuleArgs& args, ShapeEnv& env,
                       Results& results) {  // input, weight, bias, N, C, HxW, group, eps
  const TensorMeta* input = args.tensor(0);
  const auto batch = args.size(3), groups = args.size(6);
  const auto channels = args.size(4);
  if (input == nullptr || input->ndim() < 2 || !batch || !groups || !channels) return false;
  if (!same_size(env, input->sizes[0], *batch) || !same_size(env, input->sizes[1], *channels)) return false;
  if (!(SymExpr::mod(*channels, *groups) == SymExpr(0))) return false;
  for (const size_t i : {1, 2})
    if (const TensorMeta* t = args.tensor(i);
        t != nullptr && (t->ndim() != 1 || !same_size(env, t->sizes[0], *channels)))
      return false;
  results.push_back(in_suggested_format(*input, input->sizes, env));
  results.push_back(dense(statistics_dtype(*input, args.tensor(1)), input->device, {*batch, *groups}));
  results.push_back(results[1]);
  return true;
}

// input, weight, bias, mean, var at arguments 0 to 4; no mean and var if `running` is 0. The CPU kernel returns empty
// statistics unless it trains, and never a reserve. Parameters of another size are refused, and torch raises its error.
bool normalised_by_batch(const RuleArgs& args, ShapeEnv& env, bool training, size_t running, Results& results) {
  const TensorMeta* input = args.tensor(0);
  if (input == nullptr || input->ndim() < 2) return false;
  for (size_t i = 1; i < 3 + running; ++i)
    if (const TensorMeta* t = args.tensor(i);
        t != nullptr && (t->ndim() != 1 || !same_size(env, t->sizes[0], input->sizes[1])))
      return false;
  // With one channel, memory may be in both formats. It counts as contiguous.
  results.push_back(input->is_contiguous() ? dense_like(*input, input->sizes)
                                           : in_suggested_format(*input, input->sizes, env));
  const SymSizes channels{training ? input->sizes[1] : SymExpr(0)};
  results.push_back(dense(statistics_dtype(*input, args.tensor(1)), input->device, channels));
  results.push_back(results[1]);
  return true;
}

template <bool has_training, size_t extra_results>
bool batch_norm(const RuleArgs& args, ShapeEnv& env,
                Results& results) {  // input, weight, bias, mean, var, [training], momentum, eps
  if (!normalised_by_batch(args, env, has_training && args.flag(5), 2, results)) return false;
  for (size_t i = 0; i < extra_results; ++i) {  // updated running mean, then variance
    const TensorMeta* running = args.tensor(3 + i);
    if (running == nullptr) return false;
    results.push_back(dense_like(*running, running->sizes));
  }
  return true;
}

bool batch_norm_without_statistics(const RuleArgs& args, ShapeEnv& env,
                                   Results& results) {  // input, weight, bias, training, momentum, eps
  return normalised_by_batch(args, env, args.flag(3), 0, results);
}

template <bool training>
bool batch_norm_with_reserve(const RuleArgs& args, ShapeEnv& env,
                             Results& results) {  // input, weight, bias, mean, var, momentum, eps
  if (!normalised_by_batch(args, env, training, 2, results)) return false;
  results.push_back(dense(DType::kUInt8, results[0].device, {SymExpr(0)}));
  return true;
}

bool softmax(const RuleArgs& args, ShapeEnv&, Results& results) {  // self, dim, half_to_float
  const TensorMeta* self = args.tensor(0);
  const auto dim = args.integer(1);
  if (self == nullptr || !dim || !wrap_dim(*dim, self->ndim())) return false;
  results.push_back(dense_like(*self, self->sizes));
  if (args.flag(2)) results[0].dtype = DType::kFloat32;
  return true;
}

bool safe_softmax(const RuleArgs& args, ShapeEnv&, Results& results) {  // self, dim, dtype
  const TensorMeta* self = args.tensor(0);
  const auto dim = args.integer(1);
  if (self == nullptr || !dim || !wrap_dim(*dim, self->ndim()) || !is_float(self->dtype)) return false;
  results.push_back(dense(args.dtype(2).value_or(self->dtype), self->device, self->sizes));
  return true;
}

bool softmax_backward(const RuleArgs& args, ShapeEnv&, Results& results) {  // grad_output, output, dim, input_dtype
  const TensorMeta* grad = args.tensor(0);
  if (grad == nullptr) return false;
  results.push_back(dense(args.dtype(3).value_or(grad->dtype), grad->device, grad->sizes));
  return true;
}

// self, output_size, ...: the last dimensions are replaced.
bool resized(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  SymSizes target;
  if (self == nullptr || !args.sizes(1, target) || target.size() >= self->ndim()) return false;
  SymSizes sizes = self->sizes;
  std::copy(target.begin(), target.end(), sizes.end() - static_cast<std::ptrdiff_t>(target.size()));
  results.push_back(in_suggested_format(*self, std::move(sizes), env));
  return true;
}

// The number of blocks of a sliding window, over all dimensions: those of im2col and col2im.
bool count_blocks(ShapeEnv& env, const SymSizes& sizes, const SymSizes& kernel, const SymSizes& dilation,
                  const SymSizes& padding, const SymSizes& stride, SymExpr& blocks) {
  blocks = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (any_negative(env, {kernel[i] - 1, dilation[i] - 1, padding[i], stride[i] - 1})) return false;
    const SymExpr steps =
        SymExpr::floor_div(sizes[i] + padding[i] * 2 - dilation[i] * (kernel[i] - 1) - 1, stride[i]) + 1;
    if (!env.decide(0, Relation::kLt, steps, "sliding window fits")) return false;
    blocks = blocks * steps;
  }
  return true;
}

bool im2col(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, kernel, dilation, padding, stride
  const TensorMeta* self = args.tensor(0);
  SymSizes kernel, dilation, padding, stride;
  if (self == nullptr || self->ndim() < 3 || self->ndim() > 4 || !spatial(args, 1, 2, {}, kernel) ||
      !spatial(args, 2, 2, {1}, dilation))
    return false;
  if (!spatial(args, 3, 2, {0}, padding) || !spatial(args, 4, 2, {1}, stride)) return false;
  SymExpr blocks;
  if (!count_blocks(env, {self->sizes.end() - 2, self->sizes.end()}, kernel, dilation, padding, stride, blocks))
    return false;
  SymSizes sizes(self->sizes.begin(), self->sizes.end() - 2);
  sizes.back() = sizes.back() * kernel[0] * kernel[1];
  sizes.push_back(blocks);
  results.push_back(dense_like(*self, std::move(sizes)));
  return true;
}

bool col2im(const RuleArgs& args, ShapeEnv& env,
            Results& results) {  // self, output_size, kernel, dilation, padding, stride
  const TensorMeta* self = args.tensor(0);
  SymSizes target, kernel, dilation, padding, stride;
  if (self == nullptr || self->ndim() < 2 || self->ndim() > 3 || !args.sizes(1, target) || target.size() != 2 ||
      !spatial(args, 2, 2, {}, kernel))
    return false;
  if (!spatial(args, 3, 2, {1}, dilation) || !spatial(args, 4, 2, {0}, padding) || !spatial(args, 5, 2, {1}, stride))
    return false;
  SymExpr blocks;
  if (!count_blocks(env, target, kernel, dilation, padding, stride, blocks) ||
      !same_size(env, self->sizes.back(), blocks))
    return false;
  SymSizes sizes(self->sizes.begin(), self->sizes.end() - 1);
  const SymExpr window = kernel[0] * kernel[1];
  if (!env.decide(SymExpr::mod(sizes.back(), window), Relation::kEq, 0, "columns are whole windows")) return false;
  sizes.back() = SymExpr::floor_div(sizes.back(), window);
  sizes.insert(sizes.end(), target.begin(), target.end());
  results.push_back(dense_like(*self, std::move(sizes)));
  return true;
}

template <size_t spatial_count>
bool grid_sampler(const RuleArgs& args, ShapeEnv& env,
                  Results& results) {  // input, grid, interpolation_mode, padding_mode, align_corners
  const TensorMeta *input = args.tensor(0), *grid = args.tensor(1);
  constexpr size_t kRank = spatial_count + 2;
  if (input == nullptr || grid == nullptr || input->ndim() != kRank || grid->ndim() != kRank ||
      !input->device.is_cpu() || input->dtype != grid->dtype)
    return false;
  if (!same_size(env, input->sizes[0], grid->sizes[0]) ||
      !same_size(env, grid->sizes.back(), static_cast<int64_t>(spatial_count)))
    return false;
  for (size_t i = 2; i < kRank; ++i)
    if (!env.decide(0, Relation::kLt, input->sizes[i], "sampled dimension has elements")) return false;
  SymSizes sizes{input->sizes[0], input->sizes[1]};
  sizes.insert(sizes.end(), grid->sizes.begin() + 1, grid->sizes.end() - 1);
  results.push_back(dense_like(*input, std::move(sizes)));
  return true;
}

bool affine_grid_generator(const RuleArgs& args, ShapeEnv& env, Results& results) {  // theta, size, align_corners
  const TensorMeta* theta = args.tensor(0);
  SymSizes size;
  if (theta == nullptr || theta->ndim() != 3 || !args.sizes(1, size) || size.size() < 4 || size.size() > 5 ||
      any_negative(env, size))
    return false;
  const auto count = static_cast<int64_t>(size.size()) - 2;
  if (!same_size(env, theta->sizes[0], size[0]) || !same_size(env, theta->sizes[1], count) ||
      !same_size(env, theta->sizes[2], count + 1))
    return false;
  SymSizes sizes{size[0]};
  sizes.insert(sizes.end(), size.begin() + 2, size.end());
  sizes.emplace_back(count);
  results.push_back(dense_like(*theta, std::move(sizes)));
  return true;
}

// self, factor: converts between one dimension of channels and the two spatial dimensions after it.
template <bool up>
bool pixel_shuffle(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  const auto factor = args.integer(1);
  if (self == nullptr || self->ndim() < 3 || !factor || *factor <= 0 || *factor > 1 << 15 ||
      self->numel() == SymExpr(0))
    return false;
  const auto divides = [&](const SymExpr& e, int64_t by) {
    return env.decide(SymExpr::mod(e, by), Relation::kEq, 0, "pixels are shuffled evenly");
  };
  SymSizes sizes = self->sizes;
  SymExpr &channels = sizes[sizes.size() - 3], &height = sizes[sizes.size() - 2], &width = sizes.back();
  if (up) {
    if (!divides(channels, *factor * *factor)) return false;
    channels = SymExpr::floor_div(channels, *factor * *factor);
    height = height * *factor;
    width = width * *factor;
  } else {
    if (!divides(height, *factor) || !divides(width, *factor)) return false;
    channels = channels * (*factor * *factor);
    height = SymExpr::floor_div(height, *factor);
    width = SymExpr::floor_div(width, *factor);
  }
  results.push_back(in_suggested_format(*self, std::move(sizes), env));
  return true;
}

// input, first state (lstm: hidden and cells), weights, has_biases, num_layers, dropout, train, bidirectional,
// batch_first. Invalid arguments are refused, and torch raises its error.
template <bool has_cells>
bool recurrent(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* input = args.tensor(0);
  std::vector<const TensorMeta*> states{args.tensor(1)}, weights;
  if (has_cells && (!args.tensors(1, states) || states.size() != 2)) return false;
  if (input == nullptr || input->ndim() != 3 || !args.tensors(2, weights) || weights.size() < 2) return false;
  for (const auto& list : {states, weights})
    for (const TensorMeta* t : list)
      if (t == nullptr || t->dtype != input->dtype || !t->device.is_cpu()) return false;
  if (!input->device.is_cpu() || weights[0]->ndim() != 2) return false;
  const bool batch_first = args.flag(8);
  const SymExpr &steps = input->sizes[batch_first ? 1 : 0], &batch = input->sizes[batch_first ? 0 : 1];
  const SymExpr directions = args.flag(7) ? 2 : 1, layers = args.size(4).value_or(1) * directions;
  for (const TensorMeta* t : states)
    if (t->ndim() != 3 || !(t->sizes[0] == layers) || !same_size(env, t->sizes[1], batch)) return false;
  if (!same_size(env, input->sizes[2], weights[0]->sizes[1])) return false;
  const SymExpr width = states[0]->sizes[2] * directions;
  TensorMeta output = dense_like(*input, {steps, batch, width});
  if (batch_first) {
    std::swap(output.sizes[0], output.sizes[1]);
    std::swap(output.strides[0], output.strides[1]);
  }
  results.push_back(std::move(output));
  for (const TensorMeta* t : states) results.push_back(dense_like(*input, t->sizes));
  return true;
}

// v, g, dim: the weight, and norms in the precision of the sums.
bool weight_norm(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta *v = args.tensor(0), *g = args.tensor(1);
  if (v == nullptr || g == nullptr || v->dtype != g->dtype || !is_float(v->dtype)) return false;
  results = {dense_like(*v, v->sizes), *g};
  results[1].offset = 0;
  if (g->dtype != DType::kFloat64) results[1].dtype = DType::kFloat32;
  return true;
}

bool channel_shuffle(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, groups
  const TensorMeta* self = args.tensor(0);
  const auto groups = args.size(1);
  if (self == nullptr || self->ndim() < 3 || !groups || any_negative(env, {*groups - 1}) ||
      !env.decide(SymExpr::mod(self->sizes[1], *groups), Relation::kEq, 0, "channels are whole groups"))
    return false;
  results.push_back(in_suggested_format(*self, self->sizes, env));
  return true;
}

// input, weight, bias, mean, var, momentum, eps: as _batch_norm_with_update, then the new mean and variance.
bool batch_norm_functional(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!batch_norm_with_reserve<true>(args, env, results)) return false;
  for (const size_t i : {3, 4}) {
    const TensorMeta* running = args.tensor(i);
    if (running == nullptr) return false;
    results.push_back(dense_like(*running, running->sizes));
  }
  return true;
}

}  // namespace

std::vector<OpRow> nn_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, native_layer_norm, {"native_layer_norm"});
  add_rows(rows, native_group_norm, {"native_group_norm"}, kRuleIsComplete);
  add_rows(rows, batch_norm<true, 0>, {"native_batch_norm", "_native_batch_norm_legit"});
  add_rows(rows, batch_norm_without_statistics, {"_native_batch_norm_legit.no_stats"});
  add_rows(rows, batch_norm_with_reserve<true>, {"_batch_norm_with_update"});
  add_rows(rows, batch_norm_with_reserve<false>, {"_batch_norm_no_update"});
  add_rows(rows, batch_norm<true, 2>, {"_native_batch_norm_legit_functional"});
  add_rows(rows, batch_norm<false, 0>, {"_native_batch_norm_legit_no_training"});
  add_rows(rows, softmax, {"_softmax", "_log_softmax"});
  add_rows(rows, safe_softmax, {"_safe_softmax"});
  add_rows(rows, softmax_backward, {"_softmax_backward_data", "_log_softmax_backward_data"});
  add_rows(rows, resized,
           {"_adaptive_avg_pool2d", "upsample_nearest1d", "upsample_nearest2d", "_upsample_nearest_exact1d",
            "_upsample_nearest_exact2d", "upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_trilinear3d",
            "_upsample_bicubic2d_aa", "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d",
            "_upsample_bilinear2d_aa"});
  add_rows(rows, im2col, {"im2col"});
  add_rows(rows, col2im, {"col2im"});
  add_rows(rows, grid_sampler<2>, {"grid_sampler_2d"});
  add_rows(rows, grid_sampler<3>, {"grid_sampler_3d"});
  add_rows(rows, affine_grid_generator, {"affine_grid_generator"});
  add_rows(rows, pixel_shuffle<true>, {"pixel_shuffle"});
  add_rows(rows, pixel_shuffle<false>, {"pixel_unshuffle"});
  add_rows(rows, weight_norm, {"_weight_norm_interface"});
  add_rows(rows, channel_shuffle, {"channel_shuffle"});
  add_rows(rows, batch_norm_functional, {"_batch_norm_with_update_functional"});
  add_rows(rows, recurrent<true>, {"lstm.input"});
  add_rows(rows, recurrent<false>, {"gru.input", "rnn_tanh.input", "rnn_relu.input"});
  return rows;
}

}  // namespace framejit::graph
