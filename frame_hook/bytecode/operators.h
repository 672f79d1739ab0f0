// frame_hook/bytecode/operators.h — the rows of operators.def: operators, their numbers and their names.
#pragma once

#include <Python.h>

#include <cstdint>
#include <iterator>

namespace framejit::frame_hook {

enum class BinaryOp : uint8_t {
#define BINARY(op, ...) op,
#include "frame_hook/bytecode/operators.def"
};
enum class UnaryOp : uint8_t {
#define UNARY(op, ...) op,
#include "frame_hook/bytecode/operators.def"
};

struct BinaryNames {
  const char *special, *reflected, *in_place;  // methods
  const char *function, *in_place_function;    // of module operator
  const char* symbol;
};
struct UnaryNames {
  const char *special, *function, *symbol;
};
struct ComparisonNames {
  const char *special, *function, *symbol;
  int swapped;
};

inline constexpr BinaryNames kBinaryNames[] = {
#define BINARY(op, number, special, function, symbol, slot, call) \
  {"__" #special "__", "__r" #special "__", "__i" #special "__", #function, "i" #special, symbol},
#include "frame_hook/bytecode/operators.def"
};
inline constexpr UnaryNames kUnaryNames[] = {
#define UNARY(op, special, function, symbol, slot, call) {"__" #special "__", #function, symbol},
#include "frame_hook/bytecode/operators.def"
};
// By Py_LT ...
inline constexpr ComparisonNames kComparisonNames[] = {
#define COMPARISON(number, name, swapped, symbol) {"__" #name "__", #name, symbol, swapped},
#include "frame_hook/bytecode/operators.def"
};
inline constexpr int kBinaryOps = std::size(kBinaryNames);

constexpr const BinaryNames& names_of(BinaryOp op) { return kBinaryNames[static_cast<int>(op)]; }
constexpr const UnaryNames& names_of(UnaryOp op) { return kUnaryNames[static_cast<int>(op)]; }

}  // namespace framejit::frame_hook
