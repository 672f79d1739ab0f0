// graph/ops/pointwise.cpp — elementwise ops: TensorIterator's broadcasting, strides and promotion.
#include "graph/number_range.h"
#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;

DType floating(DType d, DType default_dtype) { return to_float(d, default_dtype); }
DType boolean(DType, DType) { return DType::kBool; }

template <DTypeOf dtype_of, size_t... operands>
bool mapped(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return elementwise(args, env, {operands...}, dtype_of, results.emplace_back());
}

bool is_negative_integer(const RuleArgs& args, size_t i) {
  const auto n = args.integer(i);
  return n && *n < 0;
}

// Numbers take part in the dtype but are not operands of the iterator: pow(tensor, number), clamp.
template <size_t... numbers>
bool unary_with_numbers(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr || !elementwise(args, env, {0}, keep, results.emplace_back())) return false;
  std::vector<DType> dtypes;
  for (const size_t i : {numbers...})
    if (const auto number = args.number(i)) dtypes.push_back(*number);
  results[0].dtype = result_type({self}, dtypes, args.default_dtype);
  return true;
}

// Rules refuse integers to negative integer powers, bitwise ops on floating-point numbers and clamps without bounds.
// Then torch raises its error.
bool power_of_tensor(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return unary_with_numbers<1>(args, env, results) && !(is_negative_integer(args, 1) && !is_float(results[0].dtype));
}

// For complex numbers, PyTorch copies the real part of a complex result into a new tensor.
bool angle(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!mapped<floating, 0>(args, env, results)) return false;
  if (is_complex(results[0].dtype)) results[0] = dense(to_real(results[0].dtype), results[0].device, results[0].sizes);
  return true;
}

// The result is row-major, whatever the layout of the exponents.
bool power_of_number(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!mapped<keep, 0, 1>(args, env, results)) return false;
  results[0] = dense(results[0].dtype, results[0].device, results[0].sizes);
  return true;
}

template <size_t... operands>
bool bitwise(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return mapped<keep, operands...>(args, env, results) &&
         (is_integral(results[0].dtype) || results[0].dtype == DType::kBool);
}

bool shifted(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return mapped<keep, 0, 1>(args, env, results) && is_integral(results[0].dtype) && results[0].dtype != DType::kBool;
}

template <ShapeRule rule>
bool bounded(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return (args.given(1) || args.given(2)) && rule(args, env, results);
}

// For numbers that eager refuses: whether argument i is, or may be, equal to zero (kEq) or below it (kLt).
bool may_be(const RuleArgs& args, ShapeEnv& env, size_t i, Relation relation, const char* why) {
  if (const double* fraction = args.args[i].get<double>())
    return relation == Relation::kEq ? *fraction == 0 : *fraction < 0;
  const auto number = args.size(i);
  return !number || env.decide(*number, relation, 0, why);
}

// Eager refuses an alpha of zero.
bool celu(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return !may_be(args, env, 1, Relation::kEq, "alpha is zero") && mapped<keep, 0>(args, env, results);
}

// Eager refuses negative limits of a dtype that has no negative values.
bool hardtanh(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  const bool is_unsigned = self != nullptr && row_of(self->dtype).kind == DTypeKind::unsigned_kind;
  for (const size_t i : {1, 2})
    if (is_unsigned && may_be(args, env, i, Relation::kLt, "a limit is negative")) return false;
  return mapped<keep, 0>(args, env, results);
}

// Eager refuses a negative number, and one that the dtype cannot hold.
bool softshrink(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr || !is_float(self->dtype)) return false;
  const double* fraction = args.args[1].get<double>();
  if (fraction != nullptr && !(*fraction <= largest(self->dtype))) return false;
  return !may_be(args, env, 1, Relation::kLt, "lambda is negative") && mapped<keep, 0>(args, env, results);
}

bool where(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* condition = args.tensor(0);
  if (condition == nullptr || condition->dtype != DType::kBool) return false;
  return elementwise(args, env, {0, 1, 2}, keep, results.emplace_back(), 1);
}

