// inductor/compile.cpp — the backend: a target for the graph's device, and the rows of stages.def.
#include "inductor/compile.h"

#include <map>
#include <mutex>

#include "graph/passes/decompose.h"
#include "inductor/autotune.h"
#include "inductor/cpu/jit.h"
#include "inductor/gpu/gpu_target.h"
#include "inductor/interp/interp_target.h"
#include "inductor/lowering/lower.h"
#include "inductor/stages.h"
#include "runtime/base/config.h"
#include "runtime/base/log.h"

namespace framejit::inductor {
namespace {

VectorLevel level_of_setting() {
  static constexpr std::pair<std::string_view, VectorLevel> kLevels[] = {
      {"avx512", VectorLevel::kAvx512}, {"avx2", VectorLevel::kAvx2}, {"generic", VectorLevel::k128}};
  for (const auto& [name, level] : kLevels)
    if (name == config().cpu_features) return level;
  return VectorLevel::kHost;
}

class InductorBackend : public graph::Backend {
 public:
  explicit InductorBackend(InductorOptions options) : options_(options) {}
  std::string name() const override { return options_.target == Target::kInterp ? "interp" : "framejit"; }

  Result<runtime::Executable> compile(const graph::Graph& given) override {
    return compile_with(given, options_.choices, true);
  }

  Result<runtime::Executable> compile_backward(const graph::Graph& given, const std::vector<bool>& spent) override {
    return compile_with(given, options_.choices, true, {}, spent);
  }

  Result<runtime::Executable> compile_timed(const graph::Graph& given, graph::PlanTimer& timer,
                                            std::string& decided) override {
    // Timed plans run more often than the program runs them, so they must not write to inputs before they end.
    const auto make = [&](const Choices& choices) { return compile_with(given, choices, false); };
    if (options_.target != Target::kMachine) return compile(given);
    FJ_TRY(const KernelTarget* target, shared_target(graph::runtime_device(kernel_device(given))));
    Choices chosen;
    FJ_TRY(auto plan, choose_by_time(given, choice_rows(), make, target->info(), timer,
                                     static_cast<double>(config().autotune_ms) / 1000, chosen));
    decided = text_of(chosen);
    return {std::move(plan)};
  }

  Result<runtime::Executable> derive(const graph::Graph& functional, const std::vector<bool>& weights,
                                     const std::string& decided) override {
    return compile_with(functional, decided.empty() ? options_.choices : choices_of(decided), true, weights);
  }

  runtime::KernelLoader& loader() override { return loader_; }

 private:
  Result<runtime::Executable> compile_with(const graph::Graph& functional, const Choices& choices,
                                           bool may_write_inputs, const std::vector<bool>& weights = {},
                                           const std::vector<bool>& spent = {}) {
    FJ_TRY(KernelTarget * target, shared_target(graph::runtime_device(kernel_device(functional))));
    Compilation compilation{.graph = functional,
                            .choices = choices,
                            .target = *target,
                            .is_fused = options_.fuse,
                            .may_write_inputs = may_write_inputs,
                            .weights = weights,
                            .spent = spent};
    compilation.compile_derivation = [&](const graph::Graph& derivation) {
      return compile_with(derivation, choices, true);
    };
    for (const auto& row : stages())
      if (!compilation.is_over) FJ_TRY_VOID(graph::run_stage(row, compilation));
    return std::move(compilation.executable);
  }

  // Passes each kernel to the target of its device.
  class Loader final : public runtime::KernelLoader {
   public:
    explicit Loader(InductorBackend& backend) : backend_(backend) {}
    Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>& code,
                                       runtime::DeviceId device) override {
      FJ_TRY(KernelTarget * target, backend_.shared_target(device));
      return target->load(code, device);
    }

   private:
    InductorBackend& backend_;
  };

  // One target per device, and per set of costs that a benchmark tries. Made when first needed: creating LLVM's target
  // takes half a millisecond.
  Result<KernelTarget*> shared_target(runtime::DeviceId device) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<KernelTarget>& target = targets_[{device, replaced_costs()}];
    if (target) return target.get();
    FJ_TRY(target, make_target(device));
    if (log::enabled(log::Kind::Target))
      log::emit(log::Kind::Target, "",
                {{"device", runtime::text_of(device)}, {"description", target->info().description}});
    return target.get();
  }

  // The only place that makes a target for a kind of device. All other code asks the target how kinds differ.
  Result<std::unique_ptr<KernelTarget>> make_target(runtime::DeviceId device) const {
    const runtime::DeviceId cuda = graph::runtime_device({graph::DeviceType::kCuda, 0});
    if (device.is_cpu() && options_.target == Target::kInterp) return make_interp_target();
    if (device.is_cpu()) {
      const bool is_given = options_.vector_level != 0;
      FJ_TRY(auto jit, CpuJit::create(is_given ? static_cast<VectorLevel>(options_.vector_level) : level_of_setting()));
      return std::unique_ptr<KernelTarget>(std::move(jit));
    }
    if (device.type == cuda.type && options_.target == Target::kMachine)
      return make_gpu_target(std::max<int>(device.index, 0));
    return Error{Reason::no_target, "no kernels for this device"};
  }

  InductorOptions options_;
  Loader loader_{*this};
  std::mutex mutex_;
  std::map<std::pair<runtime::DeviceId, std::string>, std::unique_ptr<KernelTarget>> targets_;
};

}  // namespace

std::unique_ptr<graph::Backend> make_inductor_backend(InductorOptions options) {
  return std::make_unique<InductorBackend>(options);
}

Result<TargetInfo> target_of_this_machine() {
  FJ_TRY(const auto jit, CpuJit::create(level_of_setting()));
  return jit->info();
}

const char* treatment_of(std::string_view op) {
  if (graph::is_decomposed(op)) return "decomposed";
  if (is_mapped_view(op)) return "view";
  return find_lowering(op) != nullptr ? "lowered" : "extern";
}

}  // namespace framejit::inductor
