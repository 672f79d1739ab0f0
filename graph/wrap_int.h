// graph/wrap_int.h — int64 arithmetic that wraps, as kernels and eager compute it; plain C++ leaves overflow undefined.
#pragma once

#include <cstdint>

namespace framejit::graph {

constexpr int64_t wrap_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
constexpr int64_t wrap_sub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
constexpr int64_t wrap_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
constexpr int64_t wrap_shl(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) << b); }

}  // namespace framejit::graph
