// graph/ops/factory.cpp — tensors made from sizes: dtype and device arguments follow the sizes in every schema here.
#include <algorithm>
#include <cmath>

#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;

// size list, then dtype, layout, device at `dtype`, dtype + 1, dtype + 2.
template <size_t dtype>
bool made(const RuleArgs& args, ShapeEnv& env, Results& results) {
  SymSizes sizes;
  if (!args.sizes(0, sizes) || any_negative(env, sizes)) return false;
  results.push_back(dense(args.dtype(dtype).value_or(args.default_dtype), args.device(dtype + 2).value_or(Device{}),
                          std::move(sizes)));
  return true;
}

bool empty(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (args.memory_format(5) == kPreserveFormat || !made<1>(args, env, results)) return false;
  return restride(results[0].strides, results[0].sizes, args.memory_format(5));
}

bool empty_strided(const RuleArgs& args, ShapeEnv& env, Results& results) {
  SymSizes strides;
  if (!args.sizes(1, strides) || !made<2>(args, env, results) || strides.size() != results[0].ndim()) return false;
  results[0].strides = std::move(strides);
  return true;
}

// Sizes at `sizes_at`, and out= as the last argument, which is resized if its sizes differ.
template <size_t sizes_at>
bool made_into(const RuleArgs& args, ShapeEnv& env, Results& results) {
  SymSizes sizes;
  const TensorMeta* out = args.count() == 0 ? nullptr : args.tensor(args.count() - 1);
  if (out == nullptr || !args.sizes(sizes_at, sizes) || any_negative(env, sizes)) return false;
  bool fits = sizes.size() == out->ndim();
  for (size_t i = 0; fits && i < sizes.size(); ++i) fits = same_size(env, sizes[i], out->sizes[i]);
  results.push_back(fits ? *out : dense_like(*out, std::move(sizes)));
  results[0].offset = out->offset;
  return true;
}

DType dtype_of_number(const RuleArgs& args, size_t i) {
  const auto number = args.number(i);
  return !number || *number == DType::kFloat64 ? args.default_dtype : *number;
}

bool full(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!args.number(1) || !made<2>(args, env, results)) return false;
  results[0].dtype = args.dtype(2).value_or(dtype_of_number(args, 1));
  return true;
}

bool scalar_tensor(const RuleArgs& args, ShapeEnv&, Results& results) {  // number, dtype, layout, device
  results.push_back(dense(args.dtype(1).value_or(args.default_dtype), args.device(3).value_or(Device{}), {}));
  return true;
}

// self, size, dtype, layout, device
template <size_t dtype>
bool made_new(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  SymSizes sizes;
  if (self == nullptr || !args.sizes(1, sizes) || any_negative(env, sizes)) return false;
  results.push_back(
      dense(args.dtype(dtype).value_or(self->dtype), args.device(dtype + 2).value_or(self->device), std::move(sizes)));
  return true;
}

bool new_empty_strided(const RuleArgs& args, ShapeEnv& env, Results& results) {
  SymSizes strides;
  if (!args.sizes(2, strides) || !made_new<3>(args, env, results)) return false;
  results[0].strides = std::move(strides);
  return true;
}

// self, then dtype, layout, device, pin_memory, memory_format from `dtype` on.
template <size_t dtype>
bool made_like(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr) return false;
  auto meta = in_format(*self, args.memory_format(dtype + 4), env);
  if (!meta) return false;
  meta->dtype = args.dtype(dtype).value_or(self->dtype);
  meta->device = args.device(dtype + 2).value_or(self->device);
  results.push_back(std::move(*meta));
  return true;
}

std::optional<double> as_double(const RuleArgs& args, size_t i) {
  if (i >= args.count()) return std::nullopt;
  if (const double* d = args.args[i].get<double>()) return *d;
  if (const auto n = args.integer(i)) return static_cast<double>(*n);
  return std::nullopt;
}

// A size, or a float without a fraction that float64 tells from its neighbours.
std::optional<SymExpr> as_integer(const RuleArgs& args, size_t i, bool truncates) {
  if (const auto size = args.size(i)) return size;
  const auto number = as_double(args, i);
  if (!number || std::abs(*number) >= 0x1p53 || (!truncates && std::trunc(*number) != *number)) return std::nullopt;
  return SymExpr(static_cast<int64_t>(*number));
}

std::optional<SymExpr> length_of_range(ShapeEnv& env, const SymExpr& start, const SymExpr& end, const SymExpr& step) {
  if (step == SymExpr(0)) return std::nullopt;
  SymExpr length;
  if (const auto known = step.as_constant()) {
    const int64_t s = *known;
    length = SymExpr::floor_div(s > 0 ? end - start + (s - 1) : start - end + (-s - 1), s > 0 ? s : -s);
  } else {
    if (!env.decide(0, Relation::kLt, step, "arange goes up")) return std::nullopt;
    const SymExpr span = end - start, whole = env.hint(span) / env.hint(step);
    length = step * whole == span ? whole : SymExpr::floor_div(span + step - 1, step);
  }
  if (env.decide(length, Relation::kLt, 0, "arange is empty")) return std::nullopt;
  return length;
}

