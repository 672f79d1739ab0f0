// graph/ops/linalg.cpp — decompositions, solvers and distances. LAPACK's matrices are stored by columns.
#include <string>

#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;

// at::native::batched_matrix_contiguous_strides, f_contig.
TensorMeta columns(const TensorMeta& like, SymSizes sizes) {
  TensorMeta meta = dense_like(like, std::move(sizes));
  const size_t n = meta.ndim();
  meta.strides[n - 1] = meta.sizes[n - 2] == SymExpr(0) ? SymExpr(1) : meta.sizes[n - 2];
  meta.strides[n - 2] = 1;
  return meta;
}

SymSizes batch_of(const TensorMeta& matrix) { return {matrix.sizes.begin(), matrix.sizes.end() - 2}; }
SymSizes with(SymSizes sizes, std::initializer_list<SymExpr> more) {
  sizes.insert(sizes.end(), more);
  return sizes;
}
TensorMeta integers(const TensorMeta& like, SymSizes sizes) {
  return dense(DType::kInt32, like.device, std::move(sizes));
}
TensorMeta nothing(const TensorMeta& like) { return dense_like(like, {SymExpr(0)}); }

// A batch of matrices that LAPACK accepts.
const TensorMeta* matrix(const RuleArgs& args, size_t i) {
  const TensorMeta* t = args.tensor(i);
  const bool fits = t != nullptr && t->ndim() >= 2 && (t->dtype == DType::kFloat32 || t->dtype == DType::kFloat64) &&
                    t->device == Device{};
  return fits ? t : nullptr;
}
const TensorMeta* square(const RuleArgs& args, size_t i, ShapeEnv& env) {
  const TensorMeta* t = matrix(args, i);
  return t != nullptr && same_size(env, t->sizes[t->ndim() - 2], t->sizes[t->ndim() - 1]) ? t : nullptr;
}

bool matrix_and_info(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* a = square(args, 0, env);
  if (a == nullptr) return false;
  results = {columns(*a, a->sizes), integers(*a, batch_of(*a))};
  return true;
}

// `numbers` per matrix, then its factors and pivots.
template <size_t numbers>
bool determinant(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* a = square(args, 0, env);
  if (a == nullptr) return false;
  results.assign(numbers, dense_like(*a, batch_of(*a)));
  results.push_back(columns(*a, a->sizes));
  results.push_back(integers(*a, with(batch_of(*a), {a->sizes.back()})));
  return true;
}

bool lu_factor(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* a = matrix(args, 0);
  if (a == nullptr) return false;
  results = {columns(*a, a->sizes),
             integers(*a, with(batch_of(*a), {SymExpr::min(a->sizes[a->ndim() - 2], a->sizes.back())})),
             integers(*a, batch_of(*a))};
  return true;
}

// A, B, left: B is a batch of matrices, one vector, or a vector per matrix.
bool solve(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *a = square(args, 0, env), *b = args.tensor(1);
  if (a == nullptr || b == nullptr || b->ndim() == 0 || b->dtype != a->dtype) return false;
  bool is_vector = b->ndim() == 1;
  if (!is_vector && b->ndim() + 1 == a->ndim()) {
    is_vector = true;
    for (size_t i = 0; i < b->ndim(); ++i) is_vector = is_vector && same_size(env, b->sizes[i], a->sizes[i]);
  }
  const bool left = args.flag(2, true);
  if (!left && is_vector) return false;
  TensorMeta wide = *b;
  if (is_vector) wide.sizes.emplace_back(1);
  if (!same_size(env, wide.sizes[wide.ndim() - (left ? 2 : 1)], a->sizes.back())) return false;
  const TensorMeta of_a = dense_like(*a, batch_of(*a)), of_b = dense_like(*b, batch_of(wide));
  const auto batch = broadcast(env, {&of_a, &of_b});
  if (!batch) return false;
  const SymSizes sizes =
      is_vector ? with(*batch, {a->sizes.back()}) : with(*batch, {wide.sizes[wide.ndim() - 2], wide.sizes.back()});
  results.push_back(left && sizes.size() > 1 ? columns(*b, sizes)
                                             : dense_like(*b, sizes));  // a batch of vectors is stored by columns too
  results.push_back(columns(*a, a->sizes));
  results.push_back(integers(*a, with(batch_of(*a), {a->sizes.back()})));
  results.push_back(integers(*a, batch_of(*a)));
  return true;
}

