// runtime/size_op.h — one instruction of a straight-line program over sizes, which plans compute before they run and
// guards compare.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/base/exact_int.h"

namespace framejit::runtime {

enum class SizeOpcode : uint8_t { kSymbol, kConstant, kAdd, kMul, kFloorDiv, kMod, kMin, kMax };
struct SizeOp {
  SizeOpcode opcode;
  int64_t constant = 0;           // kConstant: value; kSymbol: index of the symbol
  int32_t left = -1, right = -1;  // earlier instructions of the program, whose values they use
  bool operator==(const SizeOp&) const = default;
};

// False if the result does not fit 64 bits, or there is none (a zero divisor).
[[nodiscard]] inline bool evaluate(const SizeOp& op, const int64_t* symbols, const int64_t* values, int64_t& out) {
  switch (op.opcode) {
    case SizeOpcode::kSymbol: out = symbols[op.constant]; return true;
    case SizeOpcode::kConstant: out = op.constant; return true;
    case SizeOpcode::kAdd: return exact::add(values[op.left], values[op.right], out);
    case SizeOpcode::kMul: return exact::multiply(values[op.left], values[op.right], out);
    case SizeOpcode::kFloorDiv: return exact::floor_div(values[op.left], values[op.right], out);
    case SizeOpcode::kMod: return exact::mod(values[op.left], values[op.right], out);
    case SizeOpcode::kMin: out = std::min(values[op.left], values[op.right]); return true;
    case SizeOpcode::kMax: out = std::max(values[op.left], values[op.right]); return true;
  }
  return false;
}

}  // namespace framejit::runtime
