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

// grad, self, ...: like the forward's input, in its memory format or without one.
bool like_input_in_format(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(1);
  if (self == nullptr || args.tensor(0) == nullptr) return false;
  results.push_back(in_suggested_format(*self, self->sizes, env));
  return true;
}

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

// Whether result `which` of the mask in argument `at` is wanted.
bool is_wanted(const RuleArgs& args, size_t at, size_t which) {
  const auto* mask = at < args.count() ? args.args[at].get<std::vector<bool>>() : nullptr;
  return mask == nullptr || which >= mask->size() || (*mask)[which];
}

void add_wanted(const RuleArgs& args, size_t mask, TensorMeta meta, Results& results) {
  results.push_back(is_wanted(args, mask, results.size()) ? std::move(meta) : no_tensor());
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

// grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask. Only
// where nothing prefers channels_last: the library's choice of format is asked of it elsewhere.
bool convolution_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *grad = args.tensor(0), *input = args.tensor(1), *weight = args.tensor(2);
  if (grad == nullptr || input == nullptr || weight == nullptr || input->ndim() != 4 || weight->ndim() != 4)
    return false;
  for (const TensorMeta* t : {grad, input, weight})
    if (!t->is_contiguous() || suggests_channels_last(*t, env)) return false;
  add_wanted(args, 10, dense_like(*input, input->sizes), results);
  add_wanted(args, 10, dense_like(*weight, weight->sizes), results);
  add_wanted(args, 10, dense_like(*grad, {grad->sizes[1]}), results);
  return true;
}

// grad_out, query, key, value, ...: [batch, heads, rows, width], which lie as [batch, rows, heads, width].
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

}  // namespace

std::vector<OpRow> backward_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, made_of_sizes, {"select_backward", "slice_backward", "unfold_backward", "diagonal_backward"});
  add_rows(rows, embedding_dense_backward, {"embedding_dense_backward"}, kChecksData);
  add_rows(rows, like_input_in_format, {"max_pool2d_with_indices_backward", "_adaptive_avg_pool2d_backward"});
  add_rows(rows, like_input, {"nll_loss_backward", "nll_loss2d_backward"}, kChecksData);
  add_rows(rows, like<1, true>,
           {"mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "glu_backward"});
  add_rows(rows, like<1, false>, {"binary_cross_entropy_backward"});
  add_rows(rows, pointwise<0, 1>, {"log_sigmoid_backward"});
  add_rows(rows, prelu_kernel_backward, {"_prelu_kernel_backward"});
  add_rows(rows, layer_norm_backward, {"native_layer_norm_backward"});
  add_rows(rows, group_norm_backward, {"native_group_norm_backward"});
  add_rows(rows, batch_norm_backward, {"native_batch_norm_backward"});
  add_rows(rows, convolution_backward, {"convolution_backward"});
  add_rows(rows, flash_attention_backward, {"_scaled_dot_product_flash_attention_for_cpu_backward"});
  return rows;
}

}  // namespace framejit::graph
