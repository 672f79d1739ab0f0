// guards/aten/mode_facts.cpp — torch's modes as one record of words, read in each call and compared.
//
// The thread's dispatch keys show autocast per device, inference mode, functorch, the Python dispatcher and dispatch
// modes. Modes that the keys do not show are read one by one. Precision flags are read through float32Precision, which
// never warns or throws.
#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <algorithm>
#include <cstring>

#include "guards/aten/replaced_kernels.h"
#include "guards/aten/tensor_facts.h"

// Declared here, because their headers pull in much of torch.
namespace at::autocast {
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device_type);
TORCH_API bool is_autocast_cache_enabled();
}  // namespace at::autocast

namespace torch::autograd {
enum class AutogradFallbackMode;
TORCH_API AutogradFallbackMode getAutogradFallbackMode();
}  // namespace torch::autograd

namespace framejit::guards {
namespace {

// Whether arithmetic of this thread takes denormal numbers for zeros: compilers fold constants by it too.
bool flushes_denormals() {
#if defined(__x86_64__)
  return (__builtin_ia32_stmxcsr() & 0x8040) != 0;  // DAZ, FTZ
#elif defined(__aarch64__)
  return (__builtin_aarch64_get_fpcr() & 0x1000000) != 0;  // FZ
#else
  return false;
#endif
}

enum Flag : size_t {
#define FLAG(name, text, shows, expression) name,
#include "guards/aten/mode_flags.def"
#undef FLAG
  kFlagCount,
};

struct Modes {
  uint64_t included, excluded;  // the thread's dispatch keys
  int8_t flags[kFlagCount];

  static Modes now() {
    Modes modes;
    std::memset(&modes, 0, sizeof modes);  // padding too: records are compared as bytes
    modes.included = c10::impl::raw_local_dispatch_key_set.included_;
    modes.excluded = c10::impl::raw_local_dispatch_key_set.excluded_;
    const at::Context& context = at::globalContext();
    const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
#define FLAG(name, text, shows, expression) modes.flags[name] = static_cast<int8_t>(expression);
#include "guards/aten/mode_flags.def"
#undef FLAG
    return modes;
  }
};

constexpr const char* kFlagTexts[] = {
#define FLAG(name, text, shows, expression) text,
#include "guards/aten/mode_flags.def"
#undef FLAG
};

std::string on_off(int8_t value) { return value ? "on" : "off"; }
std::string number(int8_t value) { return std::to_string(value); }
std::string dtype(int8_t value) {
  return std::string("torch.") + torch::getTHPDtype(static_cast<c10::ScalarType>(value))->name;
}
constexpr std::string (*kShown[])(int8_t) = {
#define FLAG(name, text, shows, expression) shows,
#include "guards/aten/mode_flags.def"
#undef FLAG
};

class ThreadModes : public ModeFacts {
 public:
  bool matches() const override {
    const Modes modes = Modes::now();
    return std::memcmp(&modes, &seen_, sizeof modes) == 0;
  }
  std::string mismatch() const override {
    const Modes modes = Modes::now();
    const size_t i = first_other(modes);
    if (i < kFlagCount)
      return std::string(kFlagTexts[i]) + " == " + std::to_string(seen_.flags[i]) + " but is " +
             std::to_string(modes.flags[i]);
    if (modes.included == seen_.included && modes.excluded == seen_.excluded) return "";
    return "dispatch keys of the thread == " + keys(seen_) + " but are " + keys(modes);
  }
  std::string change() const override {
    const Modes modes = Modes::now();
    const size_t i = first_other(modes);
    if (i < kFlagCount)
      return std::string(kFlagTexts[i]) + " was " + kShown[i](seen_.flags[i]) + ", now it is " +
             kShown[i](modes.flags[i]);
    return "torch's dispatch keys of the thread were " + keys(seen_) + ", now they are " + keys(modes) +
           " (autocast, a dispatch mode, a function transform)";
  }

 private:
  size_t first_other(const Modes& modes) const {
    return static_cast<size_t>(std::mismatch(modes.flags, modes.flags + kFlagCount, seen_.flags).first - modes.flags);
  }
  static std::string keys(const Modes& modes) {
    const c10::impl::PODLocalDispatchKeySet raw{modes.included, modes.excluded};
    return c10::toString(raw.included()) + " without " + c10::toString(raw.excluded());
  }
  Modes seen_ = Modes::now();
};

class NoListener : public ModeFacts {
 public:
  bool matches() const override { return !at::hasCallbacks(); }
  std::string mismatch() const override { return at::hasCallbacks() ? "a profiler is active" : ""; }
};

}  // namespace

std::shared_ptr<const ModeFacts> no_listener_facts() {
  return at::hasCallbacks() ? nullptr : std::make_shared<NoListener>();
}

std::shared_ptr<const ModeFacts> current_mode_facts() { return std::make_shared<ThreadModes>(); }

}  // namespace framejit::guards
