// graph/ops/backward.cpp — gradients for which autograd calls a separate op.
//
// Ops with several gradients take a mask of those that are wanted; the others are undefined.
#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;

// grad, input_sizes, ...: zeros of the input's sizes, written where the forward read.
bool made_of_sizes(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* grad = args.tensor(0);
  SymSizes sizes;
  if (grad == nullptr || !args.sizes(1, sizes) || any_negative(env, sizes)) return false;
  results.push_back(dense_like(*grad, std::move(sizes)));
  return true;
}

bool embedding_dense_backward(const RuleArgs& args, ShapeEnv&, Results& results) {  // grad, indices, num_weights, ...
  const TensorMeta* grad = args.tensor(0);
  const auto rows = args.size(2);
  if (grad == nullptr || grad->ndim() == 0 || !rows) return false;
  results.push_back(dense_like(*grad, {*rows, grad->sizes.back()}));
  return true;
}

// grad, self, ...: like the forward's input, contiguous.
bool like_input(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* self = args.tensor(1);
  if (self == nullptr || args.tensor(0) == nullptr) return false;
  results.push_back(dense_like(*self, self->sizes));
  return true;
}

// self in argument I; contiguous or as empty_like makes it.
template <size_t I, bool is_contiguous>
bool like(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(I);
  if (self == nullptr || args.tensor(0) == nullptr) return false;
  results.push_back(is_contiguous ? dense_like(*self, self->sizes) : preserved(*self, env));
  return true;
}

DType as_it_is(DType promoted, DType) { return promoted; }

template <size_t... operands>
bool pointwise(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return elementwise(args, env, {operands...}, as_it_is, results.emplace_back());
}

bool prelu_kernel_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {  // grad, self, weight
  if (!pointwise<0, 1, 2>(args, env, results)) return false;
  results.push_back(results[0]);
  return true;
}

// grad_out, input, normalized_shape, mean, rstd, weight, bias, mask
bool layer_norm_backward(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta *input = args.tensor(1), *weight = args.tensor(5), *bias = args.tensor(6);
  if (input == nullptr || args.tensor(0) == nullptr) return false;
  add_wanted(args, 7, dense_like(*input, input->sizes), results);
  if (weight == nullptr && is_wanted(args, 7, 1) && args.given(5)) return false;
  results.push_back(weight != nullptr && is_wanted(args, 7, 1) ? dense_like(*weight, weight->sizes) : no_tensor());
  results.push_back(bias != nullptr && is_wanted(args, 7, 2) ? dense_like(*bias, bias->sizes) : no_tensor());
  return true;
}

// grad_out, input, mean, rstd, weight, N, C, HxW, groups, mask
bool group_norm_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *input = args.tensor(1), *weight = args.tensor(4);
  if (input == nullptr || args.tensor(0) == nullptr || input->ndim() < 2) return false;
  add_wanted(args, 9, in_suggested_format(*input, input->sizes, env), results);
  const TensorMeta row = dense_like(weight != nullptr ? *weight : *input, {input->sizes[1]});
  add_wanted(args, 9, row, results);
  add_wanted(args, 9, row, results);
  return true;
}

// grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask
bool batch_norm_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *input = args.tensor(1), *weight = args.tensor(2);
  if (input == nullptr || args.tensor(0) == nullptr || input->ndim() < 2) return false;
  add_wanted(args, 9, in_suggested_format(*input, input->sizes, env), results);
  const TensorMeta row = dense_like(weight != nullptr ? *weight : *input, {input->sizes[1]});
  add_wanted(args, 9, row, results);
  add_wanted(args, 9, row, results);
  return true;
}

