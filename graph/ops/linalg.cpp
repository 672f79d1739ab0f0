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
                    t->device.is_cpu();
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

// self, tau: the columns that the reflections make.
bool householder_product(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *a = matrix(args, 0), *tau = args.tensor(1);
  if (a == nullptr || tau == nullptr || tau->dtype != a->dtype || tau->ndim() + 1 != a->ndim() ||
      !env.decide(a->sizes.back(), Relation::kLe, a->sizes[a->ndim() - 2], "at most as many columns as rows") ||
      !env.decide(tau->sizes.back(), Relation::kLe, a->sizes.back(), "at most as many reflections as columns"))
    return false;
  for (size_t i = 0; i + 2 < a->ndim(); ++i)
    if (!same_size(env, tau->sizes[i], a->sizes[i])) return false;
  results.push_back(columns(*a, a->sizes));
  return true;
}

bool reflections(const RuleArgs& args, ShapeEnv&, Results& results) {  // geqrf: the factors, and a number per column
  const TensorMeta* a = matrix(args, 0);
  if (a == nullptr) return false;
  results = {columns(*a, a->sizes),
             dense_like(*a, with(batch_of(*a), {SymExpr::min(a->sizes[a->ndim() - 2], a->sizes.back())}))};
  return true;
}

// self, tau, other, left, transpose: `other`, multiplied from one side.
bool multiplied_by_reflections(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *a = matrix(args, 0), *tau = args.tensor(1), *other = matrix(args, 2);
  if (a == nullptr || tau == nullptr || other == nullptr || tau->ndim() + 1 != a->ndim() ||
      other->ndim() != a->ndim() || tau->dtype != a->dtype || other->dtype != a->dtype)
    return false;
  const SymExpr& side = other->sizes[other->ndim() - (args.flag(3, true) ? 2 : 1)];
  if (!env.decide(tau->sizes.back(), Relation::kLe, side, "reflections fit") ||
      !same_size(env, a->sizes[a->ndim() - 2], side))
    return false;
  for (size_t i = 0; i + 2 < a->ndim(); ++i)
    if (!same_size(env, tau->sizes[i], a->sizes[i]) || !same_size(env, other->sizes[i], a->sizes[i])) return false;
  results.push_back(columns(*other, other->sizes));
  return true;
}

bool like_square(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* a = square(args, 0, env);
  if (a == nullptr || a->numel() == SymExpr(0)) return false;
  results.push_back(columns(*a, a->sizes));
  return true;
}

// The batch of the right-hand sides `b` and of the matrices `a`, broadcast together.
std::optional<SymSizes> common_batch(const TensorMeta& a, const TensorMeta& b, ShapeEnv& env) {
  const TensorMeta of_a = dense_like(a, batch_of(a)), of_b = dense_like(b, batch_of(b));
  return broadcast(env, {&of_a, &of_b});
}

bool cholesky_solve(const RuleArgs& args, ShapeEnv& env, Results& results) {  // right-hand sides, factors, upper
  const TensorMeta *b = matrix(args, 0), *a = square(args, 1, env);
  if (a == nullptr || b == nullptr || a->dtype != b->dtype || !same_size(env, b->sizes[b->ndim() - 2], a->sizes.back()))
    return false;
  const auto batch = common_batch(*a, *b, env);
  if (!batch) return false;
  results.push_back(columns(*b, with(*batch, {b->sizes[b->ndim() - 2], b->sizes.back()})));
  return true;
}

bool solve_triangular(const RuleArgs& args, ShapeEnv& env, Results& results) {  // A, B, upper, left, unitriangular
  const TensorMeta *a = square(args, 0, env), *b = matrix(args, 1);
  if (a == nullptr || b == nullptr || a->dtype != b->dtype ||
      !same_size(env, b->sizes[b->ndim() - (args.flag(3, true) ? 2 : 1)], a->sizes.back()))
    return false;
  const auto batch = common_batch(*a, *b, env);
  if (!batch) return false;
  results.push_back(columns(*b, with(*batch, {b->sizes[b->ndim() - 2], b->sizes.back()})));
  return true;
}

