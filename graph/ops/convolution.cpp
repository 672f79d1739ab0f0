// graph/ops/convolution.cpp — convolutions of one to three dimensions and their gradients, with the memory formats of
// the CPU libraries: channels_last if the input or the weight suggests it.
#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;

// A 1-d operand is treated as 2-d with height 1, as in at::native::view1d_as2d, which decides its memory format too.
bool prefers_channels_last(const TensorMeta& t, ShapeEnv& env) {
  if (t.ndim() != 3) return suggests_channels_last(t, env);
  TensorMeta wide = t;
  wide.sizes.insert(wide.sizes.begin() + 2, SymExpr(1));
  wide.strides.insert(wide.strides.begin() + 2, t.sizes[2] * t.strides[2]);
  return suggests_channels_last(wide, env);
}

// For a batch of lines, which the kernels treat as images of height 1, or for a batch of images.
SymSizes strides_with_channels_last(const SymSizes& sizes) {
  return sizes.size() == 3 ? SymSizes{sizes[1] * sizes[2], 1, sizes[1]} : channels_last_strides(sizes);
}

bool convolution(const RuleArgs& args, ShapeEnv& env, Results& results) {
  // input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
  const TensorMeta *input = args.tensor(0), *weight = args.tensor(1);
  if (input == nullptr || weight == nullptr || input->ndim() != weight->ndim() || input->ndim() < 3 ||
      input->ndim() > 5)
    return false;
  const size_t n = input->ndim() - 2;
  SymSizes stride, padding, dilation, output_padding;
  if (!spatial(args, 3, n, {1}, stride) || !spatial(args, 4, n, {0}, padding) || !spatial(args, 5, n, {1}, dilation) ||
      !spatial(args, 7, n, {0}, output_padding))
    return false;
  const bool transposed = args.flag(6);
  const SymExpr groups = args.size(8).value_or(1);
  if (weight->numel() == SymExpr(0)) return false;  // then torch computes other sizes
  if (!same_size(env, input->sizes[1], transposed ? weight->sizes[0] : weight->sizes[1] * groups)) return false;
  SymSizes sizes{input->sizes[0], transposed ? weight->sizes[1] * groups : weight->sizes[0]};
  for (size_t i = 0; i < n; ++i) {
    const SymExpr reach = dilation[i] * (weight->sizes[2 + i] - 1);
    const SymExpr& size = input->sizes[2 + i];
    if (transposed) sizes.push_back((size - 1) * stride[i] - padding[i] * 2 + reach + output_padding[i] + 1);
    else sizes.push_back(SymExpr::floor_div(size + padding[i] * 2 - reach - 1, stride[i]) + 1);
  }
  TensorMeta meta = dense_like(*input, sizes);
  // conv1d makes its input contiguous first, but not its weight. An input of length 1 is contiguous whatever its last
  // stride.
  const bool keeps_input = n != 1 || input->is_contiguous();
  const bool channels_last = (keeps_input && prefers_channels_last(*input, env)) || prefers_channels_last(*weight, env);
  if (channels_last && n == 3) return false;  // the layout depends on the library that computes it
  if (channels_last) meta.strides = strides_with_channels_last(sizes);
  results.push_back(std::move(meta));
  return true;
}

// cudnn_convolution_relu, cudnn_convolution_add_relu: input, weight, (tensor, factor,) bias, stride, padding, dilation,
// groups. The compiler makes them from convolutions (inductor/lowering/convolution_epilogues.h), whose arguments were
// checked.
template <size_t bias>
bool fused_convolution(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *input = args.tensor(0), *weight = args.tensor(1);
  SymSizes stride, padding, dilation;
  if (input == nullptr || weight == nullptr || input->ndim() != 4 || weight->ndim() != 4 ||
      !spatial(args, bias + 1, 2, {1}, stride) || !spatial(args, bias + 2, 2, {0}, padding) ||
      !spatial(args, bias + 3, 2, {1}, dilation))
    return false;
  SymSizes sizes{input->sizes[0], weight->sizes[0]};
  for (size_t i = 0; i < 2; ++i)
    sizes.push_back(
        SymExpr::floor_div(input->sizes[2 + i] + padding[i] * 2 - dilation[i] * (weight->sizes[2 + i] - 1) - 1,
                           stride[i]) +
        1);
  TensorMeta meta = dense_like(*input, sizes);
  if (prefers_channels_last(*input, env) || prefers_channels_last(*weight, env))
    meta.strides = channels_last_strides(sizes);
  results.push_back(std::move(meta));
  return true;
}

// grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask. Without
// elements, the kernel returns zeros in the layout of its arguments.
bool convolution_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *grad = args.tensor(0), *input = args.tensor(1), *weight = args.tensor(2);
  if (grad == nullptr || input == nullptr || weight == nullptr || input->ndim() < 3 || input->ndim() > 5 ||
      weight->ndim() != input->ndim() || grad->ndim() != input->ndim() || input->dtype != weight->dtype ||
      input->numel() == SymExpr(0) || weight->numel() == SymExpr(0))
    return false;
  // Eager makes lines contiguous, but not their weights.
  const bool keeps_input = input->ndim() != 3 || input->is_contiguous();
  const bool channels_last = (keeps_input && prefers_channels_last(*input, env)) || prefers_channels_last(*weight, env);
  if (channels_last && input->ndim() == 5) return false;  // the layout depends on the library that computes it
  for (const TensorMeta* like : {input, weight}) {
    TensorMeta meta = dense_like(*like, like->sizes);
    if (channels_last) meta.strides = strides_with_channels_last(like->sizes);
    add_wanted(args, 10, std::move(meta), results);
  }
  add_wanted(args, 10, dense_like(*grad, {grad->sizes[1]}), results);
  return true;
}

}  // namespace

std::vector<OpRow> convolution_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, convolution, {"convolution", "_convolution"});
  add_rows(rows, fused_convolution<2>, {"cudnn_convolution_relu"});
  add_rows(rows, fused_convolution<4>, {"cudnn_convolution_add_relu"});
  add_rows(rows, convolution_backward, {"convolution_backward"});
  return rows;
}

}  // namespace framejit::graph
