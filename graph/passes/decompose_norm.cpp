// graph/passes/decompose_norm.cpp — means, variances, normalisations and the softmax family.
//
// These ops have no lowering. The library computes those that are left whole here (sizes that may be zero, training).
#include "graph/ops/rule_kit.h"
#include "graph/passes/decompose.h"

#include <algorithm>
#include <limits>

namespace framejit::graph {
namespace {

SymSizes dims_of(const std::vector<bool>& reduced) {
  SymSizes dims;
  for (size_t i = 0; i < reduced.size(); ++i)
    if (reduced[i]) dims.emplace_back(static_cast<int64_t>(i));
  return dims;
}

// Sum over dims, divided by the number of elements; a full reduction of a 0-dim tensor has nothing to sum.
ValueId mean_of(Decomposing& d, ValueId x, const std::vector<bool>& reduced, bool keepdim) {
  return d.div(d.sum(x, dims_of(reduced), keepdim), reduced_count(d.meta(x), reduced));
}

bool mean_dim(Decomposing& d) {  // self, dim, keepdim, dtype
  const TensorMeta& self = d.meta(d.value(0));
  std::vector<bool> reduced;
  if (!is_float(self.dtype) || d.has(3) || !reduced_dims(d.rule(), 1, self.ndim(), reduced)) return false;
  const bool keepdim = d.rule().flag(2);
  d.results = {d.narrow(mean_of(d, d.wide(d.value(0)), reduced, keepdim), 0)};
  return true;
}

bool mean_all(Decomposing& d) {  // self, dtype
  const TensorMeta& self = d.meta(d.value(0));
  if (!is_float(self.dtype) || d.has(1)) return false;
  d.results = {d.narrow(mean_of(d, d.wide(d.value(0)), std::vector<bool>(self.ndim(), true), false), 0)};
  return true;
}

bool is_never_empty(const Decomposing& d, const SymSizes& sizes) {
  return std::all_of(sizes.begin(), sizes.end(),
                     [&](const SymExpr& size) { return d.out.shapes().known(1, Relation::kLe, size) == true; });
}

struct Moments {
  ValueId mean, centred, variance;
};

// Two passes, as in the kernels: the mean, then the mean square of the differences. All results keep the reduced
// dimensions.
Moments moments(Decomposing& d, ValueId x, ValueId mean, const std::vector<bool>& reduced, const SymExpr& divisor) {
  const ValueId centred = d.sub(x, mean);
  return {mean, centred, d.div(d.sum(d.mul(centred, centred), dims_of(reduced), true), divisor)};
}

// The mean is rounded, and a small deviation magnifies an error in its last digit, so rows of equal values would not
// become zero. That is why the mean of the differences is subtracted too.
Moments careful_moments(Decomposing& d, ValueId x, const std::vector<bool>& reduced) {
  const ValueId mean = mean_of(d, x, reduced, true);
  const ValueId rest = d.sub(x, mean), left = mean_of(d, rest, reduced, true);
  const ValueId square = mean_of(d, d.mul(rest, rest), reduced, true);
  return {d.add(mean, left), d.sub(rest, left), d.emit("relu", {d.sub(square, d.mul(left, left))})};
}

// Eager sums the mean of one result in float32 (ReduceOps.cpp, std_var_all_cpu), so this must overflow where that does.
// Everything else uses `mean`.
ValueId overflowing_as_float32(Decomposing& d, ValueId mean, const std::vector<bool>& reduced) {
  const ValueId narrow = mean_of(d, d.value(0), reduced, true);
  const ValueId fits = d.emit("lt.Scalar", {d.emit("abs", {narrow}), std::numeric_limits<double>::infinity()});
  return d.emit("where.self", {fits, mean, converted(d.out, narrow, DType::kFloat64)});
}

ValueId without_dims(Decomposing& d, ValueId kept, const SymSizes& sizes) { return reshaped(d.out, kept, sizes); }

// self, dim, correction, keepdim. `root`: standard deviation; `with_mean`: the mean is a second result.
template <bool root, bool with_mean>
bool variance(Decomposing& d) {
  const TensorMeta& self = d.meta(d.value(0));
  std::vector<bool> reduced;
  if (!is_float(self.dtype) || !reduced_dims(d.rule(), 1, self.ndim(), reduced)) return false;
  const Arg& given = d.args.size() > 2 ? d.args[2] : Arg{};
  int64_t correction = 1;
  if (const auto n = d.rule().integer(2)) correction = *n;
  else if (const double* f = given.get<double>()) {
    correction = static_cast<int64_t>(*f);
    if (static_cast<double>(correction) != *f) return false;
  } else if (!given.is_none()) return false;
  const SymExpr divisor = reduced_count(self, reduced) - correction;
  if (d.out.shapes().known(1, Relation::kLe, divisor) != true) return false;  // the library warns and returns nan
  // Eager's CPU kernels keep the moments in double (SharedReduceOps.h); its GPU kernels do not.
  const bool in_double = self.device.is_cpu();
  const ValueId x = in_double ? converted(d.out, d.value(0), DType::kFloat64) : d.wide(d.value(0));
  const bool is_single = std::ranges::all_of(d.metas[0].sizes, [](const SymExpr& size) { return size == SymExpr(1); });
  ValueId mean = mean_of(d, x, reduced, true);
  if (in_double && is_single && !with_mean && self.dtype == DType::kFloat32)
    mean = overflowing_as_float32(d, mean, reduced);
  const Moments m = moments(d, x, mean, reduced, divisor);
  ValueId result = m.variance;
  if (root) result = d.emit("sqrt", {result});
  d.results = {d.narrow(without_dims(d, result, d.metas[0].sizes), 0)};
  if (with_mean) {
    // Eager's mean is updated by differences. An infinity among the elements makes it NaN, unless it comes last.
    const ValueId updated = d.emit("where.self", {d.emit("isnan", {m.variance}), m.variance, m.mean});
    d.results.push_back(d.narrow(without_dims(d, updated, d.metas[1].sizes), 1));
  }
  return true;
}

ValueId scaled(Decomposing& d, ValueId x, size_t weight, size_t bias, const SymSizes& shape) {
  auto parameter = [&](size_t i) { return d.wide(shape.empty() ? d.value(i) : reshaped(d.out, d.value(i), shape)); };
  if (d.has(weight)) x = d.mul(x, parameter(weight));
  if (d.has(bias)) x = d.add(x, parameter(bias));
  return x;
}

bool layer_norm(Decomposing& d) {  // input, normalized_shape, weight, bias, eps
  const TensorMeta& input = d.meta(d.value(0));
  SymSizes normalized;
  if (!is_float(input.dtype) || !d.rule().sizes(1, normalized) || d.args[4].get<double>() == nullptr) return false;
  std::vector<bool> reduced(input.ndim(), false);
  for (size_t i = input.ndim() - normalized.size(); i < input.ndim(); ++i) reduced[i] = true;
  if (!is_never_empty(d, normalized)) return false;
  const Moments m = careful_moments(d, d.wide(d.value(0)), reduced);
  const ValueId rstd = d.emit("rsqrt", {d.add(m.variance, d.args[4])});
  ValueId result = scaled(d, d.mul(m.centred, rstd), 2, 3, {});
  if (!d.has(3)) result = d.add(result, 0.0);  // eager's kernel adds a bias of zero: -0.0 becomes 0.0
  d.results = {d.narrow(result, 0), d.narrow(m.mean, 1), d.narrow(rstd, 2)};
  return true;
}

bool group_norm(Decomposing& d) {  // input, weight, bias, N, C, HxW, group, eps
  const TensorMeta input = d.meta(d.value(0));
  const auto groups = d.rule().size(6);
  if (!is_float(input.dtype) || input.ndim() < 2 || !groups || d.args[7].get<double>() == nullptr) return false;
  SymSizes grouped{input.sizes[0], *groups, SymExpr::floor_div(input.sizes[1], *groups)};
  std::vector<bool> reduced{false, false, true};
  for (size_t i = 2; i < input.ndim(); ++i) {
    grouped.push_back(input.sizes[i]);
    reduced.push_back(true);
  }
  if (!is_never_empty(d, input.sizes)) return false;
  const ValueId x = reshaped(d.out, d.wide(d.value(0)), grouped);
  const Moments m = careful_moments(d, x, reduced);
  const ValueId rstd = d.emit("rsqrt", {d.add(m.variance, d.args[7])});
  const ValueId normal = reshaped(d.out, d.mul(m.centred, rstd), input.sizes);
  SymSizes channel(input.ndim(), SymExpr(1));
  channel[1] = input.sizes[1];
  d.results = {d.narrow(scaled(d, normal, 1, 2, channel), 0), d.narrow(reshaped(d.out, m.mean, d.metas[1].sizes), 1),
               d.narrow(reshaped(d.out, rstd, d.metas[2].sizes), 2)};
  return true;
}

// Evaluation only: x * alpha + beta per channel. The saved statistics are empty on CPU.
template <bool has_training>
bool batch_norm(Decomposing& d) {  // input, weight, bias, mean, var, [training], momentum, eps
  const size_t eps = has_training ? 7 : 6;
  const TensorMeta input = d.meta(d.value(0));
  if (!is_float(input.dtype) || !d.has(3) || !d.has(4) || d.args[eps].get<double>() == nullptr) return false;
  if (has_training && d.rule().flag(5, true)) return false;
  for (size_t i = 1; i < 5; ++i)  // for an empty batch, the kernel does not check the parameters' sizes
    if (d.has(i) && d.out.shapes().known(d.meta(d.value(i)).sizes[0], Relation::kEq, input.sizes[1]) == false)
      return false;
  ValueId alpha = d.emit("rsqrt", {d.add(d.wide(d.value(4)), d.args[eps])});
  if (d.has(1)) alpha = d.mul(alpha, d.wide(d.value(1)));
  ValueId beta = d.emit("neg", {d.mul(d.wide(d.value(3)), alpha)});
  beta = d.add(beta, d.has(2) ? Arg(d.wide(d.value(2))) : Arg(0.0));  // eager subtracts from zero: -0.0 becomes 0.0
  SymSizes channel(input.ndim(), SymExpr(1));
  channel[1] = input.sizes[1];
  const ValueId result =
      d.add(d.mul(d.wide(d.value(0)), reshaped(d.out, alpha, channel)), reshaped(d.out, beta, channel));
  d.results = {d.narrow(result, 0)};
  for (size_t i = 1; i < 3; ++i)
    d.results.push_back(d.full(d.metas[i].sizes, 0.0, d.metas[i].dtype, d.metas[i].device));
  return true;
}

// The dimension of a softmax whose rows have elements, as a list. The list is empty for a 0-dim tensor.
std::optional<SymSizes> softmax_dims(const Decomposing& d) {
  const TensorMeta& self = d.meta(d.value(0));
  const auto given = d.rule().integer(1);
  const auto dim = given ? wrap_dim(*given, self.ndim()) : std::nullopt;
  if (!dim || !is_float(self.dtype) || !is_never_empty(d, self.sizes)) return std::nullopt;
  return self.ndim() == 0 ? SymSizes{} : SymSizes{SymExpr(static_cast<int64_t>(*dim))};
}

template <bool logarithm>
ValueId softmax_along(Decomposing& d, ValueId x, const SymSizes& dims) {
  const ValueId shifted = d.sub(x, d.emit("amax", {x, dims, true}));
  const ValueId powers = d.emit("exp", {shifted});
  const ValueId total = d.sum(powers, dims, true);
  return logarithm ? d.sub(shifted, d.emit("log", {total})) : d.div(powers, total);
}

template <bool logarithm>
bool softmax(Decomposing& d) {  // self, dim, half_to_float
  const auto dims = softmax_dims(d);
  if (!dims) return false;
  d.results = {d.narrow(softmax_along<logarithm>(d, d.wide(d.value(0)), *dims), 0)};
  return true;
}

// A row that is -inf throughout gives zeros.
bool safe_softmax(Decomposing& d) {  // self, dim, dtype
  const auto dims = softmax_dims(d);
  if (!dims) return false;
  const ValueId largest = d.emit("amax", {d.wide(d.value(0)), *dims, true});
  const ValueId masked = d.emit("eq.Scalar", {largest, -std::numeric_limits<double>::infinity()});
  const ValueId result = softmax_along<false>(d, d.wide(converted(d.out, d.value(0), d.metas[0].dtype)), *dims);
  d.results = {d.narrow(d.emit("where.self", {masked, 0.0, result}), 0)};
  return true;
}

}  // namespace

void add_norm_decompositions(Decompositions& table) {
  table.insert({{"mean.dim", mean_dim},
                {"mean", mean_all},
                {"var.correction", variance<false, false>},
                {"std.correction", variance<true, false>},
                {"var_mean.correction", variance<false, true>},
                {"std_mean.correction", variance<true, true>},
                {"native_layer_norm", layer_norm},
                {"native_group_norm", group_norm},
                {"native_batch_norm", batch_norm<true>},
                {"_native_batch_norm_legit_no_training", batch_norm<false>},
                {"_softmax", softmax<false>},
                {"_safe_softmax", safe_softmax},
                {"_log_softmax", softmax<true>}});
}

}  // namespace framejit::graph
