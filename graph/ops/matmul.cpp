// graph/ops/matmul.cpp — matrix products and attention. Products are allocated contiguously.
#include <algorithm>
#include <functional>

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
  if (a == 1 &&
      (args.tensor(0) == nullptr || args.tensor(0)->dtype != x->dtype || !expands_to(env, *args.tensor(0), sizes)))
    return false;
  results.push_back(dense_like(*x, std::move(sizes)));
  return true;
}

bool mv(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *x = args.tensor(0), *y = args.tensor(1);
  if (x == nullptr || y == nullptr || x->ndim() != 2 || y->ndim() != 1 || !same_size(env, x->sizes[1], y->sizes[0]))
    return false;
  results.push_back(dense_like(*x, {x->sizes[0]}));
  return true;
}

bool dot(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *x = args.tensor(0), *y = args.tensor(1);
  if (x == nullptr || y == nullptr || x->ndim() != 1 || y->ndim() != 1 || !same_size(env, x->sizes[0], y->sizes[0]))
    return false;
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
  TensorMeta sums = dense(q->dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, q->device,
                          {q->sizes[0], q->sizes[1], q->sizes[2]});
  sums.strides = {q->sizes[2] * q->sizes[1], 1, q->sizes[1]};
  results.push_back(std::move(sums));
  return true;
}

// PyTorch uses this op only if the last dimensions are dense; its kernel does not check.
bool is_dense_along_rows(const TensorMeta* t) {
  return t != nullptr && t->ndim() > 0 && t->strides.back() == SymExpr(1);
}

bool library_attention(const RuleArgs& args, ShapeEnv& env,
                       Results& results) {  // query, key, value, dropout, causal, mask, scale
  return is_dense_along_rows(args.tensor(0)) && is_dense_along_rows(args.tensor(1)) &&
         is_dense_along_rows(args.tensor(2)) && flash_attention_for_cpu(args, env, results);
}

// Operands of the GPU's kernels: [batch, heads, length, width] of one dtype, dense along the last dimension.
bool are_heads(const RuleArgs& args, ShapeEnv& env) {
  const TensorMeta *q = args.tensor(0), *k = args.tensor(1), *v = args.tensor(2);
  for (const TensorMeta* t : {q, k, v})
    if (!is_dense_along_rows(t) || t->ndim() != 4 || t->dtype != q->dtype || t->device != q->device) return false;
  for (size_t d : {0, 1})
    if (!same_size(env, q->sizes[d], k->sizes[d]) || !same_size(env, k->sizes[d], v->sizes[d])) return false;
  return !q->device.is_cpu() && same_size(env, k->sizes[2], v->sizes[2]) && same_size(env, q->sizes[3], k->sizes[3]);
}
TensorMeta random_state(Device device) { return dense(DType::kInt64, device, {}); }

// query, key, value, bias, compute_log_sumexp, ...: result, sums, lengths of packed rows of queries and keys, seed,
// offset, mask. Two numbers are left out.
bool cudnn_attention(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!are_heads(args, env) || args.flag(7)) return false;
  const TensorMeta &q = *args.tensor(0), &v = *args.tensor(2);
  if (!same_size(env, q.sizes[3], v.sizes[3])) return false;
  results = {preserved(q, env),
             dense(DType::kFloat32, q.device, {q.sizes[0], q.sizes[1], q.sizes[2], 1}),
             no_tensor(),
             no_tensor(),
             random_state(q.device),
             random_state(q.device),
             no_tensor()};
  return true;
}

// query, key, value, bias, compute_log_sumexp, ...: result, sums, seed, offset. The result is made as [batch, length,
// heads, width] and transposed. On NVIDIA, sums are those of whole blocks of 32 queries; elsewhere, of the queries.
bool efficient_attention(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!are_heads(args, env)) return false;
  const TensorMeta &q = *args.tensor(0), &v = *args.tensor(2);
  const SymExpr &heads = q.sizes[1], &length = q.sizes[2], &width = v.sizes[3];
  const bool has_sums = args.flag(4);
  if (has_sums && !(SymExpr::mod(length, 32) == SymExpr(0))) return false;
  TensorMeta out = dense_like(q, {q.sizes[0], heads, length, width});
  out.strides = {length * heads * width, width, heads * width, 1};
  results = {std::move(out), dense(DType::kFloat32, q.device, {q.sizes[0], heads, has_sums ? length : SymExpr(0)}),
             random_state(q.device), random_state(q.device)};
  return true;
}

