// runtime/base/exact_int.h — Python's int arithmetic on int64: the true result, or false if there is none (it needs
// more than 64 bits, or the divisor is zero). `out` is written only with a true result.
#pragma once

#include <cstdint>

namespace framejit::exact {

[[nodiscard]] inline bool add(int64_t a, int64_t b, int64_t& out) {
  long long sum;
  if (__builtin_saddll_overflow(a, b, &sum)) [[unlikely]] return false;
  out = sum;
  return true;
}
[[nodiscard]] inline bool multiply(int64_t a, int64_t b, int64_t& out) {
  long long product;
  if (__builtin_smulll_overflow(a, b, &product)) [[unlikely]] return false;
  out = product;
  return true;
}
[[nodiscard]] inline bool floor_div(int64_t a, int64_t b, int64_t& out) {
  if (b == -1) return multiply(a, -1, out);
  if (b == 0) [[unlikely]] return false;
  out = a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
  return true;
}
[[nodiscard]] inline bool mod(int64_t a, int64_t b, int64_t& out) {
  if (b == 0) [[unlikely]] return false;
  const int64_t r = b == -1 ? 0 : a % b;
  out = r != 0 && (r < 0) != (b < 0) ? r + b : r;
  return true;
}

}  // namespace framejit::exact
