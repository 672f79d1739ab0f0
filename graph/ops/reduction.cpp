// graph/ops/reduction.cpp — reductions and scans. ATen allocates their results contiguously (resize_reduction).
#include <algorithm>

#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;
using ReducedDType = DType (*)(DType);

DType same(DType d) { return d; }
DType widened(DType d) { return is_integral(d) || d == DType::kBool ? DType::kInt64 : d; }
DType truth(DType d) { return d == DType::kUInt8 ? DType::kUInt8 : DType::kBool; }
DType index(DType) { return DType::kInt64; }

constexpr size_t kAbsent = 99;

// An extremum of no elements, or a mean of integers, is refused. Then torch raises its error.
bool reduces_nothing(const TensorMeta& self, const std::vector<bool>& reduced, ShapeEnv& env) {
  for (size_t i = 0; i < self.ndim(); ++i)
    if (reduced[i] && !env.decide(0, Relation::kLt, self.sizes[i], "the compared tensor has elements")) return true;
  return false;
}
bool has_fraction(const RuleArgs& args, size_t dtype) {
  const TensorMeta* self = args.tensor(0);
  return self != nullptr && is_float(args.dtype(dtype).value_or(self->dtype));
}

// One result over the dimensions of argument `dims`; argument `dtype` overrides its dtype.
template <ReducedDType dtype_of, size_t dims, size_t keepdim, size_t dtype = kAbsent>
bool reduce(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* self = args.tensor(0);
  std::vector<bool> reduced;
  if (self == nullptr || !reduced_dims(args, dims, self->ndim(), reduced)) return false;
  TensorMeta meta = dense_like(*self, reduced_sizes(*self, reduced, args.flag(keepdim)));
  meta.dtype = args.dtype(dtype).value_or(dtype_of(self->dtype));
  results.push_back(std::move(meta));
  return true;
}

template <ReducedDType dtype_of, size_t dtype = kAbsent>
bool reduce_all(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr) return false;
  results.push_back(dense(args.dtype(dtype).value_or(dtype_of(self->dtype)), self->device, {}));
  return true;
}

// self, dims, keepdim. Without dims, all dimensions are reduced. Kept dimensions have size 1.
template <ReducedDType dtype_of>
bool extremum(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  std::vector<bool> reduced;
  if (self == nullptr || !reduced_dims(args, 1, self->ndim(), reduced) || reduces_nothing(*self, reduced, env))
    return false;
  return reduce<dtype_of, 1, 2>(args, env, results);
}

bool extremum_of_all(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  return self != nullptr && !reduces_nothing(*self, std::vector<bool>(self->ndim(), true), env) &&
         reduce_all<same>(args, env, results);
}

bool aminmax(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!extremum<same>(args, env, results)) return false;
  results.push_back(results[0]);
  return true;
}

bool values_and_indices(const RuleArgs& args, ShapeEnv& env, Results& results) {  // max.dim, min.dim
  if (!args.given(1) || !extremum<same>(args, env, results)) return false;
  results.push_back(results[0]);
  results[1].dtype = DType::kInt64;
  return true;
}

bool logsumexp(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!reduce<same, 1, 2>(args, env, results)) return false;
  results[0].dtype = to_float(results[0].dtype, args.default_dtype);
  return true;
}

// A reduction of floating-point numbers only.
template <ShapeRule rule, size_t dtype = kAbsent>
bool of_fractions(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return has_fraction(args, dtype) && rule(args, env, results);
}

template <ShapeRule rule>
bool of_magnitudes(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!rule(args, env, results)) return false;
  results[0].dtype = to_real(results[0].dtype);
  return true;
}

bool var_mean(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, dim, correction, keepdim
  if (!has_fraction(args, kAbsent) || !reduce<same, 1, 3>(args, env, results)) return false;
  results.push_back(results[0]);
  return true;
}