// Our own op (runtime/aten/attention.h): query, key, value, mask, whether the mask replaces scores, scale.
bool attention(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!flash_attention_for_cpu(args, env, results)) return false;
  results.pop_back();
  return true;
}

// The fused forms of nn.MultiheadAttention and nn.TransformerEncoderLayer: they take and return [batch, length,
// features]. A mask of type 0 is [length, length], of type 1 [batch, length].
bool takes_sequences(const RuleArgs& args, ShapeEnv& env, const TensorMeta* x, const SymExpr& features, size_t mask_at,
                     size_t type_at) {
  if (x == nullptr || x->ndim() != 3 || x->numel() == SymExpr(0) || !x->device.is_cpu() ||
      !same_size(env, x->sizes[2], features))
    return false;
  if (!args.given(mask_at)) return true;
  const TensorMeta* mask = args.tensor(mask_at);
  const auto type = args.integer(type_at);
  if (mask == nullptr || !type || *type < 0 || *type > 1 || mask->ndim() != 2) return false;
  return same_size(env, mask->sizes[0], x->sizes[*type == 0 ? 1 : 0]) && same_size(env, mask->sizes[1], x->sizes[1]);
}

bool native_multi_head_attention(const RuleArgs& args, ShapeEnv& env, Results& results) {
  // query, key, value, embed_dim, num_head, two weights and biases, mask, need_weights, average_attn_weights, mask_type
  const TensorMeta *q = args.tensor(0), *k = args.tensor(1), *v = args.tensor(2);
  const auto features = args.size(3), heads = args.size(4);
  if (!features || !heads || k == nullptr || v == nullptr || !takes_sequences(args, env, q, *features, 9, 12))
    return false;
  if (k->ndim() != 3 || v->ndim() != 3 || k->dtype != q->dtype || v->dtype != q->dtype) return false;
  for (size_t d = 0; d < 3; ++d)
    if (!same_size(env, k->sizes[d], q->sizes[d]) || !same_size(env, v->sizes[d], q->sizes[d])) return false;
  results.push_back(dense_like(*q, q->sizes));
  if (!args.flag(10, true)) results.push_back(no_tensor());
  else if (args.flag(11, true)) results.push_back(dense_like(*q, {q->sizes[0], q->sizes[1], q->sizes[1]}));
  else results.push_back(dense_like(*q, {q->sizes[0], *heads, q->sizes[1], q->sizes[1]}));
  return true;
}

bool transformer_encoder_layer(const RuleArgs& args, ShapeEnv& env,
                               Results& results) {  // src, embed_dim, num_heads, ..., mask, mask_type
  const TensorMeta* x = args.tensor(0);
  const auto features = args.size(1);
  if (!features || !takes_sequences(args, env, x, *features, 18, 19)) return false;
  results.push_back(dense_like(*x, x->sizes));
  return true;
}

// i1, i2, i3, for each a list of the dimensions that it lacks, then the dimensions that are summed. It is the product
// in F.bilinear.
bool trilinear(const RuleArgs& args, ShapeEnv& env, Results& results) {
  std::vector<TensorMeta> wide;
  std::vector<int64_t> absent, summed;
  for (size_t i = 0; i < 3; ++i) {
    const TensorMeta* t = args.tensor(i);
    if (t == nullptr || t->dtype != args.tensor(0)->dtype || !args.integers(3 + i, absent)) return false;
    wide.push_back(dense_like(*t, t->sizes));
    for (const int64_t d : absent) {
      if (d < 0 || d > static_cast<int64_t>(wide[i].ndim())) return false;
      wide[i].sizes.insert(wide[i].sizes.begin() + d, SymExpr(1));
    }
  }
  if (!args.integers(6, summed) || wide[1].ndim() != wide[0].ndim() || wide[2].ndim() != wide[0].ndim()) return false;
  auto sizes = broadcast(env, {&wide[0], &wide[1], &wide[2]});
  if (!sizes) return false;
  std::sort(summed.begin(), summed.end(), std::greater<>());
  for (const int64_t d : summed) {
    if (d < 0 || d >= static_cast<int64_t>(sizes->size())) return false;
    sizes->erase(sizes->begin() + d);
  }
  results.push_back(dense_like(*args.tensor(0), std::move(*sizes)));
  return true;
}

