// tests/unit/inductor/planted.h — defects that are planted behind the seams of the product, for tests that show that fuzzers find them.
#pragma once

#include <functional>
#include <tuple>
#include <utility>

#include "inductor/kernel/target.h"
#include "runtime/call_plan.h"

namespace framejit::inductor::testing {

// Compiles other kernels than those it is given.
class PlantedTarget : public KernelTarget {
 public:
  using Change = std::function<void(Kernel&)>;
  PlantedTarget(KernelTarget& right, Change change) : right_(right), change_(std::move(change)) {}
  Result<CompiledKernel> compile(const Kernel& kernel) override {
    Kernel other = kernel;
    if (change_) change_(other);
    return right_.compile(other);
  }
  Result<std::vector<KernelText>> texts(const Kernel& kernel, bool with_assembly) override { return right_.texts(kernel, with_assembly); }
  TargetStatistics statistics() const override { return right_.statistics(); }
  bool compiles_on_any_thread() const override { return right_.compiles_on_any_thread(); }
  int64_t scratch_bytes() const override { return right_.scratch_bytes(); }

 private:
  KernelTarget& right_;
  Change change_;
};

using PlanChange = std::function<void(runtime::CallPlan&)>;

// Every kernel is asked for another part of its range than the plan says: range(begin, end).
template <std::pair<int64_t, int64_t> (*range)(int64_t, int64_t)>
void ask_for_another_part(runtime::CallPlan& plan) {
  for (runtime::Step& step : plan.steps) {
    auto* kernel = std::get_if<runtime::KernelStep>(&step);
    if (kernel == nullptr) continue;
    FjScalar right;  // in front of the kernel's own
    right.i = reinterpret_cast<int64_t>(kernel->function);
    kernel->scalars.insert(kernel->scalars.begin(), right);
    kernel->function = [](void* const* buffers, const int64_t* sizes, const FjScalar* scalars, int64_t begin, int64_t end) -> int64_t {
      std::tie(begin, end) = range(begin, end);
      return begin < end ? reinterpret_cast<FjKernelFn>(scalars[0].i)(buffers, sizes, scalars + 1, begin, end) : 0;
    };
  }
}

inline std::pair<int64_t, int64_t> without_last(int64_t begin, int64_t end) { return {begin, end - 1}; }
inline std::pair<int64_t, int64_t> late_behind_another(int64_t begin, int64_t end) { return {begin > 0 ? begin + 1 : 0, end}; }

// Blocks of the arena that live at once lie at the same place.
inline void share_memory(runtime::CallPlan& plan) {
  for (runtime::Buffer& buffer : plan.buffers)
    if (buffer.home == runtime::Home::kArena) buffer.offset = {0};
}

}  // namespace framejit::inductor::testing