template <bool has_vectors>
bool eig(const RuleArgs& args, ShapeEnv& env, Results& results) {  // complex, whatever the matrix is
  const TensorMeta* a = square(args, 0, env);
  const auto dtype = a != nullptr ? to_complex(a->dtype) : std::nullopt;
  if (!dtype) return false;
  results.push_back(dense(*dtype, a->device, with(batch_of(*a), {a->sizes.back()})));
  if (has_vectors) results.push_back(columns(results[0], a->sizes));
  return true;
}

bool linalg_errors(const RuleArgs& args, ShapeEnv&, Results&) { return args.tensor(0) != nullptr; }

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

// The sizes of a batch of distances between the rows of two matrices.
std::optional<SymSizes> distances(const RuleArgs& args, ShapeEnv& env, size_t first) {
  const TensorMeta *x = args.tensor(first), *y = args.tensor(first + 1);
  if (x == nullptr || y == nullptr || x->ndim() < 2 || y->ndim() < 2 || x->dtype != y->dtype || !is_float(x->dtype) ||
      !same_size(env, x->sizes.back(), y->sizes.back()))
    return std::nullopt;
  const auto batch = common_batch(*x, *y, env);
  return batch ? std::optional(with(*batch, {x->sizes[x->ndim() - 2], y->sizes[y->ndim() - 2]})) : std::nullopt;
}

bool euclidean_distances(const RuleArgs& args, ShapeEnv& env, Results& results) {  // x1, x2
  auto sizes = distances(args, env, 0);
  if (!sizes) return false;
  results.push_back(dense_like(*args.tensor(0), std::move(*sizes)));
  return true;
}

// grad, x1, x2, p, cdist: one gradient for each row of x1, over the common batch. If there are no elements, the kernel
// returns zeros like x1.
bool cdist_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {
  auto sizes = distances(args, env, 1);
  if (args.tensor(0) == nullptr || !sizes) return false;
  const SymExpr columns = args.tensor(1)->sizes.back();
  sizes->push_back(columns);
  for (const SymExpr& size : *sizes)
    if (!env.decide(0, Relation::kLt, size, "distances have elements")) return false;
  sizes->erase(sizes->end() - 2);
  results.push_back(dense_like(*args.tensor(1), std::move(*sizes)));
  return true;
}

bool pdist_forward(const RuleArgs& args, ShapeEnv&, Results& results) {  // self, p: distances of pairs of rows
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr || self->ndim() != 2 || !self->is_contiguous()) return false;
  const SymExpr& n = self->sizes[0];
  results.push_back(dense_like(*self, {SymExpr::floor_div(n * n - n, 2)}));
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
  add_rows(rows, linalg_errors, {"_linalg_check_errors"}, kSideEffect);
  add_rows(rows, householder_product, {"linalg_householder_product"});
  add_rows(rows, reflections, {"geqrf"});
  add_rows(rows, multiplied_by_reflections, {"ormqr"});
  add_rows(rows, like_square, {"cholesky", "cholesky_inverse"}, kChecksData);
  add_rows(rows, cholesky_solve, {"cholesky_solve", "_cholesky_solve_helper"}, kChecksData);
  add_rows(rows, solve_triangular, {"linalg_solve_triangular"});
  add_rows(rows, eig<true>, {"linalg_eig"}, kChecksData);
  add_rows(rows, eig<false>, {"_linalg_eigvals"}, kChecksData);
  add_rows(rows, cross, {"linalg_cross"});
  add_rows(rows, euclidean_distances, {"_euclidean_dist"});
  add_rows(rows, cdist_backward, {"_cdist_backward"});
  add_rows(rows, pdist_forward, {"_pdist_forward"});
  add_rows(rows, cdist_forward, {"_cdist_forward"});
  return rows;
}

}  // namespace framejit::graph