template <ReducedDType dtype_of>
bool scan(const RuleArgs& args, ShapeEnv&, Results& results) {  // self, dim, dtype
  const TensorMeta* self = args.tensor(0);
  const auto dim = args.integer(1);
  if (self == nullptr || !dim || !wrap_dim(*dim, self->ndim())) return false;
  results.push_back(dense_like(*self, self->sizes));
  results[0].dtype = args.dtype(2).value_or(dtype_of(self->dtype));
  return true;
}

bool cumulative_extremum(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* self = args.tensor(0);
  const auto dim = args.integer(1);
  if (self == nullptr || !dim || !wrap_dim(*dim, self->ndim())) return false;
  results.assign(2, dense_like(*self, self->sizes));
  results[1].dtype = DType::kInt64;
  return true;
}

bool sort(const TensorMeta* self, ShapeEnv& env, Results& results) {
  if (self == nullptr) return false;
  TensorMeta meta = dense_like(*self, self->sizes);
  meta.strides = is_dense(*self, env) ? self->strides : dense_strides(self->sizes, self->strides, env);
  results = {meta, meta};
  results[1].dtype = DType::kInt64;
  return true;
}

bool topk(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, k, dim, largest, sorted
  const TensorMeta* self = args.tensor(0);
  const auto k = args.size(1);
  if (self == nullptr || !k) return false;
  const auto dim = wrap_dim(args.integer_or(2, -1), self->ndim());
  if (!dim || any_negative(env, {*k})) return false;
  SymSizes sizes = self->sizes;
  if (!env.decide(*k, Relation::kLe, sizes.empty() ? SymExpr(1) : sizes[*dim], "topk has enough elements"))
    return false;
  if (!sizes.empty()) sizes[*dim] = *k;
  results.assign(2, dense_like(*self, std::move(sizes)));
  results[1].dtype = DType::kInt64;
  return true;
}

// Selects one element of each row by its order: self, [k], dim, keepdim, with the dimension at `dim_at`.
bool selected(const RuleArgs& args, ShapeEnv& env, size_t dim_at, Results& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr) return false;
  const auto dim = wrap_dim(args.integer_or(dim_at, -1), self->ndim());
  if (!dim) return false;
  std::vector<bool> reduced(self->ndim(), false);
  if (!reduced.empty()) {
    if (!env.decide(0, Relation::kLt, self->sizes[*dim], "rows have elements")) return false;
    reduced[*dim] = true;
  }
  results.assign(2, dense_like(*self, reduced_sizes(*self, reduced, args.flag(dim_at + 1))));
  results[1].dtype = DType::kInt64;
  return true;
}

bool kth_value(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  const auto k = args.size(1);
  if (self == nullptr || !k) return false;
  const auto dim = wrap_dim(args.integer_or(2, -1), self->ndim());
  if (!dim || any_negative(env, {*k - 1})) return false;
  return env.decide(*k, Relation::kLe, self->ndim() == 0 ? SymExpr(1) : self->sizes[*dim],
                    "kthvalue has enough elements") &&
         selected(args, env, 2, results);
}

bool histogram(const RuleArgs& args, ShapeEnv&, Results& results) {  // self, bins, min, max
  const TensorMeta* self = args.tensor(0);
  const auto bins = args.integer(1);
  if (self == nullptr || !bins || *bins <= 0 || !is_float(self->dtype)) return false;
  results.push_back(dense_like(*self, {*bins}));
  return true;
}

// Whether the kernel can count such elements, and argument `weight` fits them. Each point of `self` takes its last
// `dims` dimensions.
bool may_be_counted(const RuleArgs& args, ShapeEnv& env, size_t weight, size_t dims) {
  const TensorMeta *self = args.tensor(0), *weights = args.tensor(weight);
  if (self == nullptr || (self->dtype != DType::kFloat32 && self->dtype != DType::kFloat64) || self->ndim() < dims)
    return false;
  return weights == nullptr || (weights->dtype == self->dtype && weights->ndim() == self->ndim() - dims &&
                                std::equal(weights->sizes.begin(), weights->sizes.end(), self->sizes.begin(),
                                           [&](const SymExpr& a, const SymExpr& b) { return same_size(env, a, b); }));
}

