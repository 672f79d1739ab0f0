#include "runtime/aten/attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

namespace framejit::runtime {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

// No NaN, no infinity: those have all exponent bits set, and adding one to the exponent carries into the sign.
bool all_finite(const float* numbers, int64_t count) {
  constexpr int64_t kLanes = 16;
  uint32_t found[kLanes] = {};
  const auto carried = [](float x) { return (std::bit_cast<uint32_t>(x) & 0x7fffffffU) + 0x00800000U; };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) found[lane] |= carried(numbers[i + lane]);
  for (; i < count; ++i) found[0] |= carried(numbers[i]);
  uint32_t any = 0;
  for (const uint32_t lane : found) any |= lane;
  return (any & 0x80000000U) == 0;
}

bool all_finite(const at::Tensor& dense) {
  constexpr int64_t kGrain = 1 << 16;
  const float* const data = dense.const_data_ptr<float>();
  std::atomic<bool> finite{true};
  at::parallel_for(0, dense.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (!all_finite(data + begin, end - begin)) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load();
}

// Whether row [batch, head, query] of a four-dimensional mask excludes all keys. Any size of the mask may be one.
bool excludes_all(const at::Tensor& mask, int64_t batch, int64_t head, int64_t query) {
  const auto at = [&](int64_t dim, int64_t index) { return mask.size(dim) == 1 ? 0 : index * mask.stride(dim); };
  const float* row = mask.const_data_ptr<float>() + at(0, batch) + at(1, head) + at(2, query);
  for (int64_t key = 0; key < mask.size(3); ++key)
    if (row[key * mask.stride(3)] != -kInfinity) return false;
  return true;
}

// Whether the fused results equal those of the original ops. Sets rows without a key to NaN, as the original ops do.
bool settle(at::Tensor& result, const at::Tensor& sums, const std::optional<at::Tensor>& mask) {
  if (!all_finite(result)) return false;
  const int64_t size = result.size(3);
  for (int64_t batch = 0; batch < sums.size(0); ++batch)
    for (int64_t head = 0; head < sums.size(1); ++head) {
      const float* sum = sums.const_data_ptr<float>() + batch * sums.stride(0) + head * sums.stride(1);
      float* rows = result.mutable_data_ptr<float>() + batch * result.stride(0) + head * result.stride(1);
      for (int64_t query = 0; query < sums.size(2); ++query) {
        const float logarithm = sum[query * sums.stride(2)];
        if (!std::isfinite(logarithm)) return false;
        if (logarithm != 0) continue;  // zero: no score is finite, or it happens to be zero
        if (!mask || !excludes_all(*mask, batch, head, query)) return false;
        float* row = rows + query * result.stride(2);
        for (int64_t i = 0; i < size; ++i) row[i * result.stride(3)] = kNaN;
      }
    }
  return true;
}

at::Tensor as_written(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      const std::optional<at::Tensor>& mask, bool replaces, double scale) {
  at::Tensor scores = at::matmul(query, key.transpose(-2, -1)).mul_(scale);
  if (mask) scores = replaces ? at::where(mask->ne(0), *mask, scores) : scores.add_(*mask);
  return at::empty_like(query).copy_(at::matmul(at::_softmax(scores, -1, false), value));
}

at::Tensor with_dense_rows(const at::Tensor& tensor) { return tensor.stride(-1) == 1 ? tensor : tensor.contiguous(); }

}  // namespace

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, bool replaces, double scale) {
  const std::optional<at::Tensor> rows = mask ? std::optional(with_dense_rows(*mask)) : std::nullopt;
  at::Tensor result, sums;
  std::tie(result, sums) = at::_scaled_dot_product_flash_attention_for_cpu(
      with_dense_rows(query), with_dense_rows(key), with_dense_rows(value), 0.0, false, rows, scale);
  if (!settle(result, sums, rows)) return as_written(query, key, value, mask, replaces, scale);
  return query.stride(-1) == 1 ? result : at::empty_like(query).copy_(result);
}

TORCH_LIBRARY_FRAGMENT(framejit, library) {
  library.def("attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool replaces, float scale) -> Tensor");
  library.impl("attention", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attention));
}

}  // namespace framejit::runtime