template <size_t... operands>
bool lerp(const RuleArgs& args, ShapeEnv& env, Results& results) {  // tensors of one dtype
  for (const size_t i : {operands...})
    if (args.tensor(0) == nullptr || (args.tensor(i) != nullptr && args.tensor(i)->dtype != args.tensor(0)->dtype))
      return false;
  return mapped<keep, operands...>(args, env, results);
}

// masked_fill clones the expanded self contiguously (aten/native/cpu/Indexing: expand_outplace, clone(Contiguous)).
bool masked_fill(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *self = args.tensor(0), *mask = args.tensor(1);
  if (self == nullptr || mask == nullptr || mask->dtype != DType::kBool) return false;
  if (args.tensor(2) != nullptr && args.tensor(2)->ndim() != 0) return false;
  auto sizes = broadcast(env, {mask, self});
  if (!sizes) return false;
  results.push_back(dense_like(*self, std::move(*sizes)));
  return true;
}

bool div_mode(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return args.given(2) ? mapped<keep, 0, 1>(args, env, results) : mapped<floating, 0, 1>(args, env, results);
}

// clone, _to_copy: what Tensor::clone and Tensor::to allocate.
bool clone(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr) return false;
  auto meta = in_format(*self, args.memory_format(1), env);
  if (!meta) return false;
  results.push_back(std::move(*meta));
  return true;
}

bool to_copy(const RuleArgs& args, ShapeEnv& env,
             Results& results) {  // self, dtype, layout, device, pin_memory, non_blocking, format
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr) return false;
  auto meta = in_format(*self, args.memory_format(6), env);
  if (!meta) return false;
  meta->dtype = args.dtype(1).value_or(self->dtype);
  meta->device = args.device(3).value_or(self->device);
  results.push_back(std::move(*meta));
  return true;
}

bool copy_from(const RuleArgs& args, ShapeEnv& env,
               Results& results) {  // self, src, non_blocking: src is broadcast to self
  const TensorMeta *self = args.tensor(0), *source = args.tensor(1);
  return self != nullptr && source != nullptr && expands_to(env, *source, self->sizes) &&
         preserved_self(args, env, results);
}

bool log_sigmoid_forward(const RuleArgs& args, ShapeEnv&,
                         Results& results) {  // the result and a buffer for the backward, on a CPU
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr || !self->device.is_cpu() || !is_float(self->dtype)) return false;
  results.assign(2, dense_like(*self, self->sizes));
  return true;
}

// real and imaginary parts, or absolute values and angles.
bool complex_of_parts(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *first = args.tensor(0), *second = args.tensor(1);
  if (first == nullptr || second == nullptr || first->dtype != second->dtype) return false;
  const auto dtype = to_complex(first->dtype);
  if (!dtype || !mapped<keep, 0, 1>(args, env, results)) return false;
  results[0].dtype = *dtype;
  return true;
}

// self * 2 ** other.
bool ldexp(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *self = args.tensor(0), *other = args.tensor(1);
  if (self == nullptr || other == nullptr || is_complex(other->dtype)) return false;
  const DType of_integers = is_float(self->dtype) ? self->dtype : args.default_dtype;
  const TensorMeta power = dense(is_float(other->dtype) ? other->dtype : of_integers, other->device, other->sizes);
  auto sizes = broadcast(env, {self, &power});
  if (!sizes) return false;
  results.push_back(dense(result_type({self, &power}, {}, args.default_dtype), common_device({self, other}), *sizes));
  results[0].strides = iterator_strides(env, *sizes, {self, &power}, false);
  return true;
}

bool frexp(const RuleArgs& args, ShapeEnv& env, Results& results) {  // mantissas and exponents
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr || !is_float(self->dtype)) return false;
  results.assign(2, preserved(*self, env));
  results[1].dtype = DType::kInt32;
  return true;
}

