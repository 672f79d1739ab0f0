// runtime/dtype.cpp — lookups over dtypes.def, and torch's promotion lattice.
#include "runtime/dtype.h"

#include <iterator>

namespace framejit {
namespace {

constexpr DTypeRow kRows[] = {
#define DTYPE(name, text, bytes, kind, c_type, torch) {#text, bytes, DTypeKind::kind, torch},
#include "runtime/dtypes.def"
#undef DTYPE
    {"other", 0, DTypeKind::other_kind, -1},
};
constexpr size_t kKnown = std::size(kRows) - 1;

DType complex_of(DType d) {
  return d == DType::kFloat64 || d == DType::kComplex128 ? DType::kComplex128 : DType::kComplex64;
}

}  // namespace

const DTypeRow& row_of(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return kRows[index < kKnown ? index : kKnown];
}

DType dtype_of_torch(int scalar_type) {
  for (size_t i = 0; i < kKnown; ++i)
    if (kRows[i].torch_scalar_type == scalar_type) return static_cast<DType>(i);
  return DType::kOther;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  const DTypeKind ka = row_of(a).kind, kb = row_of(b).kind;
  if (ka == DTypeKind::other_kind || kb == DTypeKind::other_kind) return DType::kOther;
  if (ka == DTypeKind::complex_kind || kb == DTypeKind::complex_kind) {
    const DType ca = complex_of(a), cb = complex_of(b);
    return ca == DType::kComplex128 || cb == DType::kComplex128 ? DType::kComplex128 : DType::kComplex64;
  }
  if (ka == DTypeKind::bool_kind) return b;
  if (kb == DTypeKind::bool_kind) return a;
  if (is_float(a) && is_float(b)) {
    if (row_of(a).bytes != row_of(b).bytes) return row_of(a).bytes > row_of(b).bytes ? a : b;
    return DType::kFloat32;  // float16 with bfloat16
  }
  if (is_float(a) || is_float(b)) return is_float(a) ? a : b;
  if (ka == kb) return row_of(a).bytes > row_of(b).bytes ? a : b;
  // uint8 and a signed type: int8 cannot hold it, the wider ones can.
  const DType other = a == DType::kUInt8 ? b : a;
  return other == DType::kInt8 ? DType::kInt16 : other;
}

}  // namespace framejit
