// graph/ops/spectral.cpp — Fourier transforms, in the layout of MKL's kernels: the dimensions that are not transformed
// come first, by falling strides, and the transformed ones follow in the order in which they are computed.
#include <algorithm>
#include <numeric>

#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;
using Dims = std::vector<size_t>;

bool read_dims(const RuleArgs& args, const TensorMeta& self, Dims& dims) {
  std::vector<int64_t> given;
  if (!args.integers(1, given)) return false;
  for (const int64_t dim : given) {
    if (dim < 0 || dim >= static_cast<int64_t>(self.ndim())) return false;
    const auto d = static_cast<size_t>(dim);
    if (std::find(dims.begin(), dims.end(), d) != dims.end()) return false;
    dims.push_back(d);
  }
  return true;
}

void sort_by_strides(Dims::iterator begin, Dims::iterator end, const SymSizes& strides, ShapeEnv& env) {
  std::stable_sort(begin, end, [&](size_t a, size_t b) {
    return strides[a] != strides[b] && env.decide(strides[b], Relation::kLt, strides[a], "order of a transform");
  });
}

// The strides of a transform's result, if its operand has `strides`.
SymSizes strides_after(const SymSizes& strides, const SymSizes& sizes, const Dims& dims, ShapeEnv& env) {
  Dims order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto is_kept = [&](size_t d) { return std::find(dims.begin(), dims.end(), d) == dims.end(); };
  // If strides are equal, std::partition decides the order. ATen calls it too (aten/native/mkl/SpectralOps.cpp of torch
  // 2.13).
  const auto kept_end = std::partition(order.begin(), order.end(), is_kept);
  sort_by_strides(order.begin(), kept_end, strides, env);
  std::copy(dims.begin(), dims.end(), kept_end);
  SymSizes result(sizes.size());
  SymExpr running = 1;
  for (size_t i = order.size(); i-- > 0;) {
    result[order[i]] = running;
    running = running * sizes[order[i]];
  }
  return result;
}

bool has_elements(const TensorMeta& self, ShapeEnv& env) {
  return std::all_of(self.sizes.begin(), self.sizes.end(), [&](const SymExpr& size) {
    return env.decide(0, Relation::kLt, size, "a transformed tensor has elements");
  });
}

// Real to complex: self, dim, normalization, onesided.
bool from_real(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  const auto dtype = self != nullptr ? to_complex(self->dtype) : std::nullopt;
  Dims dims;
  if (!dtype || !read_dims(args, *self, dims) || dims.empty() || !has_elements(*self, env)) return false;
  TensorMeta meta = dense(*dtype, self->device, self->sizes);
  if (args.flag(3)) meta.sizes[dims.back()] = SymExpr::floor_div(self->sizes[dims.back()], 2) + 1;
  sort_by_strides(dims.begin(), dims.end() - 1, self->strides, env);
  meta.strides = strides_after(self->strides, meta.sizes, dims, env);
  results.push_back(std::move(meta));
  return true;
}

// Complex to complex: self, dim, normalization, forward.
bool between_complex(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  Dims dims;
  if (self == nullptr || !is_complex(self->dtype) || !read_dims(args, *self, dims) || !has_elements(*self, env))
    return false;
  results.push_back(preserved(*self, env));
  if (dims.empty()) return true;
  sort_by_strides(dims.begin(), dims.end(), self->strides, env);
  results[0].strides = strides_after(self->strides, self->sizes, dims, env);
  return true;
}

// Complex to real: self, dim, normalization, last_dim_size. All dimensions but the last are transformed first, between
// complex numbers.
bool to_real_numbers(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  const auto last = args.size(3);
  Dims dims;
  if (self == nullptr || !is_complex(self->dtype) || !last || !read_dims(args, *self, dims) || dims.empty() ||
      !has_elements(*self, env) || any_negative(env, {*last - 1}))
    return false;
  SymSizes strides = self->strides;
  if (dims.size() > 1) {
    Dims first(dims.begin(), dims.end() - 1);
    sort_by_strides(first.begin(), first.end(), strides, env);
    strides = strides_after(strides, self->sizes, first, env);
  }
  TensorMeta meta = dense(to_real(self->dtype), self->device, self->sizes);
  meta.sizes[dims.back()] = *last;
  meta.strides = strides_after(strides, meta.sizes, {dims.back()}, env);
  results.push_back(std::move(meta));
  return true;
}

}  // namespace

std::vector<OpRow> spectral_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, from_real, {"_fft_r2c"});
  add_rows(rows, between_complex, {"_fft_c2c"});
  add_rows(rows, to_real_numbers, {"_fft_c2r"});
  return rows;
}

}  // namespace framejit::graph
