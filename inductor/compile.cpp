// inductor/compile.cpp — lower, schedule, assemble; timed and logged.
#include "inductor/compile.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>

#include "graph/passes/decompose.h"
#include "inductor/assemble.h"
#include "inductor/autotune.h"
#include "inductor/cpu/jit.h"
#include "inductor/gpu/gpu_target.h"
#include "inductor/interp/interp_target.h"
#include "inductor/lowering/bare_products.h"
#include "inductor/lowering/memory_formats.h"
#include "inductor/lowering/wide_products.h"
#include "inductor/schedule/commit_order.h"
#include "inductor/schedule/input_writes.h"
#include "inductor/schedule/products.h"
#include "runtime/base/config.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/log.h"

namespace framejit::inductor {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void log_stage(const std::string& graph, const char* stage, double seconds) {
  if (log::enabled(log::Kind::Stage))
    log::emit(log::Kind::Stage, graph, {{"stage", stage}, {"milliseconds", std::to_string(seconds * 1000)}});
}

void log_loops(const LoopProgram& program) {
  log::emit(log::Kind::Loops, program.name, {{"graph", program.name}, {"nests", std::to_string(program.items.size())}}, print(program));
}

void log_schedule(const Schedule& schedule) {
  log::emit(log::Kind::Schedule, schedule.program.name, {{"graph", schedule.program.name}, {"detail", std::to_string(schedule.steps.size()) + " steps"}}, print(schedule));
  log::emit(log::Kind::Refused, schedule.program.name, {{"graph", schedule.program.name}, {"pairs", std::to_string(schedule.refused.size())}}, print_refused(schedule));
}

VectorLevel level_of_setting() {
  static constexpr std::pair<std::string_view, VectorLevel> kLevels[] = {{"avx512", VectorLevel::kAvx512}, {"avx2", VectorLevel::kAvx2}, {"generic", VectorLevel::k128}};
  for (const auto& [name, level] : kLevels)
    if (name == config().cpu_features) return level;
  return VectorLevel::kHost;
}

// What the library's ops are fastest with.
graph::Graph for_library_calls(const graph::Graph& given, const Choices& choices) {
  const bool is_wide = choices.wide_products == WideProducts::cost_model ? wants_wide_products() : choices.wide_products == WideProducts::wide;
  graph::Graph graph = bare_products(is_wide ? widen_products(given) : given);
  if (choices.memory_formats == MemoryFormats::as_recorded) return graph;
  return choose_memory_formats(graph, choices.memory_formats == MemoryFormats::channels_last ? FormatRule::kChannelsLast : FormatRule::kLeastCost);
}

// Which matrix products are kernels; none where the library computes all of them.
std::optional<ProductRule> product_rule(const Choices& choices, const KernelTarget& target) {
  if (choices.products == Products::kernels || config().products == "kernels") return ProductRule{.is_wherever = true};
  const ProductSizes most = target.most_products();
  const bool may = choices.products == Products::cost_model && config().products == "auto" && most.rows > 0;
  return may ? std::optional(ProductRule{.most_rows = most.rows, .most_terms = most.terms}) : std::nullopt;
}

KernelTuning tuning_of(const Choices& choices) {
  KernelTuning tuning;
  if (choices.unroll != Unroll::cost_model) tuning.unroll = choices.unroll == Unroll::half ? -1 : 1;
  if (choices.threads != Threads::cost_model) tuning.grain = choices.threads == Threads::fewer ? 2 : -2;
  return tuning;
}

class InductorBackend : public graph::Backend {
 public:
  explicit InductorBackend(InductorOptions options) : options_(options) {}
  std::string name() const override { return options_.target == Target::kInterp ? "interp" : "framejit"; }

  Result<runtime::Executable> compile(const graph::Graph& given) override { return compile_with(given, options_.choices, true); }

  Result<runtime::Executable> compile_timed(const graph::Graph& given, graph::PlanTimer& timer) override {
    // Timed plans run more often than the program says, so they write no input before they end.
    const auto make = [&](const Choices& choices) { return compile_with(given, choices, false); };
    if (options_.target != Target::kMachine) return compile(given);
    return choose_by_time(given, choice_rows(), make, timer, static_cast<double>(config().autotune_ms) / 1000);
  }

  runtime::KernelLoader& loader() override { return loader_; }