// grad_out, query, key, value, ...: [batch, heads, rows, width], stored as [batch, rows, heads, width].
bool flash_attention_backward(const RuleArgs& args, ShapeEnv&, Results& results) {
  for (size_t i = 1; i <= 3; ++i) {
    const TensorMeta* operand = args.tensor(i);
    if (operand == nullptr || operand->ndim() != 4) return false;
    const SymSizes& s = operand->sizes;
    results.push_back(dense_like(*operand, s));
    results.back().strides = {s[1] * s[2] * s[3], s[3], s[1] * s[3], 1};
  }
  return true;
}

// grad_output, output_size, input_size, ...
template <bool keeps_format>
bool upsample_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* grad = args.tensor(0);
  SymSizes target, sizes;
  if (grad == nullptr || !args.sizes(1, target) || !args.sizes(2, sizes) || sizes.size() != grad->ndim() ||
      sizes.size() != target.size() + 2 || any_negative(env, sizes))
    return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!same_size(env, grad->sizes[i], i < 2 ? sizes[i] : target[i - 2])) return false;
    if (i >= 1 && !env.decide(0, Relation::kLt, sizes[i], "resized dimension has elements")) return false;
  }
  results.push_back(keeps_format ? in_suggested_format(*grad, std::move(sizes), env)
                                 : dense_like(*grad, std::move(sizes)));
  return true;
}

// grad_output, input, grid, interpolation_mode, padding_mode, align_corners, mask: the grid always gets a gradient.
bool grid_sampler_backward(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta *input = args.tensor(1), *grid = args.tensor(2);
  if (args.tensor(0) == nullptr || input == nullptr || grid == nullptr || !input->device.is_cpu()) return false;
  add_wanted(args, 6, dense_like(*input, input->sizes), results);
  results.push_back(dense_like(*grid, grid->sizes));
  return true;
}

// grad_w, saved_v, saved_g, saved_norms, dim
bool weight_norm_backward(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta *v = args.tensor(1), *g = args.tensor(2);
  if (args.tensor(0) == nullptr || v == nullptr || g == nullptr) return false;
  results = {dense_like(*v, v->sizes), dense_like(*g, g->sizes)};
  return true;
}

// grad, indices, ..., with the weight's number of rows at `rows_at`; not sparse.
template <size_t rows_at, size_t sparse_at>
bool embedding_bag_backward(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* grad = args.tensor(0);
  const auto rows = args.size(rows_at);
  if (grad == nullptr || grad->ndim() != 2 || !rows || (sparse_at != 0 && args.flag(sparse_at))) return false;
  results.push_back(dense_like(*grad, {*rows, grad->sizes[1]}));
  return true;
}

bool per_sample_weights_backward(const RuleArgs& args, ShapeEnv&, Results& results) {  // grad, weight, indices, ...
  const TensorMeta *grad = args.tensor(0), *indices = args.tensor(2);
  if (grad == nullptr || indices == nullptr || indices->ndim() != 1) return false;
  results.push_back(dense_like(*grad, indices->sizes));
  return true;
}

bool masked_scatter_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {  // grad_output, mask, sizes
  const TensorMeta* grad = args.tensor(0);
  SymSizes sizes;
  if (grad == nullptr || !args.sizes(2, sizes) || any_negative(env, sizes)) return false;
  results.push_back(dense_like(*grad, std::move(sizes)));
  return true;
}

// input, two weights, two biases, hx, cx, ...: their gradients. A layer without biases gets zeros of any shape for
// them.
bool recurrent_layer_backward(const RuleArgs& args, ShapeEnv&, Results& results) {
  for (const size_t i : {0, 1, 2, 3, 4, 5, 6}) {
    const TensorMeta* like = args.tensor(i);
    if (like == nullptr || like->ndim() == 0) return false;
    const bool is_bias = i == 3 || i == 4;
    results.push_back(dense_like(*like, is_bias ? SymSizes{results[1].sizes[0]} : like->sizes));
    results.back().dtype = DType::kFloat32;  // whatever the layer computes in
  }
  return true;
}

