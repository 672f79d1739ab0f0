// tests/unit/inductor/host_gpu_target.h — the emulated GPU of host_gpu.h, as a target.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "inductor/gpu/hip_emitter.h"
#include "inductor/kernel/target.h"

namespace framejit::inductor::testing {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct HostKernel : runtime::KernelCode {
  void (*launch)(void* const*, const int64_t*, int64_t, int64_t, int64_t, int64_t) = nullptr;
  int64_t together = 1;
};

inline int64_t run_host_kernel(void* const* buffers, const int64_t* sizes, const FjScalar* scalars, int64_t,
                               int64_t end) {
  const auto& k = *reinterpret_cast<const HostKernel*>(scalars[0].i);
  k.launch(buffers, sizes, end, (end + k.per_block - 1) / k.per_block, k.threads, k.together);
  return 0;
}

// Kernels compiled by the C++ compiler, with host_gpu.h.
class HostGpuTarget : public KernelTarget {
 public:
  HostGpuTarget(int wave, TargetInfo info)
      : info_(std::move(info)),
        wave_(wave),
        // No two targets share a path: dlopen() identifies a library by its path, even if the file is another one.
        folder_(std::filesystem::temp_directory_path() /
                ("framejit-host-gpu-" + std::to_string(getpid()) + "-" + std::to_string(targets_made_++))) {
    std::filesystem::create_directories(folder_);
  }
  ~HostGpuTarget() override { std::filesystem::remove_all(folder_); }

  const TargetInfo& info() const override { return info_; }
  Result<CompiledKernel> compile(const Kernel& kernel) override {
    FJ_TRY(const HipProgram program, emit_hip(kernel, info_));
    const std::string stem = (folder_ / ("k" + std::to_string(count_++))).string();
    std::ofstream(stem + ".cpp") << read_file(FRAMEJIT_SOURCE_DIR "/tests/unit/inductor/host_gpu.h") << hip_prelude()
                                 << program.text << launcher(kernel);
    const std::string command =
        "c++ -std=c++20 -O1 -w -ffp-contract=off -shared -fPIC -DWAVE=" + std::to_string(wave_) + " -o " + stem +
        ".so " + stem + ".cpp";
    if (std::system(command.c_str()) != 0) return Error{Reason::gpu, "the kernel does not compile:\n" + program.text};
    void* library = dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return Error{Reason::gpu, dlerror()};
    auto code = std::make_shared<HostKernel>();
    code->id = runtime::content_id("host gpu", print(kernel));
    code->launch = reinterpret_cast<decltype(code->launch)>(dlsym(library, "launch"));
    code->per_block = program.per_block;
    code->threads = static_cast<uint32_t>(program.threads);
    code->together = program.together;
    most_together_ = std::max(most_together_, program.together);
    return CompiledKernel{std::move(code), program.extent, 0};
  }
  Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>& code,
                                     runtime::DeviceId) override {
    FjScalar self;
    self.i = reinterpret_cast<int64_t>(static_cast<const HostKernel*>(code.get()));
    return runtime::LoadedKernel{run_host_kernel, {self}, code};
  }
  Result<std::vector<KernelText>> texts(const Kernel&, bool) override { return std::vector<KernelText>{}; }
  TargetStatistics statistics() const override { return {}; }
  int64_t most_together() const { return most_together_; }
  int count() const { return count_; }  // of kernels

 private:
  const TargetInfo info_;
  int64_t most_together_ = 1;
  // Runs the blocks one by one; arguments are variables, because a fiber's function takes none.
  static std::string launcher(const Kernel& kernel) {
    std::string arguments;
    size_t k = 0;
    for (; k < kernel.buffers.size() && !kernel.buffers[k].is_local; ++k)
      arguments += "any{g_buffers[" + std::to_string(k) + "]}, ";
    for (k = 0; k < kernel.symbols.size(); ++k) arguments += "g_sizes[" + std::to_string(k) + "], ";
    return "struct any { void* p; template <class T> operator T*() const { return (T*)p; } };\n"
           "static void* const* g_buffers;\nstatic const long* g_sizes;\nstatic long g_extent;\n"
           "extern \"C\" void launch(void* const* buffers, const long* sizes, long extent, long blocks, long threads, "
           "long together) {\n"
           "  g_buffers = buffers;\n  g_sizes = sizes;\n  g_extent = extent;\n  blockDim.x = threads;\n"
           "  host_gpu::body = [] { kernel(" +
           arguments +
           "g_extent); };\n"
           "  for (long b = 0; b < blocks; b += together) host_gpu::run_blocks(b, together);\n}\n";
  }

  static inline int targets_made_ = 0;
  int wave_;
  std::filesystem::path folder_;
  int count_ = 0;
};

}  // namespace framejit::inductor::testing
