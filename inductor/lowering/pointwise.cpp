// inductor/lowering/pointwise.cpp — elementwise ops: the rows of pointwise.def, and the few whose arguments choose the
// formula.
//
// Values are computed in the result's dtype (f32 for half precision), as eager's kernels compute in their op-math type.
// Comparisons promote their operands as torch's TensorIterator does: dimensioned tensors first, then 0-dim ones, then
// numbers, each only if of a higher category.
#include <array>
#include <cmath>
#include <limits>

#include "graph/number_range.h"
#include "inductor/lowering/formula.h"
#include "inductor/lowering/lower.h"
#include "runtime/eager_gelu.h"

namespace framejit::inductor {

using graph::TensorMeta;
using graph::ValueId;

namespace {

enum class Rule : uint8_t {
  kResult,
  kFloats,
  kConverted,
  kConvertedFloats,
  kDiscrete,
  kCompare,
  kCompareFloats,
  kFinite,
  kInfinite,
  kLogical,
  kDivisor,
  kQuotient
};

struct PointwiseRow {
  std::string_view op, arguments;
  Rule rule;
  std::string_view formula;
};

constexpr PointwiseRow kRows[] = {
#define POINTWISE(op, arguments, rule, formula) {op, arguments, Rule::rule, formula},
#include "inductor/lowering/pointwise.def"
#undef POINTWISE
};

const PointwiseRow* find_row(std::string_view op) {
  for (const PointwiseRow& row : kRows)
    if (row.op == op) return &row;
  return nullptr;
}

struct Argument {
  std::string_view name;
  std::optional<double> otherwise;
  bool must_be_absent = false;
};

std::vector<Argument> parse_arguments(std::string_view text) {
  std::vector<Argument> arguments;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    Argument a{word, std::nullopt, false};
    if (const size_t equals = word.find('='); equals != std::string_view::npos) {
      a.name = word.substr(0, equals);
      a.otherwise = std::stod(std::string(word.substr(equals + 1)));
    } else if (word.back() == '?') {
      a.name.remove_suffix(1);
      a.must_be_absent = true;
    }
    arguments.push_back(a);
  }
  return arguments;
}

int category(DType dtype) { return dtype == DType::kBool ? 0 : is_float(dtype) ? 2 : 1; }

// dtype in which operands [0, count) of the current node are compared.
DType operand_dtype(LowerContext& ctx, size_t count) {
  std::optional<DType> dimensioned, scalar, number;
  const auto join = [](std::optional<DType>& into, DType d) { into = into ? promote(*into, d) : d; };
  for (size_t i = 0; i < count; ++i) {
    if (const auto v = ctx.tensor(i)) {
      join(ctx.meta(*v).ndim() > 0 ? dimensioned : scalar, ctx.meta(*v).dtype);
    } else if (ctx.given(i)) {
      const graph::Arg& a = *ctx.arg(i);
      join(number, a.get<bool>() ? DType::kBool : a.get<double>() ? DType::kFloat32 : DType::kInt64);
    }
  }
  DType result = dimensioned.value_or(scalar.value_or(number.value_or(DType::kFloat32)));
  for (const auto& lower : {scalar, number})
    if (lower && category(*lower) > category(result)) result = *lower;
  return result;
}

// How operands come to a half dtype. By default they stay in op-math.
struct Rounding {
  DType to = DType::kOther;
  bool own = false;  // also tensors of that dtype, which a kernel holds in more digits
  bool numbers = true;  // also numbers, and tensors that torch reads as numbers
};

// The value of argument i in `compute`; numbers become constants.
InstId operand(LowerContext& ctx, NestBuilder& b, size_t i, const Argument& argument, DType compute,
               const Rounding& rounding) {
  const bool rounds = rounding.to != DType::kOther;
  if (const auto v = ctx.tensor(i)) {
    const TensorMeta& meta = ctx.meta(*v);
    InstId value = ctx.load_broadcast(b, *v, b.range_dims());
    if (rounding.own) value = b.round_to(value, meta.dtype);
    value = b.cast(value, compute);
    const bool is_taken = !rounding.numbers && meta.is_cpu_scalar();
    return !rounds || is_taken || meta.dtype == rounding.to ? value : b.round_to(value, rounding.to);
  }
  if (ctx.given(i) && ctx.arg(i)->get<SymExpr>() != nullptr) return b.cast(b.index(*ctx.size(i)), compute);
  const double number = ctx.given(i) ? *ctx.number(i) : *argument.otherwise;
  const InstId value = b.constant(number, compute);
  return rounds && rounding.numbers ? b.round_to(value, rounding.to) : value;
}

bool divisor_is_safe(LowerContext& ctx) {
  if (is_float(ctx.result_meta().dtype)) return true;
  const auto number = ctx.number(1);
  const auto integer = ctx.integer(1);  // narrow results take only its low bits
  return number && *number != 0 &&
         (!integer || static_cast<uint64_t>(*integer) << (64 - 8 * row_of(ctx.result_meta().dtype).bytes) != 0);
}

bool compares(Rule rule) {
  return rule == Rule::kCompare || rule == Rule::kCompareFloats || rule == Rule::kFinite || rule == Rule::kInfinite;
}

Rounding rounding_of(Rule rule, DType compute) {
  if (rule == Rule::kResult || rule == Rule::kFloats || compute == value_dtype(compute)) return {};
  if (rule == Rule::kConverted || rule == Rule::kConvertedFloats) return {.to = compute};
  return {.to = compute, .own = true, .numbers = rule != Rule::kQuotient};
}

bool lower_formula(LowerContext& ctx, std::string_view argument_text, Rule rule, std::string_view formula) {
  if (ctx.node().results.size() != 1) return false;
  const std::vector<Argument> arguments = parse_arguments(argument_text);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool readable = ctx.tensor(i) || ctx.size(i) || ctx.number(i);
    if (arguments[i].must_be_absent
            ? ctx.given(i)
            : arguments[i].name != "_" && !readable && (ctx.given(i) || !arguments[i].otherwise))
      return false;
  }
  if ((rule == Rule::kDivisor || rule == Rule::kQuotient) && !divisor_is_safe(ctx)) return false;
  DType compute = ctx.result_meta().dtype;
  if (compares(rule)) compute = operand_dtype(ctx, arguments.size());
  if (rule == Rule::kLogical) compute = DType::kBool;
  if (!is_float(compute)) {
    if (rule == Rule::kFloats || rule == Rule::kConvertedFloats || rule == Rule::kCompareFloats) return false;
    if (rule == Rule::kFinite) formula = "self == self";
    if (rule == Rule::kInfinite) formula = "self != self";
  }
  const Rounding rounding = rounding_of(rule, compute);
  compute = value_dtype(compute);
  NestBuilder b = ctx.result_nest();
  const InstId value = emit_formula(b, formula, compute, [&](std::string_view name) -> InstId {
    for (size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].name == name) return operand(ctx, b, i, arguments[i], compute, rounding);
    throw_internal_error(__FILE__, __LINE__, "formula names an argument", std::string(formula));
  });
  ctx.store_result(std::move(b), value);
  return true;
}