// The count of each bin, and the list of the bins' edges.
bool histogram_of_bins(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, bins, ...
  const TensorMeta* self = args.tensor(0);
  const auto bins = args.integer(1);
  if (!may_be_counted(args, env, 3, 0) || !bins || *bins <= 0) return false;
  results = {dense_like(*self, {*bins}), dense_like(*self, {*bins + 1})};
  return true;
}

// The number of bins between the edges in a tensor; nullopt if there are none.
std::optional<SymExpr> bins_between(ShapeEnv& env, const TensorMeta* edges, const TensorMeta& self) {
  if (edges == nullptr || edges->ndim() != 1 || edges->dtype != self.dtype ||
      !env.decide(1, Relation::kLt, edges->sizes[0], "there are bins between the edges"))
    return std::nullopt;
  return edges->sizes[0] - 1;
}

bool are_points_of(ShapeEnv& env, const TensorMeta& self, size_t dimensions) {
  return same_size(env, self.sizes.back(), SymExpr(static_cast<int64_t>(dimensions)));
}

bool histogram_between(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, edges, ...
  const TensorMeta *self = args.tensor(0), *edges = args.tensor(1);
  if (!may_be_counted(args, env, 2, 0)) return false;
  const auto bins = bins_between(env, edges, *self);
  if (!bins) return false;
  results = {dense_like(*self, {*bins}), dense_like(*edges, edges->sizes)};
  return true;
}

// Points must have as many coordinates as there are numbers of bins.
bool bins_of_points(const RuleArgs& args, ShapeEnv& env, const TensorMeta*& self, std::vector<int64_t>& bins) {
  self = args.tensor(0);
  return may_be_counted(args, env, 3, 1) && args.integers(1, bins) && !bins.empty() &&
         are_points_of(env, *self, bins.size()) && std::ranges::all_of(bins, [](int64_t count) { return count > 0; });
}

bool edges_of_bins(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, bins, ...
  const TensorMeta* self = nullptr;
  std::vector<int64_t> bins;
  if (!bins_of_points(args, env, self, bins)) return false;
  for (int64_t count : bins) results.push_back(dense_like(*self, {count + 1}));
  return true;
}

bool histogram_of_points(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, bins, ...
  const TensorMeta* self = nullptr;
  std::vector<int64_t> bins;
  if (!bins_of_points(args, env, self, bins)) return false;
  results.push_back(dense_like(*self, SymSizes(bins.begin(), bins.end())));
  return true;
}

bool histogram_of_points_between(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, edges, ...
  const TensorMeta* self = args.tensor(0);
  std::vector<const TensorMeta*> edges;
  if (!may_be_counted(args, env, 2, 1) || !args.tensors(1, edges) || edges.empty() ||
      !are_points_of(env, *self, edges.size()))
    return false;
  SymSizes sizes;
  for (const TensorMeta* e : edges) {
    const auto bins = bins_between(env, e, *self);
    if (!bins) return false;
    sizes.push_back(*bins);
  }
  results.push_back(dense_like(*self, std::move(sizes)));
  return true;
}

bool trace(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr || self->ndim() != 2 || self->dtype == DType::kBool) return false;
  results.push_back(dense(widened(self->dtype), self->device, {}));
  return true;
}

bool dist(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, other, p
  const TensorMeta *self = args.tensor(0), *other = args.tensor(1);
  if (self == nullptr || other == nullptr || !broadcast(env, {self, other})) return false;
  const DType dtype = result_type({self, other}, {}, args.default_dtype);
  if (!is_float(dtype)) return false;
  results.push_back(dense(dtype, common_device({self, other}), {}));
  return true;
}