std::optional<SymExpr> length_of_range(std::optional<double> start, std::optional<double> end,
                                       std::optional<double> step) {
  if (!start || !end || !step || *step == 0) return std::nullopt;
  const double length = std::ceil((*end - *start) / *step);
  if (!(length >= 0 && length < 0x1p63)) return std::nullopt;
  return SymExpr(static_cast<int64_t>(length));
}

// start and end at the given places (absent start: 0), step 1 unless given; the dtype follows them.
bool range(const RuleArgs& args, ShapeEnv& env, int start_at, size_t end_at, int step_at, size_t dtype,
           Results& results) {
  bool integral = true;
  for (size_t i = 0; i < dtype; ++i) integral = integral && args.size(i).has_value();
  const bool truncates = args.dtype(dtype) == DType::kInt64;  // eager first converts the numbers to int64
  const auto integer = [&](int at, int64_t absent) {
    return at < 0 ? SymExpr(absent) : as_integer(args, static_cast<size_t>(at), truncates);
  };
  const auto number = [&](int at, double absent) { return at < 0 ? absent : as_double(args, static_cast<size_t>(at)); };
  const auto start = integer(start_at, 0), end = integer(static_cast<int>(end_at), 0), step = integer(step_at, 1);
  const auto length = start && end && step ? length_of_range(env, *start, *end, *step)
                                           : length_of_range(number(start_at, 0), number(static_cast<int>(end_at), 0),
                                                             number(step_at, 1));
  if (!length) return false;
  const DType inferred = integral ? DType::kInt64 : args.default_dtype;
  results.push_back(dense(args.dtype(dtype).value_or(inferred), args.device(dtype + 2).value_or(Device{}), {*length}));
  return true;
}

bool eye(const RuleArgs& args, ShapeEnv& env, Results& results, size_t dtype) {
  const auto n = args.size(0), m = dtype == 2 ? args.size(1) : n;
  if (!n || !m || any_negative(env, {*n, *m})) return false;
  results.push_back(
      dense(args.dtype(dtype).value_or(args.default_dtype), args.device(dtype + 2).value_or(Device{}), {*n, *m}));
  return true;
}

bool randint(const RuleArgs& args, ShapeEnv& env, Results& results, size_t size_at) {
  SymSizes sizes;
  if (!args.sizes(size_at, sizes) || any_negative(env, sizes)) return false;
  results.push_back(dense(args.dtype(size_at + 1).value_or(DType::kInt64), args.device(size_at + 3).value_or(Device{}),
                          std::move(sizes)));
  return true;
}

bool randperm(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const auto n = args.size(0);
  if (!n || any_negative(env, {*n})) return false;
  results.push_back(dense(args.dtype(1).value_or(DType::kInt64), args.device(3).value_or(Device{}), {*n}));
  return true;
}

// start, end, steps, then dtype, layout, device from `dtype` on. start and end may be 0-dim tensors, whose values the
// kernel reads.
template <size_t dtype>
bool spaced(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const auto steps = args.size(2);
  if (!steps || any_negative(env, {*steps})) return false;
  for (const size_t i : {0, 1})
    if (const TensorMeta* t = args.tensor(i); t != nullptr && (t->ndim() != 0 || is_complex(t->dtype))) return false;
  results.push_back(
      dense(args.dtype(dtype).value_or(args.default_dtype), args.device(dtype + 2).value_or(Device{}), {*steps}));
  return true;
}

template <size_t dtype>
bool window(const RuleArgs& args, ShapeEnv& env, Results& results) {  // length, ...
  const auto length = args.size(0);
  const DType made = args.dtype(dtype).value_or(args.default_dtype);
  if (!length || any_negative(env, {*length}) || !is_float(made)) return false;
  results.push_back(dense(made, args.device(dtype + 2).value_or(Device{}), {*length}));
  return true;
}

// The number of elements in a lower triangle: in each row those up to the diagonal.
int64_t count_lower(int64_t rows, int64_t columns, int64_t diagonal) {
  int64_t count = 0;
  for (int64_t row = std::max<int64_t>(0, -diagonal); row < rows; ++row) {
    if (row + diagonal + 1 >= columns) return count + (rows - row) * columns;
    count += row + diagonal + 1;
  }
  return count;
}

template <bool lower>
bool triangle_indices(const RuleArgs& args, ShapeEnv&, Results& results) {  // row, col, offset, dtype, layout, device
  const auto rows = args.integer(0), columns = args.integer(1), offset = args.integer(2);
  if (!rows || !columns || !offset || *rows < 0 || *columns < 0) return false;
  const int64_t count =
      lower ? count_lower(*rows, *columns, *offset) : *rows * *columns - count_lower(*rows, *columns, *offset - 1);
  results.push_back(dense(args.dtype(3).value_or(DType::kInt64), args.device(5).value_or(Device{}), {2, count}));
  return true;
}