bool lower_row(LowerContext& ctx) {
  const PointwiseRow& row = *find_row(row_name(ctx.node()));
  return lower_formula(ctx, row.arguments, row.rule, row.formula);
}

// Eager negates alpha and adds. Negating the least int64 leaves it unchanged.
bool lower_sub(LowerContext& ctx) {
  const bool is_least = ctx.integer(2) == std::numeric_limits<int64_t>::min();
  return lower_formula(ctx, "self other alpha=1", Rule::kResult,
                       is_least ? "self + other * alpha" : "self - other * alpha");
}
bool lower_rsub(LowerContext& ctx) {
  const bool is_least = ctx.integer(2) == std::numeric_limits<int64_t>::min();
  return lower_formula(ctx, "self other alpha=1", Rule::kResult,
                       is_least ? "other + self * alpha" : "other - self * alpha");
}

// div(self, other, *, rounding_mode)
bool lower_div_mode(LowerContext& ctx) {
  const auto mode = ctx.text(2);
  if (!mode) return lower_formula(ctx, "self other", Rule::kResult, "self / other");
  const DType dtype = ctx.result_meta().dtype;
  if (*mode == "trunc" && dtype != value_dtype(dtype) && ctx.tensor(1))
    return false;  // eager rounds the quotient before it truncates
  return lower_formula(ctx, "self other", Rule::kQuotient,
                       *mode == "floor" ? "floor_div(self, other)" : "trunc_div(self, other)");
}

// torch passes contiguous tensors of these dtypes to oneDNN if it has kernels for them.
bool may_be_gelu_of_onednn(const TargetInfo& target, const TensorMeta& m) {
  return target.traits.gelu_is_onednn &&
         (m.dtype == DType::kFloat32 || m.dtype == DType::kBFloat16 || m.dtype == DType::kFloat16) &&
         m.is_contiguous() && !(m.numel() == SymExpr(1));
}