bool norms_of_list(const RuleArgs& args, ShapeEnv&, Results& results) {  // tensors, ord, dtype
  std::vector<const TensorMeta*> list;
  if (!args.tensors(0, list)) return false;
  for (const TensorMeta* t : list) {
    if (t == nullptr || !is_float(t->dtype)) return false;
    results.push_back(dense(args.dtype(2).value_or(t->dtype), t->device, {}));
  }
  return true;
}

}  // namespace

std::vector<OpRow> reduction_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, reduce<widened, 1, 2, 3>, {"sum.dim_IntList", "nansum"});
  add_rows(rows,
           [](const RuleArgs& a, ShapeEnv& e, Results& r) { return a.given(1) && reduce<widened, 1, 2, 3>(a, e, r); },
           {"prod.dim_int"});
  add_rows(rows, reduce_all<widened, 1>, {"sum", "prod"});
  add_rows(rows, of_fractions<reduce<same, 1, 2, 3>, 3>, {"mean.dim"});
  add_rows(rows, of_fractions<reduce_all<same, 1>, 1>, {"mean"});
  add_rows(rows, extremum<same>, {"amax", "amin"});
  add_rows(rows, logsumexp, {"logsumexp"});
  add_rows(rows, aminmax, {"aminmax"});
  add_rows(rows, extremum_of_all, {"max", "min", "median", "nanmedian"});
  add_rows(rows, reduce<index, 1, kAbsent>, {"count_nonzero.dim_IntList", "count_nonzero"});
  add_rows(rows, reduce<truth, 1, 2>, {"any.dim", "all.dim", "any.dims", "all.dims"});
  add_rows(rows, reduce_all<truth>, {"any", "all"});
  add_rows(rows, of_fractions<reduce<same, 1, 3>>, {"var.correction", "std.correction"});
  add_rows(rows, var_mean, {"var_mean.correction", "std_mean.correction"});
  add_rows(rows, of_magnitudes<reduce<same, 2, 3, 4>>, {"linalg_vector_norm", "norm.ScalarOpt_dim_dtype"});
  add_rows(rows, of_magnitudes<reduce<same, 2, 3>>, {"norm.ScalarOpt_dim"});
  add_rows(rows, of_magnitudes<of_fractions<reduce_all<same>>>, {"norm.Scalar"});
  add_rows(rows, of_fractions<reduce_all<same, 2>>, {"norm.ScalarOpt_dtype"});
  add_rows(rows, dist, {"dist"});
  add_rows(rows, trace, {"trace"});
  add_rows(rows, norms_of_list, {"_foreach_norm.Scalar"});
  add_rows(rows, extremum<index>, {"argmax", "argmin"});
  add_rows(rows, values_and_indices, {"max.dim", "min.dim"});
  add_rows(rows, [](const RuleArgs& a, ShapeEnv& e, Results& r) { return selected(a, e, 1, r); },
           {"median.dim", "nanmedian.dim", "mode"});
  add_rows(rows, kth_value, {"kthvalue"});
  add_rows(rows, histogram, {"histc"}, kChecksData);
  add_rows(rows, histogram_of_bins, {"histogram.bin_ct"}, kChecksData);
  add_rows(rows, histogram_between, {"histogram.bins_tensor"}, kChecksData);
  add_rows(rows, edges_of_bins, {"_histogramdd_bin_edges"}, kChecksData);
  add_rows(rows, histogram_of_points, {"_histogramdd_from_bin_cts"}, kChecksData);
  add_rows(rows, histogram_of_points_between, {"_histogramdd_from_bin_tensors"}, kChecksData);
  add_rows(rows, scan<widened>, {"cumsum", "cumprod"});
  add_rows(rows, scan<same>, {"logcumsumexp"});
  add_rows(rows, cumulative_extremum, {"cummax", "cummin"});
  add_rows(rows, [](const RuleArgs& a, ShapeEnv& e, Results& r) { return sort(a.tensor(0), e, r); },
           {"sort", "sort.stable"});
  add_rows(rows, topk, {"topk"});
  return rows;
}

}  // namespace framejit::graph
