// graph/number_range.cpp — the ranges, from the dtypes' kinds and widths.
#include "graph/number_range.h"

#include <cmath>
#include <limits>

namespace framejit::graph {

double largest(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return 65504.0;
    case DType::kBFloat16: return 3.3895313892515355e38;
    case DType::kFloat32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

std::optional<NumberRange> fitting_range(DType from, DType target) {
  const DTypeKind source = row_of(from).kind, kind = row_of(target).kind;
  const bool from_float = source == DTypeKind::float_kind,
             from_int = source == DTypeKind::signed_kind || source == DTypeKind::unsigned_kind;
  if (!from_float && !from_int) return std::nullopt;
  if (kind == DTypeKind::float_kind) {
    const double most = largest(target);
    if (from_float ? largest(from) <= most : most > 0x1p63) return std::nullopt;
    return NumberRange{-most, most, true};
  }
  if (kind != DTypeKind::signed_kind && kind != DTypeKind::unsigned_kind) return std::nullopt;
  if (from_int && row_of(from).bytes <= row_of(target).bytes) return std::nullopt;
  const double span = std::ldexp(1.0, 8 * row_of(target).bytes - 1);
  if (kind == DTypeKind::signed_kind) return NumberRange{-span, span - 1, false};
  return NumberRange{from_int ? 1 - 2 * span : 0, 2 * span - 1, false};  // an int -1 stands for the greatest value
}

bool is_fitting_constant(const Arg& number, DType target) {
  const SymExpr* size = number.get<SymExpr>();
  const double* real = number.get<double>();
  if (number.get<bool>() != nullptr) return true;
  if (real == nullptr && (size == nullptr || !size->is_constant())) return false;
  const auto range = fitting_range(real != nullptr ? DType::kFloat64 : DType::kInt64, target);
  const double value = real != nullptr ? *real : static_cast<double>(size->constant());
  if (!range) return true;
  if (!std::isfinite(value)) return range->nonfinite;
  return value >= range->low && value <= range->high;
}

}  // namespace framejit::graph
