// inductor/lowering/number_checks.cpp — the rows of checked_numbers.def as nests of one point.
#include "inductor/lowering/number_checks.h"

#include <limits>

#include "graph/number_range.h"

namespace framejit::inductor {

namespace {

struct CheckedNumber {
  std::string_view op;
  size_t argument;
};

constexpr CheckedNumber kNumbers[] = {
#define CHECKED(op, argument) {op, argument},
#include "inductor/lowering/checked_numbers.def"
#undef CHECKED
};

InstId outside_of(NestBuilder& b, InstId value, const graph::NumberRange& range) {
  const DType compute = b.dtype(value);
  const InstId outside =
      b.scalar(ScalarOp::k_bit_or, {b.scalar(ScalarOp::k_lt, {value, b.constant(range.low, compute)}),
                                    b.scalar(ScalarOp::k_gt, {value, b.constant(range.high, compute)})});
  if (!is_float(compute)) return outside;
  if (!range.nonfinite) return b.scalar(ScalarOp::k_bit_or, {outside, b.scalar(ScalarOp::k_ne, {value, value})});
  const InstId infinity = b.constant(std::numeric_limits<double>::infinity(), compute);
  return b.scalar(ScalarOp::k_bit_and,
                  {outside, b.scalar(ScalarOp::k_lt, {b.scalar(ScalarOp::k_abs, {value}), infinity})});
}

bool add_check(LowerContext& ctx, size_t argument) {
  const auto tensor = ctx.tensor(argument);
  const auto size = ctx.size(argument);
  const DType target = ctx.result_meta().dtype;
  if (ctx.given(argument) && !tensor && !(size && !size->is_constant()))
    return graph::is_fitting_constant(*ctx.arg(argument), target);
  if (!ctx.given(argument) || (tensor && ctx.meta(*tensor).ndim() != 0)) return true;
  const DType from = tensor ? ctx.meta(*tensor).dtype : DType::kInt64;
  const auto range = graph::fitting_range(from, target);
  // In where(), a 0-dim tensor next to other tensors is not a number, unless it stands for a Python float.
  if (!range || (graph::known_op(row_name(ctx.node())) == graph::KnownOp::where_self && tensor &&
                 (from != DType::kFloat64 || target != DType::kFloat32)))
    return true;
  NestBuilder b = ctx.nest({});
  const InstId value = tensor ? ctx.load(b, *tensor, {}) : b.index(*size);
  b.checked_index(b.cast(outside_of(b, value, *range), DType::kInt64), 1, false);
  ctx.add_nest(std::move(b));
  return true;
}

}  // namespace

bool add_number_checks(LowerContext& ctx) {
  for (const CheckedNumber& number : kNumbers)
    if (number.op == row_name(ctx.node()) && !add_check(ctx, number.argument)) return false;
  return true;
}

}  // namespace framejit::inductor
