#include "runtime/aten/cast_last.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "runtime/base/warn_once.h"
#include "runtime/gpu_driver.h"

namespace framejit::runtime {
namespace {

constexpr int64_t kCastTile = 2304;     // elements of a block: 256 channels of a window of 3x3
constexpr int64_t kCastThreads = 256;
constexpr int64_t kPieces = 120;    // as many as fit into 4 KB, the arguments of a launch

// As in cast_last.hip.
struct Piece {
  const void* from;
  void* to;
  int channels, window, part, first;
};
struct Pieces {
  int count;
  Piece at[kPieces];
};

Result<GpuDriver::Function> kernel_for(const GpuDriver& driver, int device, bool is_bf16) {
  static std::mutex mutex;
  static auto* const known = new std::map<std::pair<int, bool>, Result<GpuDriver::Function>>;
  const std::lock_guard lock(mutex);
  const std::pair kind(device, is_bf16);
  if (const auto at = known->find(kind); at != known->end()) return at->second;
  const auto make = [&]() -> Result<GpuDriver::Function> {
    FJ_TRY(const GpuCompiler* compiler, GpuCompiler::find(driver.vendor()));
    FJ_TRY(const std::string architecture, driver.architecture(device));
    FJ_TRY(const std::string code, compiler->compile(cast_last_source(is_bf16), architecture));
    return driver.load(code, "fj_cast_last", device);
  };
  return known->emplace(kind, make()).first->second;
}

bool fits(const at::Tensor& tensor, const at::Tensor& result) {
  const bool is_half = result.scalar_type() == at::kBFloat16 || result.scalar_type() == at::kHalf;
  return tensor.is_cuda() && tensor.dim() == 4 && tensor.scalar_type() == at::kFloat && is_half && tensor.numel() > 0 &&
         tensor.numel() < INT32_MAX && 2 * tensor.size(2) * tensor.size(3) <= kCastTile && tensor.is_contiguous() &&
         result.is_contiguous(at::MemoryFormat::ChannelsLast);
}

// The next tensors, up to kPieces of them, as blocks of one launch. Returns how many blocks there are.
int64_t gather(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& results, size_t from,
               Pieces& pieces) {
  int64_t blocks = 0;
  pieces.count = static_cast<int>(std::min<size_t>(tensors.size() - from, kPieces));
  for (int k = 0; k < pieces.count; ++k) {
    const at::Tensor& tensor = tensors[from + static_cast<size_t>(k)];
    const int64_t channels = tensor.size(1), window = tensor.size(2) * tensor.size(3);
    const int64_t part = std::min(channels, kCastTile / window / 2 * 2);
    pieces.at[k] = {tensor.const_data_ptr(),    results[from + static_cast<size_t>(k)].mutable_data_ptr(),
                    static_cast<int>(channels), static_cast<int>(window),
                    static_cast<int>(part),     static_cast<int>(blocks)};
    blocks += tensor.size(0) * ((channels + part - 1) / part);
  }
  return blocks;
}

bool launch(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& results) {
  const Result<const GpuDriver*> driver = GpuDriver::find();
  if (!driver.ok()) return false;
  const c10::Device device = tensors[0].device();
  const auto kernel = kernel_for(*driver.value(), device.index(), results[0].scalar_type() == at::kBFloat16);
  if (!kernel.ok()) {
    log::warn_reason(kernel.error().reason, kernel.error().message, "framejit::cast_all");
    return false;
  }
  void* const stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
  const c10::DeviceGuard guard(device);
  for (size_t from = 0; from < tensors.size(); from += kPieces) {
    Pieces pieces;
    const int64_t blocks = gather(tensors, results, from, pieces);
    void* pointers[] = {&pieces};
    if (driver.value()->launch(kernel.value().handle, static_cast<uint32_t>(blocks), kCastThreads, stream, pointers) !=
        0)
      return false;
  }
  return true;
}

}  // namespace

std::string cast_last_source(bool is_bf16) {
  static constexpr char kText[] =
#include "runtime/aten/cast_last.hip"
      ;
  return std::string("#define IS_BF16 ") + (is_bf16 ? "1" : "0") + "\n#define TILE " + std::to_string(kCastTile) +
         "\n#define PIECES " + std::to_string(kPieces) + "\n#define THREADS " + std::to_string(kCastThreads) + "\n" +
         kText;
}

void cast_last(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& results) {
  std::vector<at::Tensor> from, to;
  for (size_t k = 0; k < tensors.size(); ++k) {
    const bool is_alike =
        from.empty() || (tensors[k].device() == from[0].device() && results[k].scalar_type() == to[0].scalar_type());
    if (is_alike && fits(tensors[k], results[k])) {
      from.push_back(tensors[k]);
      to.push_back(results[k]);
    } else {
      results[k].copy_(tensors[k]);
    }
  }
  if (from.empty() || launch(from, to)) return;
  for (size_t k = 0; k < from.size(); ++k) to[k].copy_(from[k]);
}

}  // namespace framejit::runtime