bool mvlgamma(const RuleArgs& args, ShapeEnv&, Results& results) {  // self, p: sums over a new dimension
  const TensorMeta* self = args.tensor(0);
  const auto p = args.integer(1);
  if (self == nullptr || !p || *p < 1 || is_complex(self->dtype)) return false;
  results.push_back(dense(to_float(self->dtype, args.default_dtype), self->device, self->sizes));
  return true;
}

// fill(self, value): empty_like(self).
bool fill(const RuleArgs& args, ShapeEnv& env, Results& results) { return preserved_self(args, env, results); }

bool native_dropout_backward(const RuleArgs& args, ShapeEnv& env, Results& results) {  // grad_output, mask, scale
  const TensorMeta* grad = args.tensor(0);
  if (grad == nullptr || !is_float(grad->dtype) || !mapped<keep, 0, 1>(args, env, results)) return false;
  results[0].dtype = grad->dtype;
  return true;
}

// self, noise, lower, upper, training: the result, and the new noise.
bool rrelu_functional(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *self = args.tensor(0), *noise = args.tensor(1);
  if (self == nullptr || noise == nullptr) return false;
  results = {preserved(*self, env), preserved(*noise, env)};
  return true;
}

bool native_dropout(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!preserved_self(args, env, results)) return false;
  results.push_back(results[0]);
  results[1].dtype = DType::kBool;
  return true;
}

std::vector<OpRow> special_functions_with_numbers() {
  std::vector<OpRow> rows;
  add_rows(rows, mapped<floating, 0, 1>,
           {"special_zeta.other_scalar",
            "special_zeta.self_scalar",
            "special_chebyshev_polynomial_t.n_scalar",
            "special_chebyshev_polynomial_t.x_scalar",
            "special_chebyshev_polynomial_u.n_scalar",
            "special_chebyshev_polynomial_u.x_scalar",
            "special_chebyshev_polynomial_v.n_scalar",
            "special_chebyshev_polynomial_v.x_scalar",
            "special_chebyshev_polynomial_w.n_scalar",
            "special_chebyshev_polynomial_w.x_scalar",
            "special_hermite_polynomial_h.n_scalar",
            "special_hermite_polynomial_h.x_scalar",
            "special_hermite_polynomial_he.n_scalar",
            "special_hermite_polynomial_he.x_scalar",
            "special_laguerre_polynomial_l.n_scalar",
            "special_laguerre_polynomial_l.x_scalar",
            "special_legendre_polynomial_p.n_scalar",
            "special_legendre_polynomial_p.x_scalar",
            "special_shifted_chebyshev_polynomial_t.n_scalar",
            "special_shifted_chebyshev_polynomial_t.x_scalar",
            "special_shifted_chebyshev_polynomial_u.n_scalar",
            "special_shifted_chebyshev_polynomial_u.x_scalar",
            "special_shifted_chebyshev_polynomial_v.n_scalar",
            "special_shifted_chebyshev_polynomial_v.x_scalar",
            "special_shifted_chebyshev_polynomial_w.n_scalar",
            "special_shifted_chebyshev_polynomial_w.x_scalar"});
  return rows;
}

// For ops that write lists of tensors, or only check.
bool nothing(const RuleArgs&, ShapeEnv&, Results&) { return true; }