// oneDNN's gelu of infinity is NaN with AVX-512, and overflows before it halves; its kernels for other CPUs never
// return -0.0.
const char* gelu_formula(const TargetInfo& target, const TensorMeta& m) {
  if (may_be_gelu_of_onednn(target, m) &&
      std::isnan(runtime::eager_gelu(m.dtype, std::numeric_limits<double>::infinity()).value_or(0)))
    return "select(self == inf, self - self, self * (1 + erf(self * 0.7071067811865476)) * 0.5)";
  if (may_be_gelu_of_onednn(target, m) && !std::signbit(runtime::eager_gelu(m.dtype, -0.0).value_or(-0.0)))
    return "0.5 * self * (1 + erf(self * 0.7071067811865476)) + 0";
  return "0.5 * self * (1 + erf(self * 0.7071067811865476))";
}

bool lower_gelu(LowerContext& ctx) {
  if (ctx.text(1).value_or("none") == "tanh")
    return lower_formula(ctx, "self _", Rule::kResult,
                         "0.5 * self * (1 + tanh(0.7978845608028654 * (self + 0.044715 * self * self * self)))");
  return lower_formula(ctx, "self _", Rule::kResult, gelu_formula(ctx.target(), ctx.meta(*ctx.tensor(0))));
}

// If self equals a bound, eager returns self if the bound is a number, and the bound if it is a tensor.
bool lower_clamp(LowerContext& ctx) {
  if (!ctx.given(1) && !ctx.given(2)) return false;
  const bool tensors = graph::known_op(row_name(ctx.node())) == graph::KnownOp::clamp_tensor;
  if (!ctx.given(2))
    return lower_formula(ctx, "self low", Rule::kResult, tensors ? "maximum(self, low)" : "maximum(low, self)");
  if (!ctx.given(1))
    return lower_formula(ctx, "self _ high", Rule::kResult, tensors ? "minimum(self, high)" : "minimum(high, self)");
  return lower_formula(ctx, "self low high", Rule::kResult,
                       tensors ? "minimum(maximum(self, low), high)" : "minimum(high, maximum(low, self))");
}

// Small exponents are computed as in eager; all others through pow.
bool lower_pow_scalar(LowerContext& ctx) {
  const auto exponent = ctx.number(1);
  const bool floating = is_float(ctx.result_meta().dtype);
  // float16 goes through the C library's pow, whose zeros and infinities lose their sign.
  const bool by_library = ctx.result_meta().dtype == DType::kFloat16 && ctx.target().traits.half_pow_is_libm;
  if (!exponent)  // a number that varies between calls
    return ctx.tensor(1) && floating &&
           lower_formula(ctx, "self exponent", Rule::kResult,
                         by_library ? "pow(self, exponent)"
                                    : "select(exponent == 0.5, sqrt(self), select(exponent == neg(0.5), 1 / "
                                      "sqrt(self), pow(self, exponent)))");
  if (!floating && *exponent < 0) return false;
  if (*exponent == 1) return lower_formula(ctx, "self _", Rule::kResult, "self");
  if (*exponent == 2) return lower_formula(ctx, "self _", Rule::kResult, "self * self");
  if (*exponent == 3) return lower_formula(ctx, "self _", Rule::kResult, "self * self * self");
  if (by_library && *exponent == 0.5)
    return lower_formula(ctx, "self _", Rule::kResult, "select(self == neg(inf), inf, sqrt(self) + 0)");
  if (by_library && *exponent == -0.5)
    return lower_formula(ctx, "self _", Rule::kResult, "select(self == neg(inf), 0, 1 / (sqrt(self) + 0))");
  if (floating && *exponent == 0.5) return lower_formula(ctx, "self _", Rule::kResult, "sqrt(self)");
  if (floating && *exponent == -0.5) return lower_formula(ctx, "self _", Rule::kResult, "1 / sqrt(self)");
  if (floating && *exponent == -1) return lower_formula(ctx, "self _", Rule::kResult, "1 / self");
  if (floating && *exponent == -2) return lower_formula(ctx, "self _", Rule::kResult, "1 / (self * self)");
  return lower_formula(ctx, "self exponent", Rule::kFloats, "pow(self, exponent)");
}

// Unsigned numbers shift in zeros; signed numbers keep their sign.
bool lower_shift_right(LowerContext& ctx) {
  return lower_formula(
      ctx, "self other", Rule::kResult,
      ctx.result_meta().dtype == DType::kUInt8 ? "select(other >= 8, 0, shr(self, other))" : "shr(self, other)");
}