bool normal(const RuleArgs& args, ShapeEnv& env, Results& results) {  // mean, std, size, generator, dtype, ...
  SymSizes sizes;
  if (!args.sizes(2, sizes) || any_negative(env, sizes)) return false;
  results.push_back(
      dense(args.dtype(4).value_or(args.default_dtype), args.device(6).value_or(Device{}), std::move(sizes)));
  return true;
}

// Means and standard deviations, one of which may be a number.
bool normal_of_tensors(const RuleArgs& args, ShapeEnv& env, Results& results) {
  std::vector<const TensorMeta*> given;
  for (const size_t i : {0, 1})
    if (const TensorMeta* t = args.tensor(i)) given.push_back(t);
  if (given.empty() || !is_float(given[0]->dtype) || !is_float(given.back()->dtype)) return false;
  auto sizes = broadcast(env, given);
  if (!sizes) return false;
  results.push_back(dense_like(*given[0], std::move(*sizes)));
  return true;
}

bool multinomial(const RuleArgs& args, ShapeEnv& env, Results& results) {  // weights, num_samples, replacement
  const TensorMeta* self = args.tensor(0);
  const auto count = args.size(1);
  if (self == nullptr || self->ndim() < 1 || self->ndim() > 2 || !is_float(self->dtype) || !count ||
      any_negative(env, {*count - 1}))
    return false;
  if (!args.flag(2) && !env.decide(*count, Relation::kLe, self->sizes.back(), "multinomial has enough categories"))
    return false;
  SymSizes sizes = self->sizes;
  sizes.back() = *count;
  results.push_back(dense(DType::kInt64, self->device, std::move(sizes)));
  return true;
}

}  // namespace

std::vector<OpRow> factory_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, made<1>, {"zeros", "ones"});
  add_rows(rows, made<1>, {"rand", "randn"}, kRandom);
  add_rows(rows, made_into<0>, {"zeros.out", "ones.out", "full.out"});
  add_rows(rows, made_into<0>, {"rand.out"}, kRandom);
  add_rows(rows, made_into<1>, {"randint.out"}, kRandom);
  add_rows(rows, made_into<2>, {"randint.low_out"}, kRandom);
  add_rows(rows, empty, {"empty.memory_format"});
  add_rows(rows, empty_strided, {"empty_strided"});
  add_rows(rows, full, {"full"});
  add_rows(rows, scalar_tensor, {"scalar_tensor"});
  add_rows(rows, made_new<2>, {"new_zeros", "new_ones", "new_empty"});
  add_rows(rows, made_new<3>, {"new_full"});
  add_rows(rows, new_empty_strided, {"new_empty_strided"});
  add_rows(rows, made_like<1>, {"zeros_like", "ones_like", "empty_like"});
  add_rows(rows, made_like<1>, {"rand_like", "randn_like"}, kRandom);
  add_rows(rows, made_like<2>, {"full_like"});
  add_rows(rows, [](const RuleArgs& a, ShapeEnv& e, Results& r) { return range(a, e, -1, 0, -1, 1, r); }, {"arange"});
  add_rows(rows, [](const RuleArgs& a, ShapeEnv& e, Results& r) { return range(a, e, 0, 1, -1, 2, r); },
           {"arange.start"});
  add_rows(rows, [](const RuleArgs& a, ShapeEnv& e, Results& r) { return range(a, e, 0, 1, 2, 3, r); },
           {"arange.start_step"});
  add_rows(rows, [](const RuleArgs& a, ShapeEnv& e, Results& r) { return eye(a, e, r, 1); }, {"eye"});
  add_rows(rows, [](const RuleArgs& a, ShapeEnv& e, Results& r) { return eye(a, e, r, 2); }, {"eye.m"});
  add_rows(rows, [](const RuleArgs& a, ShapeEnv& e, Results& r) { return randint(a, e, r, 1); }, {"randint"}, kRandom);
  add_rows(
      rows, [](const RuleArgs& a, ShapeEnv& e, Results& r) { return randint(a, e, r, 2); }, {"randint.low"}, kRandom);
  add_rows(rows, randperm, {"randperm"}, kRandom);
  add_rows(rows, made_like<2>, {"randint_like", "randint_like.Tensor"}, kRandom);
  add_rows(rows, made_like<3>, {"randint_like.low_dtype"}, kRandom);
  add_rows(rows, normal, {"normal.float_float"}, kRandom);
  add_rows(rows, normal_of_tensors, {"normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor"},
           kRandom | kChecksData);
  add_rows(rows, dense_as<0>, {"poisson", "binomial", "_standard_gamma", "_sample_dirichlet"}, kRandom);
  add_rows(rows, spaced<3>, {"linspace", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor"});
  add_rows(rows, spaced<4>, {"logspace", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor"});
  add_rows(rows, window<1>, {"hann_window"});
  add_rows(rows, window<2>, {"hann_window.periodic"});
  add_rows(rows, triangle_indices<true>, {"tril_indices"});
  add_rows(rows, triangle_indices<false>, {"triu_indices"});
  add_rows(rows, multinomial, {"multinomial"}, kRandom | kChecksData);
  return rows;
}

}  // namespace framejit::graph
