// graph/scalar_op.cpp — evaluate(), conversions and half-precision formats, all from scalar_ops.def.
#include "graph/scalar_op.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "graph/wrap_int.h"
#include "runtime/base/result.h"

namespace framejit::graph {
namespace {

const ScalarOpRow kRows[] = {
#define SCALAR_OP(name, arity, result, float_value, int_value) {#name, arity, ScalarResult::result},
#include "graph/scalar_ops.def"
#undef SCALAR_OP
};

// Division of the smallest int64 by -1 wraps instead of trapping.
int64_t int_trunc_div(int64_t a, int64_t b) { return b == -1 ? wrap_sub(0, a) : a / b; }
int64_t int_fmod(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }
int64_t int_rem(int64_t a, int64_t b) {
  const int64_t r = int_fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
int64_t int_floor_div(int64_t a, int64_t b) {
  const int64_t q = int_trunc_div(a, b);
  return int_fmod(a, b) != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
int64_t int_pow(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  int64_t result = 1;
  for (; exponent != 0; exponent >>= 1, base = wrap_mul(base, base))
    if (exponent & 1) result = wrap_mul(result, base);
  return result;
}

double float_rem(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
// Python's // on floats, as torch computes it: first the exact quotient, then corrected to the floor.
double float_floor_div(double a, double b) {
  if (b == 0) return a / b;
  const double r = std::fmod(a, b);
  double q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(q);
  return q - floor > 0.5 ? floor + 1 : floor;
}
double round_to_bf16(double a) { return bf16_to_float(float_to_bf16(static_cast<float>(a))); }
double round_to_f16(double a) { return f16_to_float(float_to_f16(static_cast<float>(a))); }

template <class T>
T bits_as(auto bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

int64_t wrap_to(DType dtype, int64_t v) {
  switch (row_of(dtype).kind) {
    case DTypeKind::bool_kind: return v & 1;
    case DTypeKind::signed_kind: {
      const int shift = 64 - 8 * row_of(dtype).bytes;
      return wrap_shl(v, shift) >> shift;
    }
    case DTypeKind::unsigned_kind: return v & ((int64_t{1} << (8 * row_of(dtype).bytes)) - 1);
    case DTypeKind::float_kind:
    case DTypeKind::complex_kind:
    case DTypeKind::other_kind: break;
  }
  return v;
}

[[noreturn]] double not_float_form(const char* name) { FJ_ASSERT(false, std::string("no float form of ") + name); }
[[noreturn]] int64_t not_int_form(const char* name) { FJ_ASSERT(false, std::string("no integer form of ") + name); }

}  // namespace

const ScalarOpRow& row_of(ScalarOp op) { return kRows[static_cast<size_t>(op)]; }

std::optional<ScalarOp> find_scalar_op(std::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (name == kRows[i].name) return static_cast<ScalarOp>(i);
  return std::nullopt;
}

#define not_float not_float_form(name)
#define not_int not_int_form(name)

static double float_form(ScalarOp op, double a, double b, double c) {
  [[maybe_unused]] const char* name = row_of(op).name;
  switch (op) {
#define SCALAR_OP(op_name, arity, result, float_value, int_value) \
  case ScalarOp::k_##op_name: return float_value;
#include "graph/scalar_ops.def"
#undef SCALAR_OP
  }
  return 0;
}

static int64_t int_form(ScalarOp op, int bits, int64_t a, int64_t b, int64_t c) {
  [[maybe_unused]] const char* name = row_of(op).name;
  switch (op) {
#define SCALAR_OP(op_name, arity, result, float_value, int_value) \
  case ScalarOp::k_##op_name: return int_value;
#include "graph/scalar_ops.def"
#undef SCALAR_OP
  }
  return 0;
}

#undef not_float
#undef not_int

ScalarValue evaluate(ScalarOp op, DType dtype, std::span<const ScalarValue> operands) {
  const ScalarOpRow& row = row_of(op);
  ScalarValue v[3] = {};
  for (size_t i = 0; i < operands.size(); ++i) v[i] = operands[i];
  ScalarValue out;
  if (row.result == ScalarResult::kSelect) return v[0].i != 0 ? v[1] : v[2];
  if (is_float(dtype)) {
    const double value = float_form(op, v[0].f, v[1].f, v[2].f);
    if (row.result == ScalarResult::kBoolean) {
      out.i = value != 0;
    } else {
      out.f = dtype == DType::kFloat64 ? value : static_cast<double>(static_cast<float>(value));
    }
    return out;
  }
  const int64_t value = int_form(op, 8 * row_of(dtype).bytes, v[0].i, v[1].i, v[2].i);
  out.i = row.result == ScalarResult::kBoolean ? value : wrap_to(dtype, value);
  return out;
}

ScalarValue convert(ScalarValue value, DType from, DType to) {
  ScalarValue out;
  if (to == DType::kBool) {
    out.i = is_float(from) ? value.f != 0 : value.i != 0;
  } else if (is_float(to)) {
    out.f = is_float(from) ? value.f : static_cast<double>(value.i);
    if (to != DType::kFloat64) out.f = is_float(from) ? static_cast<float>(value.f) : static_cast<float>(value.i);
    if (to == DType::kBFloat16) out.f = round_to_bf16(out.f);
    if (to == DType::kFloat16) out.f = round_to_f16(out.f);
  } else if (is_float(from)) {
    const double t = std::trunc(value.f);
    const bool fits = t >= -9223372036854775808.0 && t < 9223372036854775808.0;
    out.i = wrap_to(to, fits ? static_cast<int64_t>(t) : std::numeric_limits<int64_t>::min());
  } else {
    out.i = wrap_to(to, value.i);
  }
  return out;
}

float bf16_to_float(uint16_t bits) { return bits_as<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t float_to_bf16(float value) {
  if (value != value) return 0x7FC0;
  const uint32_t bits = bits_as<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float f16_to_float(uint16_t bits) { return static_cast<float>(bits_as<_Float16>(bits)); }
uint16_t float_to_f16(float value) { return bits_as<uint16_t>(static_cast<_Float16>(value)); }

ScalarValue load_element(DType dtype, const void* address) {
  ScalarValue out;
  const auto read = [&]<class T>(T) {
    T v;
    std::memcpy(&v, address, sizeof v);
    return v;
  };
  switch (dtype) {
    case DType::kBool: out.i = read(uint8_t{}) != 0; return out;
    case DType::kUInt8: out.i = read(uint8_t{}); return out;
    case DType::kInt8: out.i = read(int8_t{}); return out;
    case DType::kInt16: out.i = read(int16_t{}); return out;
    case DType::kInt32: out.i = read(int32_t{}); return out;
    case DType::kInt64: out.i = read(int64_t{}); return out;
    case DType::kFloat16: out.f = f16_to_float(read(uint16_t{})); return out;
    case DType::kBFloat16: out.f = bf16_to_float(read(uint16_t{})); return out;
    case DType::kFloat32: out.f = read(float{}); return out;
    case DType::kFloat64: out.f = read(double{}); return out;
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kOther: break;
  }
  FJ_ASSERT(false, "no element form of this dtype");
}

void store_element(DType dtype, void* address, ScalarValue value) {
  const auto write = [&](auto v) { std::memcpy(address, &v, sizeof v); };
  switch (dtype) {
    case DType::kBool: return write(static_cast<uint8_t>(value.i != 0));
    case DType::kUInt8: return write(static_cast<uint8_t>(value.i));
    case DType::kInt8: return write(static_cast<int8_t>(value.i));
    case DType::kInt16: return write(static_cast<int16_t>(value.i));
    case DType::kInt32: return write(static_cast<int32_t>(value.i));
    case DType::kInt64: return write(value.i);
    case DType::kFloat16: return write(float_to_f16(static_cast<float>(value.f)));
    case DType::kBFloat16: return write(float_to_bf16(static_cast<float>(value.f)));
    case DType::kFloat32: return write(static_cast<float>(value.f));
    case DType::kFloat64: return write(value.f);
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kOther: break;
  }
  FJ_ASSERT(false, "no element form of this dtype");
}

}  // namespace framejit::graph
