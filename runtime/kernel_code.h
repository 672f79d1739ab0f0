// runtime/kernel_code.h — a compiled kernel as data, and the loaders that make it run.
//
// A kernel is identified by its content: its id covers the target and the text that it was made from, and is the same
// in every process and run. The loader of its target loads it into this process.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/abi.h"
#include "runtime/base/result.h"

namespace framejit::runtime {

struct DeviceId {  // c10 values
  int8_t type = 0, index = -1;
  bool is_cpu() const { return type == 0; }
  auto operator<=>(const DeviceId&) const = default;
};
std::string text_of(DeviceId device);  // "cpu", "1:0"

struct KernelId {
  uint64_t high = 0, low = 0;
  std::string text() const;  // 32 hexadecimal digits
  auto operator<=>(const KernelId&) const = default;
};
// The id of a kernel: `target` says what it is compiled for and by which compiler, `text` what it computes.
KernelId content_id(std::string_view target, std::string_view text);

struct KernelCode {
  virtual ~KernelCode() = default;
  KernelId id;
  std::string target;      // as the target describes itself: "cpu ...", "gpu ...", "interp"
  std::string text;        // kernel IR
  std::string object;      // machine code in the loader's format; empty: the loader needs none
  std::string name;        // which part of a program it computes, for profilers; not part of the id
  uint32_t threads = 0;    // of a block; 0: not on a GPU
  int64_t per_block = 1;   // points of the range that a block computes
  uint32_t buffers = 0, sizes = 0;  // arguments
};

// A kernel in this process. Holding `code` keeps the machine code.
struct LoadedKernel {
  FjKernelFn function = nullptr;
  std::vector<FjScalar> scalars;  // passed to every call
  std::shared_ptr<const void> code;
};

class KernelLoader {
 public:
  virtual ~KernelLoader() = default;
  // Thread-safe. The same kernel is loaded once for each device.
  virtual Result<LoadedKernel> load(const std::shared_ptr<const KernelCode>& code, DeviceId device) = 0;
};

}  // namespace framejit::runtime

template <>
struct std::hash<framejit::runtime::KernelId> {
  size_t operator()(const framejit::runtime::KernelId& id) const noexcept { return static_cast<size_t>(id.low); }
};
