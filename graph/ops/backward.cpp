// graph/ops/backward.cpp — gradients that autograd asks for by an op of its own; those with masks of wanted results are
// torch's.
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

// grad, self, ...: as the forward's input, in its memory format or without one.
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

}  // namespace

std::vector<OpRow> backward_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, made_of_sizes, {"select_backward", "slice_backward"});
  add_rows(rows, embedding_dense_backward, {"embedding_dense_backward"}, kChecksData);
  add_rows(rows, like_input_in_format, {"max_pool2d_with_indices_backward", "_adaptive_avg_pool2d_backward"});
  add_rows(rows, like_input, {"nll_loss_backward"}, kChecksData);
  return rows;
}

}  // namespace framejit::graph