 private:
  Result<runtime::Executable> compile_with(const graph::Graph& given, const Choices& choices, bool may_write_inputs) {
    FJ_TRY(KernelTarget * target, shared_target(kernel_device(given)));
    const double start = now();
    const graph::Graph functional = options_.target == Target::kMachine ? for_library_calls(given, choices) : given;
    FJ_TRY_VOID(go_on());
    LoweredGraph lowered = lower(functional);
    if (log::enabled(log::Kind::Loops)) log_loops(lowered.program);
    const double lowered_at = now();
    SizeHints hints;
    for (size_t s = 0; s < functional.shapes.symbol_count(); ++s) hints.symbols.push_back(functional.shapes.symbol(static_cast<graph::SymbolId>(s)).hint);
    FJ_TRY_VOID(go_on());
    Schedule schedule = options_.fuse ? fused(functional, lowered, hints, may_write_inputs) : make_plain_schedule(std::move(lowered.program));
    if (const auto rule = product_rule(choices, *target); rule && kernel_device(functional).type == graph::DeviceType::kCpu)
      take_products(functional, lowered.forms, hints, *rule, schedule);
    if (options_.fuse && may_write_inputs) order_for_commit(functional, lowered.forms, hints, schedule);
    if (log::enabled(log::Kind::Schedule)) log_schedule(schedule);
    const double scheduled_at = now();
    FJ_TRY_VOID(go_on());
    FJ_TRY(runtime::Executable executable, assemble(functional, lowered.forms, schedule, hints, *target, tuning_of(choices)));
    log_stage(functional.name, "lower", lowered_at - start);
    log_stage(functional.name, "schedule", scheduled_at - lowered_at);
    log_stage(functional.name, "assemble", now() - scheduled_at);
    return executable;
  }

  // Inputs are written in place where that keeps the order of what may fail.
  static Schedule fused(const graph::Graph& graph, LoweredGraph& lowered, const SizeHints& hints, bool may_write_inputs) {
    const bool with_refusals = log::enabled(log::Kind::Schedule);
    if (may_write_inputs && !graph.updates.empty()) {
      LoweredGraph in_place = lowered;
      const std::vector<bool> taken = write_inputs_in_place(graph, in_place);
      if (std::find(taken.begin(), taken.end(), true) != taken.end()) {
        Schedule schedule = make_schedule(std::move(in_place.program), hints, with_refusals);
        if (writes_in_order(schedule)) {
          lowered.forms = std::move(in_place.forms);
          return schedule;
        }
      }
    }
    return make_schedule(std::move(lowered.program), hints, with_refusals);
  }

  // To the target of a kernel's device.
  class Loader final : public runtime::KernelLoader {
   public:
    explicit Loader(InductorBackend& backend) : backend_(backend) {}
    Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>& code, runtime::DeviceId device) override {
      const graph::DeviceType type = device.is_cpu() ? graph::DeviceType::kCpu : graph::DeviceType::kCuda;
      FJ_TRY(KernelTarget * target, backend_.shared_target({type, device.index}));
      return target->load(code, device);
    }

   private:
    InductorBackend& backend_;
  };

  // One target per device, made when first needed: LLVM's takes half a millisecond.
  Result<KernelTarget*> shared_target(graph::Device device) {
    const std::lock_guard lock(mutex_);
    const bool is_cpu = device.type == graph::DeviceType::kCpu;
    std::unique_ptr<KernelTarget>& target = targets_[is_cpu ? -1 : std::max<int>(device.index, 0)];
    if (target) return target.get();
    if (is_cpu && options_.target == Target::kInterp) {
      target = make_interp_target();
    } else if (is_cpu) {
      FJ_TRY(target, CpuJit::create(options_.vector_level != 0 ? static_cast<VectorLevel>(options_.vector_level) : level_of_setting()));
    } else if (device.type == graph::DeviceType::kCuda && options_.target == Target::kMachine) {
      FJ_TRY(target, make_gpu_target(std::max<int>(device.index, 0)));
    } else {
      return Error{"no_target", "no kernels for this device"};
    }
    return target.get();
  }

  InductorOptions options_;
  Loader loader_{*this};
  std::mutex mutex_;
  std::map<int, std::unique_ptr<KernelTarget>> targets_;  // by device index; the CPU is -1
};

}  // namespace

std::unique_ptr<graph::Backend> make_inductor_backend(InductorOptions options) { return std::make_unique<InductorBackend>(options); }

const char* treatment_of(std::string_view op) {
  if (graph::is_decomposed(op)) return "decomposed";
  if (is_mapped_view(op)) return "view";
  return find_lowering(op) != nullptr ? "lowered" : "extern";
}

}  // namespace framejit::inductor
