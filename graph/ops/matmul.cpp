// graph/ops/matmul.cpp — matrix products and attention. Products are allocated contiguously.
#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;

// Arguments a and b hold the operands; batched ones have a common first dimension.
template <size_t a, size_t b, bool batched>
bool product(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *x = args.tensor(a), *y = args.tensor(b);
  constexpr size_t kRank = batched ? 3 : 2;
  if (x == nullptr || y == nullptr || x->ndim() != kRank || y->ndim() != kRank || x->dtype != y->dtype) return false;
  if (!same_size(env, x->sizes[kRank - 1], y->sizes[kRank - 2])) return false;
  SymSizes sizes;
  if (batched) {
    if (!same_size(env, x->sizes[0], y->sizes[0])) return false;
    sizes.push_back(x->sizes[0]);
  }
  sizes.push_back(x->sizes[kRank - 2]);
  sizes.push_back(y->sizes[kRank - 1]);
  if (a == 1 && (args.tensor(0) == nullptr || args.tensor(0)->dtype != x->dtype || !expands_to(env, *args.tensor(0), sizes))) return false;
  results.push_back(dense_like(*x, std::move(sizes)));
  return true;
}

bool mv(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *x = args.tensor(0), *y = args.tensor(1);
  if (x == nullptr || y == nullptr || x->ndim() != 2 || y->ndim() != 1 || !same_size(env, x->sizes[1], y->sizes[0])) return false;
  results.push_back(dense_like(*x, {x->sizes[0]}));
  return true;
}

bool dot(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *x = args.tensor(0), *y = args.tensor(1);
  if (x == nullptr || y == nullptr || x->ndim() != 1 || y->ndim() != 1 || !same_size(env, x->sizes[0], y->sizes[0])) return false;
  results.push_back(dense_like(*x, {}));
  return true;
}

// The CPU kernel keeps the dimension order of the query; logsumexp is made as [batch, length, heads] and transposed.
bool flash_attention_for_cpu(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *q = args.tensor(0), *v = args.tensor(2);
  if (q == nullptr || v == nullptr || q->ndim() != 4 || !same_size(env, q->sizes[3], v->sizes[3])) return false;
  TensorMeta out = dense_like(*q, q->sizes);
  out.strides = dense_strides(q->sizes, q->strides, env);
  results.push_back(std::move(out));
  TensorMeta sums = dense(q->dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, q->device, {q->sizes[0], q->sizes[1], q->sizes[2]});
  sums.strides = {q->sizes[2] * q->sizes[1], 1, q->sizes[1]};
  results.push_back(std::move(sums));
  return true;
}

}  // namespace

std::vector<OpRow> matmul_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, product<0, 1, false>, {"mm"});
  add_rows(rows, product<1, 2, false>, {"addmm", "_addmm_activation"});
  add_rows(rows, product<0, 1, true>, {"bmm"});
  add_rows(rows, product<1, 2, true>, {"baddbmm"});
  add_rows(rows, mv, {"mv"});
  add_rows(rows, dot, {"dot", "vdot"});
  add_rows(rows, flash_attention_for_cpu, {"_scaled_dot_product_flash_attention_for_cpu"});
  rows.push_back({"addmm_", same_as_self, kMutates, "addmm"});
  rows.push_back({"baddbmm_", same_as_self, kMutates, "baddbmm"});
  return rows;
}

}  // namespace framejit::graph