// grad_output, self, target, reduction. Eager composes it: z = exp(-target * self), then target * z * ...
bool soft_margin_loss_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *grad = args.tensor(0), *self = args.tensor(1), *target = args.tensor(2);
  if (grad == nullptr || self == nullptr || target == nullptr || self->dtype != target->dtype ||
      self->ndim() != target->ndim())
    return false;
  for (size_t i = 0; i < self->ndim(); ++i)
    if (!same_size(env, self->sizes[i], target->sizes[i])) return false;
  TensorMeta z = dense_like(*self, self->sizes);
  z.strides = iterator_strides(env, self->sizes, {target, self}, false);
  TensorMeta meta = z;
  meta.strides = iterator_strides(env, self->sizes, {target, &z}, false);
  results.push_back(std::move(meta));
  return true;
}

// grad_output, self, noise, lower, upper, training, self_is_result
bool rrelu_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return args.flag(5) ? pointwise<2, 0>(args, env, results) : pointwise<1, 0>(args, env, results);
}

}  // namespace

std::vector<OpRow> backward_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, made_of_sizes, {"select_backward", "slice_backward", "unfold_backward", "diagonal_backward"});
  add_rows(rows, embedding_dense_backward, {"embedding_dense_backward"}, kChecksData);
  add_rows(rows, like_input, {"nll_loss_backward", "nll_loss2d_backward"}, kChecksData);
  add_rows(rows, like<1, true>,
           {"mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "glu_backward"});
  add_rows(rows, like<1, false>, {"binary_cross_entropy_backward"});
  add_rows(rows, pointwise<0, 1>, {"log_sigmoid_backward"});
  add_rows(rows, prelu_kernel_backward, {"_prelu_kernel_backward"});
  add_rows(rows, layer_norm_backward, {"native_layer_norm_backward"});
  add_rows(rows, group_norm_backward, {"native_group_norm_backward"});
  add_rows(rows, batch_norm_backward, {"native_batch_norm_backward"});
  add_rows(rows, batch_norm_backward, {"batch_norm_backward"});
  add_rows(rows, upsample_backward<true>,
           {"upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward", "upsample_bilinear2d_backward",
            "_upsample_bilinear2d_aa_backward", "upsample_trilinear3d_backward"});
  add_rows(rows, upsample_backward<false>,
           {"upsample_nearest1d_backward", "_upsample_nearest_exact1d_backward", "upsample_linear1d_backward",
            "upsample_bicubic2d_backward", "_upsample_bicubic2d_aa_backward", "upsample_nearest3d_backward",
            "_upsample_nearest_exact3d_backward"});
  add_rows(rows, grid_sampler_backward, {"grid_sampler_2d_backward", "grid_sampler_3d_backward"});
  add_rows(rows, weight_norm_backward, {"_weight_norm_interface_backward"});
  add_rows(rows, embedding_bag_backward<6, 9>, {"_embedding_bag_backward"}, kChecksData);
  add_rows(rows, embedding_bag_backward<5, 0>, {"_embedding_bag_dense_backward"}, kChecksData);
  add_rows(rows, per_sample_weights_backward, {"_embedding_bag_per_sample_weights_backward"}, kChecksData);
  add_rows(rows, masked_scatter_backward, {"masked_scatter_backward"});
  add_rows(rows, recurrent_layer_backward, {"mkldnn_rnn_layer_backward"});
  add_rows(rows, soft_margin_loss_backward, {"soft_margin_loss_backward"});
  add_rows(rows, like<1, true>, {"multi_margin_loss_backward", "multilabel_margin_loss_backward"}, kChecksData);
  add_rows(rows, like<1, true>, {"_pdist_backward"});
  add_rows(rows, rrelu_backward, {"rrelu_with_noise_backward"});
  add_rows(rows, pointwise<0, 1>, {"hardtanh_backward"});
  add_rows(rows, flash_attention_backward, {"_scaled_dot_product_flash_attention_for_cpu_backward"});
  return rows;
}

}  // namespace framejit::graph
