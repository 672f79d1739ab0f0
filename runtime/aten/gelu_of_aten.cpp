// runtime/aten/gelu_of_aten.cpp — see gelu_of_aten.h. The CPU kernels are called directly: modes and dispatch keys do
// not matter.
#include "runtime/aten/gelu_of_aten.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/gelu_cpu_dispatch.h>

#include <algorithm>

namespace framejit::runtime {
namespace {

constexpr int64_t kElements = 16;

template <class T> double gelu_of(c10::ScalarType type, double x) {
  const at::Tensor self = at::detail::empty_cpu({kElements}, type);
  std::fill_n(self.mutable_data_ptr<T>(), kElements, static_cast<T>(static_cast<float>(x)));
  return static_cast<double>(static_cast<float>(at::cpu::gelu(self, "none").const_data_ptr<T>()[0]));
}

}  // namespace

double gelu_of_aten(DType dtype, double x) {
  if (dtype == DType::kFloat16) return gelu_of<c10::Half>(c10::kHalf, x);
  return dtype == DType::kBFloat16 ? gelu_of<c10::BFloat16>(c10::kBFloat16, x) : gelu_of<float>(c10::kFloat, x);
}

}  // namespace framejit::runtime
