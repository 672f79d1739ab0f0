// runtime/dtype.h — element types. One row of dtypes.def is all that is known about one; a dtype without a row is
// kOther, and only extern calls take it.
#pragma once

#include <cstdint>

namespace framejit {

enum class DTypeKind : uint8_t { bool_kind, signed_kind, unsigned_kind, float_kind, complex_kind, other_kind };

enum class DType : uint8_t {
#define DTYPE(name, text, bytes, kind, c_type, torch) k##name,
#include "runtime/dtypes.def"
#undef DTYPE
  kOther,
};

struct DTypeRow {
  const char* text;
  int bytes;
  DTypeKind kind;
  int torch_scalar_type;
};

const DTypeRow& row_of(DType dtype);  // kOther: text "other", 0 bytes
DType dtype_of_torch(int scalar_type);  // kOther if no row has it
inline bool is_float(DType d) { return row_of(d).kind == DTypeKind::float_kind; }
inline bool is_half(DType d) { return d == DType::kFloat16 || d == DType::kBFloat16; }
inline bool is_complex(DType d) { return row_of(d).kind == DTypeKind::complex_kind; }
inline bool is_integral(DType d) {
  auto k = row_of(d).kind;
  return k == DTypeKind::signed_kind || k == DTypeKind::unsigned_kind;
}

// torch's promotion of two tensor dtypes of the same priority (both of tensors with dimensions).
DType promote(DType a, DType b);

}  // namespace framejit
