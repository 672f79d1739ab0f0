#include "runtime/aten/short_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <tuple>

#include "runtime/base/warn_once.h"
#include "runtime/gpu_driver.h"

namespace framejit::runtime {
namespace {

constexpr int64_t kSize = 64, kRowBytes = 2 * kSize, kQueries = 64, kThreads = 128;
constexpr int64_t kMostKeys = 256, kMostMasked = 208;  // more scores do not fit into the registers of a thread
constexpr int64_t kMostStep = int64_t{1} << 22;        // of a row, so that offsets of all rows fit into 32 bits

// As in short_attention.hip.
struct Strides {
  int64_t batch, head;
  int row;
};
struct Arguments {
  const void *query, *key, *value, *mask;
  void* result;
  Strides q, k, v, m, r;
  int mask_column, mask_in_pairs;
  int heads, queries;
  float scale;
};

Strides strides_of(const at::Tensor& tensor) {
  return {tensor.stride(0), tensor.stride(1), static_cast<int>(tensor.stride(2))};
}

int64_t shared_bytes(int64_t keys) { return (kQueries + 2 * ((keys + 15) / 16 * 16)) * kRowBytes; }

bool has_whole_words(const at::Tensor& tensor) {
  constexpr int64_t kWord = 16, kElements = kWord / 2;
  if (tensor.stride(3) != 1 || tensor.stride(2) > kMostStep ||
      reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kWord != 0)
    return false;
  for (int64_t d = 0; d < 3; ++d)
    if (tensor.size(d) > 1 && tensor.stride(d) % kElements != 0) return false;
  return true;
}

bool fits(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
          const std::optional<at::Tensor>& mask) {
  for (const at::Tensor* tensor : {&query, &key, &value})
    if (!tensor->is_cuda() || tensor->dim() != 4 || tensor->size(3) != kSize || tensor->numel() == 0 ||
        tensor->scalar_type() != query.scalar_type() || !has_whole_words(*tensor))
      return false;
  const bool is_half = query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf;
  const bool is_mask =
      !mask || (mask->dim() == 4 && mask->scalar_type() == query.scalar_type() && mask->is_cuda() &&
                mask->stride(2) <= kMostStep && mask->stride(3) <= kMostStep && key.size(2) <= kMostMasked);
  return is_half && is_mask && key.size(2) <= kMostKeys && key.sizes() == value.sizes() &&
         key.size(0) == query.size(0) && key.size(1) == query.size(1);
}

// Compiled once for each kind and device, and kept.
Result<GpuDriver::Function> kernel_for(const GpuDriver& driver, int device, int64_t keys, bool is_bf16,
                                       ShortMask mask) {
  using Kind = std::tuple<int, int64_t, bool, ShortMask>;
  static std::mutex mutex;
  static auto* const known = new std::map<Kind, Result<GpuDriver::Function>>;
  const std::lock_guard lock(mutex);
  const Kind kind{device, keys, is_bf16, mask};
  if (const auto at = known->find(kind); at != known->end()) return at->second;
  const auto make = [&]() -> Result<GpuDriver::Function> {
    FJ_TRY(const GpuCompiler* compiler, GpuCompiler::find(driver.vendor()));
    FJ_TRY(const std::string architecture, driver.architecture(device));
    FJ_TRY(const std::string code, compiler->compile(short_attention_source(keys, is_bf16, mask), architecture));
    FJ_TRY(const GpuDriver::Function function, driver.load(code, "fj_short_attention", device));
    FJ_TRY_VOID(driver.allow_shared(function, static_cast<int>(shared_bytes(keys))));
    return function;
  };
  return known->emplace(kind, make()).first->second;
}

bool launch(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
            const std::optional<at::Tensor>& mask, bool causal, double scale, at::Tensor& result) {
  const Result<const GpuDriver*> driver = GpuDriver::find();
  if (!driver.ok() || driver.value()->vendor() != GpuVendor::kNvidia) return false;
  const c10::Device device = query.device();
  const int64_t blocks = (query.size(2) + kQueries - 1) / kQueries;
  const ShortMask kind = mask ? ShortMask::kAdded : causal ? ShortMask::kCausal : ShortMask::kNone;
  const auto kernel =
      kernel_for(*driver.value(), device.index(), key.size(2), query.scalar_type() == at::kBFloat16, kind);
  if (!kernel.ok()) {
    log::warn_reason(kernel.error().reason, kernel.error().message, "framejit::short_attention");
    return false;
  }
  Arguments arguments{query.const_data_ptr(),
                      key.const_data_ptr(),
                      value.const_data_ptr(),
                      nullptr,
                      result.mutable_data_ptr(),
                      strides_of(query),
                      strides_of(key),
                      strides_of(value),
                      {},
                      strides_of(result),
                      0,
                      0,
                      static_cast<int>(query.size(1)),
                      static_cast<int>(query.size(2)),
                      static_cast<float>(scale)};
  if (mask) {
    const auto step = [&](int64_t d) { return mask->size(d) == 1 ? 0 : mask->stride(d); };
    arguments.mask = mask->const_data_ptr();
    arguments.m = {step(0), step(1), static_cast<int>(step(2))};
    arguments.mask_column = static_cast<int>(step(3));
    const int64_t all = step(0) | step(1) | step(2) | key.size(2) | (reinterpret_cast<int64_t>(arguments.mask) / 2);
    arguments.mask_in_pairs = step(3) == 1 && all % 2 == 0 ? 1 : 0;
  }
  void* pointers[] = {&arguments};
  void* const stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
  const c10::DeviceGuard guard(device);
  return driver.value()->launch(kernel.value().handle, static_cast<uint32_t>(query.size(0) * query.size(1) * blocks),
                                kThreads, stream, pointers, static_cast<uint32_t>(shared_bytes(key.size(2)))) == 0;
}

}  // namespace

std::string short_attention_source(int64_t keys, bool is_bf16, ShortMask mask) {
  static constexpr char kText[] =
#include "runtime/aten/short_attention.hip"
      ;
  return "#define KEYS " + std::to_string(keys) + "\n#define IS_BF16 " + (is_bf16 ? "1" : "0") + "\n#define MASK " +
         std::to_string(static_cast<int>(mask)) + "\n" + kText;
}

at::Tensor short_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const std::optional<at::Tensor>& mask, bool causal, double scale) {
  at::Tensor result =
      at::empty({query.size(0), query.size(2), query.size(1), value.size(3)}, query.options()).transpose(1, 2);
  if (!fits(query, key, value, mask) || !launch(query, key, value, mask, causal, scale, result))
    result.copy_(at::scaled_dot_product_attention(query, key, value, mask, 0.0, causal, scale));
  return result;
}

TORCH_LIBRARY_FRAGMENT(framejit, library) {
  library.def(
      "short_attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool causal, float scale) -> Tensor");
  library.impl("short_attention", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(short_attention));
}

}  // namespace framejit::runtime