// nan_to_num(self, nan, posinf, neginf): integers have nothing to replace.
bool lower_nan_to_num(LowerContext& ctx) {
  const auto self = ctx.tensor(0);
  const DType dtype = ctx.result_meta().dtype;
  if (!self || !is_float(dtype)) return self && lower_formula(ctx, "self", Rule::kResult, "self");
  double with[3] = {0, graph::largest(dtype), -graph::largest(dtype)};
  for (size_t i = 0; i < 3; ++i) {
    if (ctx.given(i + 1) && !ctx.number(i + 1)) return false;
    if (ctx.given(i + 1)) with[i] = *ctx.number(i + 1);
  }
  const DType compute = value_dtype(dtype);
  const auto infinity = std::numeric_limits<double>::infinity();
  NestBuilder b = ctx.result_nest();
  const InstId value = b.round_to(b.cast(ctx.load(b, *self, b.range_dims()), compute), dtype);
  InstId result = b.scalar(ScalarOp::k_select, {b.scalar(ScalarOp::k_eq, {value, b.constant(-infinity, compute)}),
                                                b.constant(with[2], compute), value});
  result = b.scalar(ScalarOp::k_select, {b.scalar(ScalarOp::k_eq, {value, b.constant(infinity, compute)}),
                                         b.constant(with[1], compute), result});
  result =
      b.scalar(ScalarOp::k_select, {b.scalar(ScalarOp::k_ne, {value, value}), b.constant(with[0], compute), result});
  ctx.store_result(std::move(b), result);
  return true;
}

// round(self, decimals): scaled, rounded, scaled back, each step in the result's dtype.
bool lower_round_decimals(LowerContext& ctx) {
  const auto self = ctx.tensor(0);
  const auto decimals = ctx.integer(1);
  const DType dtype = ctx.result_meta().dtype, compute = value_dtype(dtype);
  if (!self || !decimals || !is_float(dtype) || compute != dtype) return false;
  NestBuilder b = ctx.result_nest();
  const InstId ten = b.constant(std::pow(10.0, static_cast<double>(std::abs(*decimals))), compute);
  const InstId value = ctx.load(b, *self, b.range_dims());
  const ScalarOp there = *decimals < 0 ? ScalarOp::k_div : ScalarOp::k_mul,
                 back = *decimals < 0 ? ScalarOp::k_mul : ScalarOp::k_div;
  const InstId result = b.scalar(back, {b.scalar(ScalarOp::k_round, {b.scalar(there, {value, ten})}), ten});
  ctx.store_result(std::move(b), result);
  return true;
}

// elu_backward(grad, alpha, scale, input_scale, is_result, self or result)
bool lower_elu_backward(LowerContext& ctx) {
  const bool* of_result = ctx.given(4) ? ctx.arg(4)->get<bool>() : nullptr;
  if (of_result == nullptr) return false;
  return lower_formula(
      ctx, "grad alpha scale input_scale _ self", Rule::kResult,
      *of_result ? "select(self > 0, grad * scale, grad * input_scale * (self + alpha * scale))"
                 : "select(self > 0, grad * scale, grad * input_scale * (alpha * scale) * exp(self * input_scale))");
}

InstId select_operand(LowerContext& ctx, NestBuilder& b, size_t i, DType compute) {
  return operand(ctx, b, i, {"", std::nullopt, false}, compute, {});
}

bool readable(LowerContext& ctx, size_t i) { return ctx.tensor(i) || ctx.size(i) || ctx.number(i); }

// where(condition, self, other)
bool lower_where(LowerContext& ctx) {
  if (!ctx.tensor(0) || !readable(ctx, 1) || !readable(ctx, 2)) return false;
  const DType compute = value_dtype(ctx.result_meta().dtype);
  NestBuilder b = ctx.result_nest();
  const InstId condition = b.cast(select_operand(ctx, b, 0, value_dtype(ctx.meta(*ctx.tensor(0)).dtype)), DType::kBool);
  const InstId yes = select_operand(ctx, b, 1, compute), no = select_operand(ctx, b, 2, compute);
  const InstId result = b.scalar(ScalarOp::k_select, {condition, yes, no});
  ctx.store_result(std::move(b), result);
  return true;
}

