// frame_hook/trace/protocol/operators.h — the operators of CPython by number, and their names.
//
// What they do: Tracer::binary_operator, unary_operator and compare.
#pragma once

namespace framejit::frame_hook {

// NB_* of opcode.h; kInPlace more for the in-place ones.
constexpr int kAdd = 0, kAnd = 1, kFloorDivide = 2, kMatrixMultiply = 4, kMultiply = 5, kRemainder = 6, kOr = 7,
              kPower = 8, kSubtract = 10, kTrueDivide = 11, kXor = 12, kInPlace = 13;
const char* symbol_of_operator(int op);  // "+", of one that is not in place
const char* function_of_comparison(int op);  // of Py_LT: "lt", a function of module operator

}  // namespace framejit::frame_hook
