// runtime/eager_gelu.cpp — the reader of eager's results.
#include "runtime/eager_gelu.h"

#include <atomic>

namespace framejit::runtime {
namespace {

std::atomic<GeluReader> g_gelu{nullptr};

}  // namespace

void set_gelu_reader(GeluReader reader) { g_gelu = reader; }

std::optional<double> eager_gelu(DType dtype, double x) {
  const GeluReader reader = g_gelu;
  if (reader == nullptr) return std::nullopt;
  return reader(dtype, x);
}

}  // namespace framejit::runtime
