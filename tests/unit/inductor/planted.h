// tests/unit/inductor/planted.h — defects planted at the interfaces of the product: tests show that fuzzers find them.
#pragma once

#include <functional>
#include <tuple>
#include <utility>

#include "inductor/kernel/target.h"
#include "runtime/executable.h"

namespace framejit::inductor::testing {

// Compiles kernels that differ from the given ones.
class PlantedTarget : public KernelTarget {
 public:
  using Change = std::function<void(Kernel&)>;
  PlantedTarget(KernelTarget& right, Change change) : right_(right), change_(std::move(change)) {}
  const TargetInfo& info() const override { return right_.info(); }
  Result<CompiledKernel> compile(const Kernel& kernel) override {
    Kernel other = kernel;
    if (change_) change_(other);
    return right_.compile(other);
  }
  Result<std::vector<KernelText>> texts(const Kernel& kernel, bool with_assembly) override {
    return right_.texts(kernel, with_assembly);
  }
  TargetStatistics statistics() const override { return right_.statistics(); }
  Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>& code,
                                     runtime::DeviceId device) override {
    return right_.load(code, device);
  }
  int64_t most_compiling_threads() const override { return right_.most_compiling_threads(); }

 private:
  KernelTarget& right_;
  Change change_;
};

using PlanChange = std::function<void(runtime::Executable&)>;

// Code that runs another kernel for another part of its range.
struct AnotherPart : runtime::KernelCode {
  AnotherPart(std::shared_ptr<const runtime::KernelCode> the_right, FjKernelFn the_function)
      : KernelCode(*the_right), right(std::move(the_right)), function(the_function) {}
  std::shared_ptr<const runtime::KernelCode> right;
  FjKernelFn function;
};

// Loads what is planted, and passes everything else on.
class PlantedLoader final : public runtime::KernelLoader {
 public:
  explicit PlantedLoader(runtime::KernelLoader& right) : right_(right) {}
  Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>& code,
                                     runtime::DeviceId device) override {
    const auto* planted = dynamic_cast<const AnotherPart*>(code.get());
    if (planted == nullptr) return right_.load(code, device);
    FJ_TRY(runtime::LoadedKernel loaded, right_.load(planted->right, device));
    FjScalar right;  // before the kernel's own
    right.i = reinterpret_cast<int64_t>(loaded.function);
    loaded.scalars.insert(loaded.scalars.begin(), right);
    loaded.function = planted->function;
    return loaded;
  }

 private:
  runtime::KernelLoader& right_;
};

// Every kernel runs another part of its range than the plan says: range(begin, end).
template <std::pair<int64_t, int64_t> (*range)(int64_t, int64_t)>
void ask_for_another_part(runtime::Executable& executable) {
  for (auto& kernel : executable.kernels)
    kernel = std::make_shared<AnotherPart>(
        kernel,
        [](void* const* buffers, const int64_t* sizes, const FjScalar* scalars, int64_t begin, int64_t end) -> int64_t {
          std::tie(begin, end) = range(begin, end);
          return begin < end ? reinterpret_cast<FjKernelFn>(scalars[0].i)(buffers, sizes, scalars + 1, begin, end) : 0;
        });
}

inline std::pair<int64_t, int64_t> without_last(int64_t begin, int64_t end) { return {begin, end - 1}; }
inline std::pair<int64_t, int64_t> late_behind_another(int64_t begin, int64_t end) {
  return {begin > 0 ? begin + 1 : 0, end};
}

inline void miss_the_last(runtime::Executable& executable) { ask_for_another_part<without_last>(executable); }
inline void begin_one_late(runtime::Executable& executable) { ask_for_another_part<late_behind_another>(executable); }

// Blocks of the arena that live at the same time get the same place.
inline void share_memory(runtime::Executable& executable) {
  for (runtime::Buffer& buffer : executable.forward.buffers)
    if (buffer.storage == runtime::Storage::kArena) buffer.offset = {0};
}

}  // namespace framejit::inductor::testing