bool integer_product(const RuleArgs& args, ShapeEnv& env, Results& results) {  // matrices of int8
  const TensorMeta *a = args.tensor(0), *b = args.tensor(1);
  if (a == nullptr || b == nullptr || a->ndim() != 2 || b->ndim() != 2 || a->dtype != DType::kInt8 ||
      b->dtype != DType::kInt8 || !same_size(env, a->sizes[1], b->sizes[0]))
    return false;
  results.push_back(dense(DType::kInt32, a->device, {a->sizes[0], b->sizes[1]}));
  return true;
}

// self [m, k], a weight of n rows with `in_byte` numbers in each byte, ...: [m, n].
template <int64_t in_byte>
bool product_with_packed(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *a = args.tensor(0), *b = args.tensor(1);
  if (a == nullptr || b == nullptr || a->ndim() != 2 || b->ndim() != 2 ||
      !same_size(env, a->sizes[1], b->sizes[1] * in_byte))
    return false;
  results.push_back(dense_like(*a, {a->sizes[0], b->sizes[0]}));
  return true;
}

bool pack_pairs(const RuleArgs& args, ShapeEnv&, Results& results) {  // packs two 4-bit numbers into a byte
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr || self->ndim() != 2 || self->dtype != DType::kInt32) return false;
  results.push_back(dense(DType::kUInt8, self->device, {self->sizes[0], SymExpr::floor_div(self->sizes[1], 2)}));
  return true;
}

bool addr(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, vec1, vec2, beta, alpha
  const TensorMeta *self = args.tensor(0), *x = args.tensor(1), *y = args.tensor(2);
  if (self == nullptr || x == nullptr || y == nullptr || x->ndim() != 1 || y->ndim() != 1) return false;
  const SymSizes sizes{x->sizes[0], y->sizes[0]};
  if (!expands_to(env, *self, sizes) || !(args.number(3) || !args.given(3))) return false;
  TensorMeta column = *x;
  column.sizes.emplace_back(1);
  column.strides.emplace_back(1);
  TensorMeta wide = dense_like(*self, sizes);
  wide.strides.assign(2, SymExpr(0));
  for (size_t i = 0; i < self->ndim(); ++i) {
    const size_t d = 2 - self->ndim() + i;
    if (self->sizes[i] == sizes[d]) wide.strides[d] = self->strides[i];
  }
  results.push_back(dense(result_type({self, x, y}, {}, args.default_dtype), self->device, sizes));
  results[0].strides = iterator_strides(env, sizes, {&wide, &column, y}, false);
  return true;
}

bool addbmm(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, batch1, batch2: summed over the batch
  const TensorMeta *self = args.tensor(0), *a = args.tensor(1), *b = args.tensor(2);
  if (self == nullptr || a == nullptr || b == nullptr || a->ndim() != 3 || b->ndim() != 3 || a->dtype != b->dtype ||
      self->dtype != a->dtype || !same_size(env, a->sizes[0], b->sizes[0]) || !same_size(env, a->sizes[2], b->sizes[1]))
    return false;
  SymSizes sizes{a->sizes[1], b->sizes[2]};
  if (!expands_to(env, *self, sizes)) return false;
  results.push_back(dense_like(*self, std::move(sizes)));
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
  add_rows(rows, addr, {"addr"});
  add_rows(rows, addbmm, {"addbmm"});
  add_rows(rows, integer_product, {"_int_mm"});
  add_rows(rows, product_with_packed<1>, {"_weight_int8pack_mm"});
  add_rows(rows, product_with_packed<2>, {"_weight_int4pack_mm_for_cpu"});
  add_rows(rows, pack_pairs, {"_convert_weight_to_int4pack_for_cpu"});
  add_rows(rows, dot, {"dot", "vdot"});
  add_rows(rows, library_attention, {"_scaled_dot_product_flash_attention_for_cpu"});
  add_rows(rows, cudnn_attention, {"_scaled_dot_product_cudnn_attention"});
  add_rows(rows, efficient_attention, {"_scaled_dot_product_efficient_attention"});
  add_rows(rows, attention, {"framejit::attention"});
  add_rows(rows, native_multi_head_attention, {"_native_multi_head_attention"});
  add_rows(rows, transformer_encoder_layer, {"_transformer_encoder_layer_fwd"});
  add_rows(rows, trilinear, {"_trilinear"});
  rows.push_back({"addmm_", same_as_self, kMutates, "addmm"});
  rows.push_back({"baddbmm_", same_as_self, kMutates, "baddbmm"});
  return rows;
}

}  // namespace framejit::graph
