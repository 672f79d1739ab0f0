// runtime/gpu_driver.h — the GPU's run-time compiler and driver, NVIDIA's or AMD's, with one interface.
//
// Both are opened with dlopen when first asked for; a machine without them gets an Error. Objects live as long as the
// process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace framejit::runtime {

enum class GpuVendor : uint8_t { kNvidia, kAmd };

// NVRTC or hiprtc: needs no GPU. Thread-safe.
class GpuCompiler {
 public:
  static Result<const GpuCompiler*> find(GpuVendor vendor);
  // Code object of a program for an architecture ("sm_90", "gfx90a"). A program that does not compile is an Error with
  // the log.
  Result<std::string> compile(const std::string& source, const std::string& architecture) const;
  struct Entries;

 private:
  GpuCompiler(GpuVendor vendor, std::unique_ptr<Entries> entries);
  GpuVendor vendor_;
  std::unique_ptr<Entries> entries_;
};

// The driver of the GPU that torch uses in this process.
class GpuDriver {
 public:
  static Result<const GpuDriver*> find();
  GpuVendor vendor() const { return vendor_; }
  Result<std::string> architecture(int device) const;
  Result<int> processors(int device) const;  // that run blocks side by side

  struct Function {
    void* handle = nullptr;
    std::shared_ptr<void> module;  // unloaded with the last copy
  };
  // Loads a code object on a device and finds one kernel of it.
  Result<Function> load(const std::string& code, const char* kernel, int device) const;
  // Lets a kernel's blocks have more shared memory than they get by default. NVIDIA only.
  Result<void> allow_shared(const Function& function, int bytes) const;
  // Enqueues blocks x threads on a stream of the current device; 0, or the driver's error. shared: bytes for each
  // block.
  int launch(void* function, uint32_t blocks, uint32_t threads, void* stream, void** arguments,
             uint32_t shared = 0) const;
  // The same, but the kernel may begin before the one before it has ended: it waits for that itself. NVIDIA only.
  int launch_early(void* function, uint32_t blocks, uint32_t threads, void* stream, void** arguments,
                   uint32_t shared = 0) const;
  // Launches a graph of the driver that torch has made. Returns 0 or the driver's error. So does copy(), which copies
  // within a device.
  int launch_graph(void* graph, void* stream) const;
  int copy(void* to, const void* from, size_t bytes, void* stream) const;
  bool is_capturing(void* stream) const;  // or the driver cannot say, because another stream interferes
  Result<void*> make_stream(int device) const;    // does not wait for the default stream; lives as long as the process
  struct Entries;

 private:
  GpuDriver(GpuVendor vendor, void* library, std::unique_ptr<Entries> entries);
  Result<int> attribute(int which, int device) const;
  Result<std::vector<char>> properties(int device) const;
  GpuVendor vendor_;
  void* library_;
  int (*launch_with_)(const void* config, void* function, void** arguments, void** extra) = nullptr;
  std::unique_ptr<Entries> entries_;
};

// Whether there are a driver and its compiler; an Error says what is missing.
Result<void> find_gpu();

// The stream that kernels of this thread are launched on; null: the default stream. Set by whoever runs a plan.
void set_gpu_stream(void* stream);
void* gpu_stream();

// While it lives, kernels of this thread that wait for the one before them may begin early. Only inside a graph that
// holds one plan: what the plan does not write has then been written before the graph began.
class EarlyLaunches {
 public:
  EarlyLaunches();
  ~EarlyLaunches();
  EarlyLaunches(const EarlyLaunches&) = delete;
  static bool are_on();
};

}  // namespace framejit::runtime
