// graph/scalar_op.h — the scalar algebra that pointwise ops, loop bodies, constant folding and all emitters share.
//
// One row of scalar_ops.def is all that is known about an op. evaluate() defines it: an emitter is right if it agrees
// with evaluate() within the dtype's tolerance. Values of bool and integer dtypes travel as int64, of float dtypes as
// double.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/dtype.h"

namespace framejit::graph {

enum class ScalarOp : uint8_t {
#define SCALAR_OP(name, arity, result, float_value, int_value) k_##name,
#include "graph/scalar_ops.def"
#undef SCALAR_OP
};

enum class ScalarResult : uint8_t { kSame, kBoolean, kSelect };

struct ScalarOpRow {
  const char* name;
  int arity;
  ScalarResult result;
};

const ScalarOpRow& row_of(ScalarOp op);
std::optional<ScalarOp> find_scalar_op(std::string_view name);

union ScalarValue {
  int64_t i;
  double f;
};

// `dtype` is that of the operands (select: of the last two). Half-precision dtypes are computed as float32.
ScalarValue evaluate(ScalarOp op, DType dtype, std::span<const ScalarValue> operands);
// Conversion as in torch's casts: float to integer truncates (and saturates where C++ leaves the result undefined), to
// bool is != 0.
ScalarValue convert(ScalarValue value, DType from, DType to);

float bf16_to_float(uint16_t bits);
uint16_t float_to_bf16(float value);  // round to nearest even, NaN kept quiet
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);

// Reads and writes one element in memory; half-precision elements become float values.
ScalarValue load_element(DType dtype, const void* address);
void store_element(DType dtype, void* address, ScalarValue value);

}  // namespace framejit::graph
