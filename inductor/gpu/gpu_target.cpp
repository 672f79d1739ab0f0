// inductor/gpu/gpu_target.cpp — compile, load, launch.
#include "inductor/gpu/gpu_target.h"

#include <alloca.h>

#include <chrono>
#include <cstdlib>
#include <mutex>

#include "inductor/gpu/hip_emitter.h"
#include "inductor/kernel/kept_kernels.h"
#include "inductor/kernel/weak_cache.h"
#include "runtime/gpu_driver.h"

namespace framejit::inductor {

using runtime::GpuCompiler;
using runtime::GpuDriver;

namespace {

struct LoadedKernel {
  const GpuDriver* driver = nullptr;
  GpuDriver::Function function;
  int64_t per_block = 1, threads = 0;
  bool waits = false;  // for the kernel before it, by itself
  size_t buffers = 0, sizes = 0;
};

// The kernel ABI on a GPU: pointers are device pointers, and each call computes the whole range.
int64_t launch(void* const* buffers, const int64_t* sizes, const FjScalar* scalars, int64_t, int64_t end) {
  const auto& k = *reinterpret_cast<const LoadedKernel*>(scalars[0].i);
  if (end <= 0) return 0;
  auto** arguments = static_cast<void**>(alloca((k.buffers + k.sizes + 1) * sizeof(void*)));
  size_t count = 0;
  for (size_t i = 0; i < k.buffers; ++i) arguments[count++] = const_cast<void**>(&buffers[i]);
  for (size_t i = 0; i < k.sizes; ++i) arguments[count++] = const_cast<int64_t*>(&sizes[i]);
  arguments[count++] = &end;
  const auto blocks = static_cast<uint32_t>((end + k.per_block - 1) / k.per_block);
  const auto start = k.waits && runtime::EarlyLaunches::are_on() ? &GpuDriver::launch_early : &GpuDriver::launch;
  return -std::abs((k.driver->*start)(k.function.handle, blocks, static_cast<uint32_t>(k.threads),
                                      runtime::gpu_stream(), arguments, 0));
}

// The name that profilers show: the ops that a kernel was made of. Equal kernels are one function, named after the
// first.
std::string entry_of(const std::string& kernel_name) { return "fj_" + kernel_name; }

bool is_nvidia_from(int least, const std::string& architecture) {
  constexpr std::string_view kPrefix = "sm_";
  return architecture.starts_with(kPrefix) && std::stoi(architecture.substr(kPrefix.size())) >= least;
}

TargetInfo info_for(runtime::GpuVendor vendor, const std::string& architecture, int processors) {
  TargetInfo info = gpu_target();
  info.traits.attends_in_kernel = is_nvidia_from(80, architecture);
  info.traits.blocks_meet = is_nvidia_from(90, architecture);
  info.traits.launches_overlap = is_nvidia_from(90, architecture);
  info.processors = processors;
  info.traits.fuses_convolutions = vendor == runtime::GpuVendor::kNvidia;  // the ops are cuDNN's
  return info;
}

class GpuTarget : public KernelTarget {
 public:
  GpuTarget(const GpuDriver* driver, const GpuCompiler* compiler, std::string architecture, int processors, int device)
      : driver_(driver),
        compiler_(compiler),
        architecture_(std::move(architecture)),
        device_(device),
        info_(info_for(driver->vendor(), architecture_, processors)),
        description_("gpu " + architecture_ + " " + text_of(info_) + " build " + inductor_build()) {}

  const TargetInfo& info() const override { return info_; }

  Result<CompiledKernel> compile(const Kernel& kernel) override {
    FJ_TRY(const HipProgram program, emit_hip(kernel, info_));
    FJ_TRY(std::shared_ptr<const runtime::KernelCode> code, find_or_build(kernel, program));
    return CompiledKernel{std::move(code), program.extent, 0};
  }

  Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>& code,
                                     runtime::DeviceId) override {
    const std::lock_guard lock(load_mutex_);
    std::shared_ptr<LoadedKernel> loaded = loaded_.find(code->id);
    if (!loaded) {
      loaded = std::make_shared<LoadedKernel>();
      FJ_TRY(loaded->function, driver_->load(code->object, entry_of(code->name).c_str(), device_));
      loaded->driver = driver_;
      loaded->per_block = code->per_block;
      loaded->threads = code->threads;
      loaded->waits = info_.traits.launches_overlap;
      loaded->buffers = code->buffers;
      loaded->sizes = code->sizes;
      loaded_.insert(code->id, loaded);
    }
    FjScalar self;
    self.i = reinterpret_cast<int64_t>(loaded.get());
    return runtime::LoadedKernel{launch, {self}, std::move(loaded)};
  }

  // The compiler takes about 0.1 s per kernel, and compiles many programs at once.
  int64_t most_compiling_threads() const override { return info_.cores; }

  Result<std::vector<KernelText>> texts(const Kernel& kernel, bool) override {
    FJ_TRY(const HipProgram program, emit_hip(kernel, info_));
    return std::vector<KernelText>{{"hip", "//", program.text}};
  }

  TargetStatistics statistics() const override {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

 private:
  Result<std::shared_ptr<const runtime::KernelCode>> find_or_build(const Kernel& kernel, const HipProgram& program) {
    const std::string text = print(kernel);
    const runtime::KernelId id = runtime::content_id(description_, text);
    {
      const std::lock_guard lock(mutex_);
      if (auto known = cache_.find(id)) {
        ++statistics_.reused;
        return known;
      }
    }
    const auto start = std::chrono::steady_clock::now();
    FJ_TRY(auto code, kept_or_built(id, description_, text, [&]() -> Result<std::shared_ptr<runtime::KernelCode>> {
             auto built = std::make_shared<runtime::KernelCode>();
             const std::string named = "#define kernel " + entry_of(kernel.name) + "\n";
             FJ_TRY(built->object,
                    compiler_->compile(named + std::string(hip_prelude()) + program.text, architecture_));
             built->name = kernel.name;
             built->per_block = program.per_block;
             built->threads = static_cast<uint32_t>(program.threads);
             built->sizes = static_cast<uint32_t>(kernel.symbols.size());
             for (const KernelBuffer& b : kernel.buffers) built->buffers += b.is_local ? 0 : 1;
             return built;
           }));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::lock_guard lock(mutex_);
    cache_.insert(id, code);
    ++statistics_.kernels;
    statistics_.seconds += seconds;
    return code;
  }

  const GpuDriver* driver_;
  const GpuCompiler* compiler_;
  std::string architecture_;
  int device_;
  const TargetInfo info_;
  std::string description_;  // all that machine code depends on besides the kernel's text
  mutable std::mutex mutex_;
  WeakCache<const runtime::KernelCode> cache_;
  std::mutex load_mutex_;
  WeakCache<LoadedKernel> loaded_;
  TargetStatistics statistics_;
};

}  // namespace

Result<std::unique_ptr<KernelTarget>> make_gpu_target(int device) {
  FJ_TRY(const GpuDriver* driver, GpuDriver::find());
  FJ_TRY(const GpuCompiler* compiler, GpuCompiler::find(driver->vendor()));
  FJ_TRY(std::string architecture, driver->architecture(device));
  FJ_TRY(const int processors, driver->processors(device));
  return std::unique_ptr<KernelTarget>(
      std::make_unique<GpuTarget>(driver, compiler, std::move(architecture), processors, device));
}

}  // namespace framejit::inductor
