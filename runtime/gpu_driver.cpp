// runtime/gpu_driver.cpp — libraries found, entry points bound from gpu_driver.def.
//
// torch's wheels carry NVRTC outside the loader's search path. It is looked for next to the CUDA libraries that the
// process has loaded. Its companion library, which it opens by bare name, is opened before it.
#include "runtime/gpu_driver.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "runtime/base/config.h"

namespace framejit::runtime {

struct GpuCompiler::Entries {
#define RTC_ENTRY(field, signature, cuda_name, hip_name) \
  using field##_type = signature;                        \
  field##_type* field = nullptr;
#define DRIVER_ENTRY(field, signature, cuda_name, hip_name)
#include "runtime/gpu_driver.def"
#undef RTC_ENTRY
#undef DRIVER_ENTRY
};

struct GpuDriver::Entries {
#define RTC_ENTRY(field, signature, cuda_name, hip_name)
#define DRIVER_ENTRY(field, signature, cuda_name, hip_name) \
  using field##_type = signature;                           \
  field##_type* field = nullptr;
#include "runtime/gpu_driver.def"
#undef RTC_ENTRY
#undef DRIVER_ENTRY
};

namespace {

template <class Function>
Result<void> bind(void* library, Function*& field, const char* name) {
  field = reinterpret_cast<Function*>(dlsym(library, name));
  if (field == nullptr) return Error{Reason::gpu, std::string("the GPU library has no ") + name};
  return {};
}

Result<void> bind_all(void* library, bool cuda, GpuCompiler::Entries& e) {
#define RTC_ENTRY(field, signature, cuda_name, hip_name) \
  FJ_TRY_VOID(bind(library, e.field, cuda ? cuda_name : hip_name));
#define DRIVER_ENTRY(field, signature, cuda_name, hip_name)
#include "runtime/gpu_driver.def"
#undef RTC_ENTRY
#undef DRIVER_ENTRY
  return {};
}

Result<void> bind_all(void* library, bool cuda, GpuDriver::Entries& e) {
#define RTC_ENTRY(field, signature, cuda_name, hip_name)
#define DRIVER_ENTRY(field, signature, cuda_name, hip_name) \
  FJ_TRY_VOID(bind(library, e.field, cuda ? cuda_name : hip_name));
#include "runtime/gpu_driver.def"
#undef RTC_ENTRY
#undef DRIVER_ENTRY
  return {};
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

int note_cuda_folder(dl_phdr_info* info, size_t, void* folders) {
  const std::string path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return 0;
  const std::string name = path.substr(slash + 1);
  if (name.starts_with("libcudart") || name.starts_with("libc10_cuda") || name.starts_with("libtorch_cuda"))
    static_cast<std::set<std::string>*>(folders)->insert(path.substr(0, slash));
  return 0;
}

// Files that may be NVRTC, the likeliest first.
std::vector<std::string> nvrtc_paths() {
  std::set<std::string> folders;
  dl_iterate_phdr(note_cuda_folder, &folders);
  std::vector<std::string> paths;
  for (const std::string& folder : folders)
    for (const char* beside : {"", "/../../cuda_nvrtc/lib", "/../../nvidia/*/lib"})
      for (std::string& path : matches(folder + beside + "/libnvrtc.so.1[0-9]")) paths.push_back(std::move(path));
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) paths.emplace_back(name);
  return paths;
}

void* open_compiler(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos)
    for (const std::string& companion : matches(path.substr(0, slash) + "/libnvrtc-builtins.so.[0-9]*"))
      dlopen(companion.c_str(), RTLD_NOW | RTLD_GLOBAL);
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

void* open_compiler(GpuVendor vendor) {
  if (!config().gpu_compiler.empty()) return open_compiler(config().gpu_compiler);
  const std::vector<std::string> paths =
      vendor == GpuVendor::kNvidia
          ? nvrtc_paths()
          : std::vector<std::string>{"libhiprtc.so", "libhiprtc.so.6", "libamdhip64.so", "libamdhip64.so.5"};
  for (const std::string& path : paths)
    if (void* library = open_compiler(path)) return library;
  return nullptr;
}

// Lanes of a wave of AMD's architectures, by the beginning of their names (the user guide of LLVM's AMDGPU backend).
constexpr struct {
  std::string_view architectures, option;
} kWaves[] = {
    {"gfx1", "-DWAVE=32"},
    {"gfx", "-DWAVE=64"},
};

std::vector<std::string> options_for(GpuVendor vendor, const std::string& architecture) {
  if (vendor == GpuVendor::kNvidia)
    return {"--gpu-architecture=" + architecture, "--std=c++17", "-default-device", "--fmad=false", "-w"};
  std::vector<std::string> options{"--offload-arch=" + architecture, "-O3", "-std=c++17", "-ffp-contract=off", "-w"};
  for (const auto& wave : kWaves) {
    if (!architecture.starts_with(wave.architectures)) continue;
    options.emplace_back(wave.option);
    break;
  }
  return options;
}

std::string log_of(const GpuCompiler::Entries& e, void* program) {
  size_t size = 0;
  if (e.log_size(program, &size) != 0) return "";
  std::string text(size, '\0');
  if (size == 0 || e.log(program, text.data()) != 0) return "";
  text.resize(std::strlen(text.c_str()));
  return text;
}

}  // namespace

GpuCompiler::GpuCompiler(GpuVendor vendor, std::unique_ptr<Entries> entries)
    : vendor_(vendor), entries_(std::move(entries)) {}

Result<const GpuCompiler*> GpuCompiler::find(GpuVendor vendor) {
  const auto make = [](GpuVendor v) -> Result<const GpuCompiler*> {
    void* library = open_compiler(v);
    if (library == nullptr)
      return Error{Reason::gpu, v == GpuVendor::kNvidia ? "NVRTC was not found" : "hiprtc was not found"};
    auto entries = std::make_unique<Entries>();
    FJ_TRY_VOID(bind_all(library, v == GpuVendor::kNvidia, *entries));
    return static_cast<const GpuCompiler*>(new GpuCompiler(v, std::move(entries)));
  };
  static const Result<const GpuCompiler*> nvidia = make(GpuVendor::kNvidia), amd = make(GpuVendor::kAmd);
  return vendor == GpuVendor::kNvidia ? nvidia : amd;
}

Result<std::string> GpuCompiler::compile(const std::string& source, const std::string& architecture) const {
  const std::vector<std::string> options = options_for(vendor_, architecture);
  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  void* program = nullptr;
  if (entries_->create(&program, source.c_str(), "framejit.hip", 0, nullptr, nullptr) != 0)
    return Error{Reason::gpu, "the GPU compiler made no program"};
  Result<std::string> result = Error{Reason::gpu, ""};
  size_t size = 0;
  if (const int code = entries_->compile(program, static_cast<int>(arguments.size()), arguments.data()); code != 0) {
    result =
        Error{Reason::gpu, "GPU code does not compile (" + std::to_string(code) + "): " + log_of(*entries_, program)};
  } else if (entries_->code_size(program, &size) == 0 && size > 0) {
    std::string image(size, '\0');
    if (entries_->code(program, image.data()) == 0) result = std::move(image);
  }
  entries_->destroy(&program);
  return result;
}

namespace {

// Makes the device's primary context the current one of this thread, because loaded code belongs to a context.
struct InContext {
  InContext(const GpuDriver::Entries& e, int device) : entries(e) {
    int handle = 0;
    void* context = nullptr;
    ok = e.get_context(&before) == 0 && e.device(&handle, device) == 0 && e.retain_context(&context, handle) == 0 &&
         e.set_context(context) == 0;
  }
  ~InContext() {
    if (before != nullptr) entries.set_context(before);
  }
  const GpuDriver::Entries& entries;
  void* before = nullptr;
  bool ok = false;
};

}  // namespace

GpuDriver::GpuDriver(GpuVendor vendor, void* library, std::unique_ptr<Entries> entries)
    : vendor_(vendor), library_(library), entries_(std::move(entries)) {
  if (vendor == GpuVendor::kNvidia)
    launch_with_ = reinterpret_cast<decltype(launch_with_)>(dlsym(library, "cuLaunchKernelEx"));
}

Result<const GpuDriver*> GpuDriver::find() {
  const auto make = []() -> Result<const GpuDriver*> {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const GpuVendor vendor = library != nullptr ? GpuVendor::kNvidia : GpuVendor::kAmd;
    for (const char* name : {"libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.5"})
      if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return Error{Reason::gpu, "there is no GPU driver"};
    auto entries = std::make_unique<Entries>();
    FJ_TRY_VOID(bind_all(library, vendor == GpuVendor::kNvidia, *entries));
    if (const int code = entries->init(0); code != 0)
      return Error{Reason::gpu, "the GPU driver does not start: " + std::to_string(code)};
    return static_cast<const GpuDriver*>(new GpuDriver(vendor, library, std::move(entries)));
  };
  static const Result<const GpuDriver*> found = make();
  return found;
}

// NVIDIA: attributes by number.
Result<int> GpuDriver::attribute(int which, int device) const {
  using Attribute = int(int* value, int attribute, int device);
  Attribute* attribute = nullptr;
  FJ_TRY_VOID(bind(library_, attribute, "cuDeviceGetAttribute"));
  int handle = 0, value = 0;
  if (entries_->device(&handle, device) != 0 || attribute(&value, which, handle) != 0)
    return Error{Reason::gpu, "the GPU driver does not report the architecture"};
  return value;
}

// AMD: the unversioned entry fills the structure of HIP 5 in all later versions. Its members have fixed offsets.
Result<std::vector<char>> GpuDriver::properties(int device) const {
  constexpr size_t kSize = 4096;
  using Properties = int(void* properties, int device);
  Properties* properties = nullptr;
  FJ_TRY_VOID(bind(library_, properties, "hipGetDeviceProperties"));
  std::vector<char> block(kSize, 0);
  if (properties(block.data(), device) != 0)
    return Error{Reason::gpu, "the GPU driver does not report the architecture"};
  return block;
}

Result<std::string> GpuDriver::architecture(int device) const {
  if (vendor_ == GpuVendor::kNvidia) {
    constexpr int kMajor = 75, kMinor = 76;
    FJ_TRY(const int major, attribute(kMajor, device));
    FJ_TRY(const int minor, attribute(kMinor, device));
    return "sm_" + std::to_string(major) + std::to_string(minor);
  }
  constexpr size_t kNameOffset = 396;
  FJ_TRY(const std::vector<char> block, properties(device));
  const std::string name(block.data() + kNameOffset);
  if (!name.starts_with("gfx")) return Error{Reason::gpu, "the GPU's architecture is unknown"};
  return name;
}

Result<int> GpuDriver::processors(int device) const {
  constexpr int kProcessors = 16;
  if (vendor_ == GpuVendor::kNvidia) return attribute(kProcessors, device);
  constexpr size_t kProcessorsOffset = 336;
  FJ_TRY(const std::vector<char> block, properties(device));
  int count = 0;
  std::memcpy(&count, block.data() + kProcessorsOffset, sizeof count);
  if (count <= 0) return Error{Reason::gpu, "the GPU driver does not report the number of processors"};
  return count;
}

Result<GpuDriver::Function> GpuDriver::load(const std::string& code, const char* kernel, int device) const {
  const InContext in_context(*entries_, device);
  if (!in_context.ok) return Error{Reason::gpu, "the GPU has no context"};
  void* module = nullptr;
  if (const int failed = entries_->load(&module, code.data()); failed != 0)
    return Error{Reason::gpu, "the driver refuses the code: " + std::to_string(failed)};
  const Entries* const entries = entries_.get();
  Function result;
  result.module = std::shared_ptr<void>(module, [entries](void* m) { entries->unload(m); });
  if (const int failed = entries_->function(&result.handle, module, kernel); failed != 0)
    return Error{Reason::gpu, "the code has no kernel: " + std::to_string(failed)};
  return result;
}

Result<void> GpuDriver::allow_shared(const Function& function, int bytes) const {
  constexpr int kDynamicSharedBytes = 8;
  using SetAttribute = int(void* function, int attribute, int value);
  SetAttribute* set_attribute = nullptr;
  FJ_TRY_VOID(bind(library_, set_attribute, "cuFuncSetAttribute"));
  if (const int failed = set_attribute(function.handle, kDynamicSharedBytes, bytes); failed != 0)
    return Error{Reason::gpu, "the driver refuses so much shared memory: " + std::to_string(failed)};
  return {};
}

int GpuDriver::launch(void* function, uint32_t blocks, uint32_t threads, void* stream, void** arguments,
                      uint32_t shared) const {
  return entries_->launch(function, blocks, 1, 1, threads, 1, 1, shared, stream, arguments, nullptr);
}

int GpuDriver::launch_early(void* function, uint32_t blocks, uint32_t threads, void* stream, void** arguments,
                            uint32_t shared) const {
  if (launch_with_ == nullptr) return launch(function, blocks, threads, stream, arguments, shared);
  constexpr int kProgrammaticSerialization = 6;
  struct alignas(8) Attribute {  // CUlaunchAttribute
    int id, padding, value[16];
  } attribute{kProgrammaticSerialization, 0, {1}};
  const struct {  // CUlaunchConfig
    unsigned grid[3], block[3], shared;
    void* stream;
    Attribute* attributes;
    unsigned attribute_count;
  } config{{blocks, 1, 1}, {threads, 1, 1}, shared, stream, &attribute, 1};
  return launch_with_(&config, function, arguments, nullptr);
}

int GpuDriver::launch_graph(void* graph, void* stream) const { return entries_->launch_graph(graph, stream); }

int GpuDriver::copy(void* to, const void* from, size_t bytes, void* stream) const {
  return bytes == 0 ? 0 : entries_->copy(to, from, bytes, stream);
}

bool GpuDriver::is_capturing(void* stream) const {
  int status = 0;
  return entries_->is_capturing(stream, &status) != 0 || status != 0;
}

Result<void*> GpuDriver::make_stream(int device) const {
  constexpr unsigned kNonBlocking = 1;
  const InContext in_context(*entries_, device);
  if (!in_context.ok) return Error{Reason::gpu, "the GPU has no context"};
  void* stream = nullptr;
  if (const int failed = entries_->create_stream(&stream, kNonBlocking); failed != 0)
    return Error{Reason::gpu, "the driver cannot make a stream: " + std::to_string(failed)};
  return stream;
}

Result<void> find_gpu() {
  FJ_TRY(const GpuDriver* driver, GpuDriver::find());
  FJ_TRY([[maybe_unused]] const GpuCompiler* compiler, GpuCompiler::find(driver->vendor()));
  return {};
}

namespace {
thread_local void* t_stream = nullptr;
}
void set_gpu_stream(void* stream) { t_stream = stream; }
void* gpu_stream() { return t_stream; }

namespace {
thread_local bool t_early = false;
}
EarlyLaunches::EarlyLaunches() { t_early = true; }
EarlyLaunches::~EarlyLaunches() { t_early = false; }
bool EarlyLaunches::are_on() { return t_early; }

}  // namespace framejit::runtime