// masked_fill(self, mask, value)
bool lower_masked_fill(LowerContext& ctx) {
  if (!ctx.tensor(0) || !ctx.tensor(1) || !readable(ctx, 2)) return false;
  const DType dtype = ctx.result_meta().dtype, compute = value_dtype(dtype);
  if (ctx.tensor(2) && is_float(ctx.meta(*ctx.tensor(2)).dtype) && !is_float(dtype))
    return false;  // eager must check whether it fits
  NestBuilder b = ctx.result_nest();
  const InstId mask = select_operand(ctx, b, 1, DType::kBool);
  const InstId value = b.round_to(select_operand(ctx, b, 2, compute), dtype), self = select_operand(ctx, b, 0, compute);
  const InstId result = b.scalar(ScalarOp::k_select, {mask, value, self});
  ctx.store_result(std::move(b), result);
  return true;
}

// _to_copy, clone: the value in the dtype of the result. A cast to half precision in the user's program is never
// removed.
bool lower_to_copy(LowerContext& ctx) {
  const auto self = ctx.tensor(0);
  if (!self || ctx.meta(*self).ndim() != ctx.result_meta().ndim()) return false;
  const DType target = ctx.result_meta().dtype, source = ctx.meta(*self).dtype;
  NestBuilder b = ctx.result_nest();
  InstId value = ctx.load_broadcast(b, *self, b.range_dims());
  if (source != value_dtype(source) && !is_float(target)) value = b.round_to(value, source);
  value = b.cast(value, target);
  if (target != source) value = b.round_to(value, target);
  ctx.store_result(std::move(b), value);
  return true;
}

// copy(self, src): self with src's values.
bool lower_copy(LowerContext& ctx) {
  const auto source = ctx.tensor(1);
  if (!source) return false;
  const DType target = ctx.result_meta().dtype;
  NestBuilder b = ctx.result_nest();
  const InstId value = b.cast(ctx.load_broadcast(b, *source, b.range_dims()), target);
  const InstId rounded = b.round_to(value, target);
  ctx.store_result(std::move(b), rounded);
  return true;
}

// logit(self, eps): self is first limited to [eps, 1 - eps], if eps is not negative. In half precision, eager rounds
// these limits.
bool lower_logit(LowerContext& ctx) {
  if (ctx.given(1) && !ctx.number(1)) return false;
  if (!ctx.given(1) || *ctx.number(1) < 0) return lower_formula(ctx, "self _", Rule::kResult, "log(self / (1 - self))");
  if (is_half(ctx.result_meta().dtype)) return false;
  return lower_formula(ctx, "self eps", Rule::kResult,
                       "log(select(self < eps, eps, select(self > 1 - eps, 1 - eps, self)) / "
                       "(1 - select(self < eps, eps, select(self > 1 - eps, 1 - eps, self))))");
}

// gelu_backward(grad, self, approximate)
bool lower_gelu_backward(LowerContext& ctx) {
  if (ctx.text(2).value_or("none") != "none") return false;
  return lower_formula(
      ctx, "grad self _", Rule::kResult,
      "grad * (0.5 * (1 + erf(self * 0.7071067811865476)) + self * exp(neg(self * self) * 0.5) * 0.3989422804014327)");
}

}  // namespace

void register_pointwise_lowerings() {
  for (const PointwiseRow& row : kRows) add_lowering(row.op, lower_row);
  static constexpr std::pair<const char*, LowerFn> kOthers[] = {
      {"sub.Tensor", lower_sub},
      {"sub.Scalar", lower_sub},
      {"rsub.Tensor", lower_rsub},
      {"rsub.Scalar", lower_rsub},
      {"div.Tensor_mode", lower_div_mode},
      {"div.Scalar_mode", lower_div_mode},
      {"gelu", lower_gelu},
      {"logit", lower_logit},
      {"gelu_backward", lower_gelu_backward},
      {"clamp", lower_clamp},
      {"clamp.Tensor", lower_clamp},
      {"clip", lower_clamp},
      {"pow.Tensor_Scalar", lower_pow_scalar},
      {"bitwise_right_shift.Tensor", lower_shift_right},
      {"bitwise_right_shift.Tensor_Scalar", lower_shift_right},
      {"__rshift__.Scalar", lower_shift_right},
      {"__rshift__.Tensor", lower_shift_right},
      {"nan_to_num", lower_nan_to_num},
      {"round.decimals", lower_round_decimals},
      {"elu_backward", lower_elu_backward},
      {"where.self", lower_where},
      {"masked_fill.Scalar", lower_masked_fill},
      {"masked_fill.Tensor", lower_masked_fill},
      {"_to_copy", lower_to_copy},
      {"clone", lower_to_copy},
      {"contiguous", lower_to_copy},
      {"copy", lower_copy},
      {"lift_fresh_copy", lower_to_copy}};
  for (const auto& [op, function] : kOthers) add_lowering(op, function);
}

}  // namespace framejit::inductor