bool svd(const RuleArgs& args, ShapeEnv&, Results& results) {  // A, full_matrices, compute_uv
  const TensorMeta* a = matrix(args, 0);
  if (a == nullptr) return false;
  const SymExpr m = a->sizes[a->ndim() - 2], n = a->sizes.back(), k = SymExpr::min(m, n);
  const bool full = args.flag(1), vectors = args.flag(2, true);
  results.push_back(vectors ? columns(*a, with(batch_of(*a), {m, full ? m : k})) : nothing(*a));
  results.push_back(dense_like(*a, with(batch_of(*a), {k})));
  results.push_back(vectors ? columns(*a, with(batch_of(*a), {full ? n : k, n})) : nothing(*a));
  return true;
}

bool qr(const RuleArgs& args, ShapeEnv&, Results& results) {  // A, mode
  const TensorMeta* a = matrix(args, 0);
  const auto* mode = args.count() > 1 ? args.args[1].get<std::string>() : nullptr;
  if (a == nullptr || mode == nullptr || (*mode != "reduced" && *mode != "complete" && *mode != "r")) return false;
  const SymExpr m = a->sizes[a->ndim() - 2], n = a->sizes.back(), k = *mode == "complete" ? m : SymExpr::min(m, n);
  results.push_back(*mode == "r" ? nothing(*a) : columns(*a, with(batch_of(*a), {m, k})));
  results.push_back(columns(*a, with(batch_of(*a), {k, n})));
  return true;
}

bool eigh(const RuleArgs& args, ShapeEnv& env, Results& results) {  // A, UPLO, compute_v
  const TensorMeta* a = square(args, 0, env);
  if (a == nullptr) return false;
  results.push_back(dense_like(*a, with(batch_of(*a), {a->sizes.back()})));
  results.push_back(args.flag(2, true) ? columns(*a, a->sizes) : nothing(*a));
  return true;
}

bool matrix_exp(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* a = square(args, 0, env);
  if (a == nullptr) return false;
  results.push_back(dense_like(*a, a->sizes));
  return true;
}

bool check_errors(const RuleArgs& args, ShapeEnv&, Results&) { return args.tensor(0) != nullptr; }

bool cross(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, other, dim
  const TensorMeta *x = args.tensor(0), *y = args.tensor(1);
  if (x == nullptr || y == nullptr || x->ndim() != y->ndim() || x->ndim() == 0 || x->dtype != y->dtype) return false;
  const auto dim = wrap_dim(args.integer_or(2, -1), x->ndim());
  if (!dim || !same_size(env, x->sizes[*dim], 3) || !same_size(env, y->sizes[*dim], 3)) return false;
  auto sizes = broadcast(env, {x, y});
  if (!sizes) return false;
  results.push_back(dense_like(*x, std::move(*sizes)));
  return true;
}

bool cdist_forward(const RuleArgs& args, ShapeEnv& env, Results& results) {  // x1, x2, p, compute_mode
  const TensorMeta *x = args.tensor(0), *y = args.tensor(1);
  if (x == nullptr || y == nullptr || x->ndim() < 2 || y->ndim() < 2 || x->dtype != y->dtype || !is_float(x->dtype))
    return false;
  if (!same_size(env, x->sizes.back(), y->sizes.back())) return false;
  const TensorMeta of_x = dense_like(*x, batch_of(*x)), of_y = dense_like(*y, batch_of(*y));
  const auto batch = broadcast(env, {&of_x, &of_y});
  if (!batch) return false;
  results.push_back(dense_like(*x, with(*batch, {x->sizes[x->ndim() - 2], y->sizes[y->ndim() - 2]})));
  return true;
}

}  // namespace

std::vector<OpRow> linalg_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, matrix_and_info, {"linalg_inv_ex", "linalg_cholesky_ex"}, kChecksData);
  add_rows(rows, determinant<1>, {"_linalg_det"});
  add_rows(rows, determinant<2>, {"_linalg_slogdet"});
  add_rows(rows, lu_factor, {"linalg_lu_factor_ex"}, kChecksData);
  add_rows(rows, solve, {"_linalg_solve_ex"}, kChecksData);
  add_rows(rows, svd, {"_linalg_svd"}, kChecksData);
  add_rows(rows, qr, {"linalg_qr"});
  add_rows(rows, eigh, {"_linalg_eigh"}, kChecksData);
  add_rows(rows, matrix_exp, {"linalg_matrix_exp"});
  add_rows(rows, check_errors, {"_linalg_check_errors"}, kSideEffect);
  add_rows(rows, cross, {"linalg_cross"});
  add_rows(rows, cdist_forward, {"_cdist_forward"});
  return rows;
}

}  // namespace framejit::graph