// Ops that allocate their results, and ops that write without a result.
void add_copies(std::vector<OpRow>& rows) {
  add_rows(rows, complex_of_parts, {"complex", "polar"});
  add_rows(rows, ldexp, {"ldexp.Tensor"});
  add_rows(rows, frexp, {"frexp.Tensor"});
  add_rows(rows, mvlgamma, {"mvlgamma"});
  add_rows(rows, native_dropout_backward, {"native_dropout_backward"});
  add_rows(rows, clone, {"clone"});
  add_rows(rows, to_copy, {"_to_copy"});
  add_rows_in_place(rows, copy_from, {"copy"});
  add_rows_in_place(rows, fill, {"fill.Scalar", "fill.Tensor", "zero"});
  add_rows_in_place(rows, preserved_self, {"nan_to_num"});  // written to an empty_like(self)
  add_rows(rows, preserved_self, {"_prelu_kernel"});        // the same; the weight is broadcast to self
  add_rows(rows, preserved_self, {"normal_functional", "uniform", "cauchy", "exponential", "geometric", "log_normal"},
           kRandom);
  add_rows(rows, dense_as<0>, {"bernoulli", "bernoulli.p", "rrelu_with_noise"}, kRandom);
  rows.push_back({"rrelu_with_noise_", same_as_self, kRandom, "rrelu_with_noise_functional"});
  add_rows(rows, rrelu_functional, {"rrelu_with_noise_functional"}, kRandom);
  rows.push_back({"bernoulli_.float", same_as_self, kMutates | kRandom, "bernoulli.p"});
  rows.push_back({"normal_", same_as_self, kMutates | kRandom, "normal_functional"});
  rows.push_back({"uniform_", same_as_self, kMutates | kRandom, "uniform"});
  add_rows(rows, native_dropout, {"native_dropout"}, kRandom);
  add_rows(rows, nothing, {"_fused_adam_", "_fused_adamw_", "_amp_foreach_non_finite_check_and_unscale_"});
  add_rows(rows, nothing, {"_assert_async", "_assert_async.msg"}, kSideEffect);
}

}  // namespace

std::vector<OpRow> pointwise_ops() {
  std::vector<OpRow> rows = special_functions_with_numbers();
  add_rows_in_place(rows, mapped<keep, 0>,
                    {"neg", "relu", "sign", "sgn", "floor", "ceil", "round", "round.decimals", "trunc", "frac",
                     "leaky_relu", "elu", "threshold", "silu", "mish", "hardswish", "hardsigmoid", "gelu"});
  add_rows_in_place(rows, hardtanh, {"hardtanh"});
  add_rows_in_place(rows, celu, {"celu"}, kRefusesNumbers);
  add_rows(rows, softshrink, {"softshrink"}, kRefusesNumbers);
  add_rows(rows, mapped<keep, 0>, {"softplus", "hardshrink", "relu6", "_conj_physical"});
  add_rows_in_place(
      rows, mapped<floating, 0>,
      {"exp",  "exp2",   "expm1",   "log",        "log2",   "log10",   "log1p", "sqrt",    "rsqrt",  "sin",   "cos",
       "tan",  "asin",   "acos",    "atan",       "sinh",   "cosh",    "tanh",  "asinh",   "acosh",  "atanh", "erf",
       "erfc", "erfinv", "sigmoid", "reciprocal", "lgamma", "digamma", "sinc",  "deg2rad", "rad2deg"});
  add_rows_in_place(rows, mapped<to_real, 0>, {"abs"});
  add_rows(rows, angle, {"angle"});
  add_rows(rows, mapped<floating, 0>, {"special_entr"});
  add_rows(rows, mapped<floating, 0, 1>,
           {"special_xlog1py", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar", "xlogy.Scalar_Other",
            "xlogy.Scalar_Self"});
  add_rows_in_place(rows, mapped<keep, 0, 1>, {"add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar"}, kTakesAlpha);
  add_rows_in_place(rows, mapped<keep, 0, 1>, {"mul.Tensor", "mul.Scalar", "hypot"});
  add_rows_in_place(rows, mapped<keep, 0, 1>,
                    {"remainder.Tensor", "remainder.Scalar", "fmod.Tensor", "fmod.Scalar", "floor_divide.Scalar"},
                    kDivides);
  add_rows(rows, mapped<keep, 0, 1>, {"floor_divide"}, kDivides);
  add_rows_in_place(rows, bitwise<0>, {"bitwise_not"});
  add_rows_in_place(rows, bitwise<0, 1>,
                    {"bitwise_and.Tensor", "bitwise_and.Scalar", "bitwise_or.Tensor", "bitwise_or.Scalar",
                     "bitwise_xor.Tensor", "bitwise_xor.Scalar"});
  add_rows_in_place(rows, shifted,
                    {"bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "bitwise_right_shift.Tensor",
                     "bitwise_right_shift.Tensor_Scalar"});
  add_rows(rows, shifted, {"__lshift__.Tensor", "__lshift__.Scalar", "__rshift__.Tensor", "__rshift__.Scalar"});
  add_rows(rows, bitwise<0, 1>,
           {"__and__.Tensor", "__and__.Scalar", "__or__.Tensor", "__or__.Scalar", "__xor__.Tensor", "__xor__.Scalar"});
  add_rows(rows, mapped<keep, 1, 0>, {"rsub.Tensor", "rsub.Scalar"}, kTakesAlpha);  // sub(other, self)
  add_rows(rows, log_sigmoid_forward, {"log_sigmoid_forward"});
  add_rows(rows, mapped<keep, 0, 1>,
           {"maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2", "pow.Tensor_Tensor", "softplus_backward",
            "hardsigmoid_backward", "hardswish_backward", "threshold_backward", "gelu_backward", "silu_backward",
            "mish_backward", "sigmoid_backward", "tanh_backward", "clamp_min.Tensor", "clamp_max.Tensor"});
  add_rows(rows, mapped<keep, 0, 1>, {"remainder.Scalar_Tensor"}, kDivides);
  add_rows_in_place(rows, mapped<floating, 0, 1>, {"div.Tensor", "div.Scalar"}, kDivides);
  add_rows_in_place(rows, mapped<floating, 0, 1>, {"atan2", "copysign.Tensor", "copysign.Scalar", "xlogy.Tensor"});
  add_rows_in_place(rows, div_mode, {"div.Tensor_mode", "div.Scalar_mode"}, kDivides);
  add_rows_in_place(
      rows, mapped<boolean, 0, 1>,
      {"eq.Tensor", "eq.Scalar", "ne.Tensor", "ne.Scalar", "lt.Tensor", "lt.Scalar", "le.Tensor", "le.Scalar",
       "gt.Tensor", "gt.Scalar", "ge.Tensor", "ge.Scalar", "logical_and", "logical_or", "logical_xor"});
  add_rows(rows, mapped<boolean, 0>, {"isnan", "isinf", "isfinite", "signbit", "isposinf", "isneginf"});
  add_rows_in_place(rows, mapped<boolean, 0>, {"logical_not"});
  add_rows_in_place(rows, mapped<keep, 0, 1, 2>, {"addcmul", "addcdiv"});
  add_rows_in_place(rows, lerp<0, 1, 2>, {"lerp.Tensor"});
  add_rows_in_place(rows, bounded<mapped<keep, 0, 1, 2>>, {"clamp.Tensor"});
  add_rows_in_place(rows, lerp<0, 1>, {"lerp.Scalar"});
  add_rows_in_place(rows, unary_with_numbers<1>, {"clamp_min", "clamp_max"});
  add_rows(rows, power_of_tensor, {"pow.Tensor_Scalar"});
  add_rows(rows, power_of_number, {"pow.Scalar"});
  add_rows_in_place(rows, bounded<unary_with_numbers<1, 2>>, {"clamp"});
  add_rows(rows, where, {"where.self"});
  add_rows_in_place(rows, mapped<floating, 0>, {"logit"});
  add_rows(rows, bitwise<0, 1>, {"bitwise_and.Scalar_Tensor", "bitwise_or.Scalar_Tensor", "bitwise_xor.Scalar_Tensor"});
  add_rows(rows, shifted, {"bitwise_left_shift.Scalar_Tensor", "bitwise_right_shift.Scalar_Tensor"});
  add_rows_in_place(rows, masked_fill, {"masked_fill.Scalar", "masked_fill.Tensor"});
  for (OpRow& row : rows) row.flags |= kPointwise;
  add_copies(rows);
  return rows;
}

}  // namespace framejit::graph
