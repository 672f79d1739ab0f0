// inductor/stages.cpp — one function per row of stages.def.
#include "inductor/stages.h"

#include <algorithm>
#include <map>
#include <optional>

#include "graph/passes/pipeline.h"
#include "graph/weight_values.h"
#include "inductor/assemble.h"
#include "inductor/lowering/bare_products.h"
#include "inductor/lowering/convolution_epilogues.h"
#include "inductor/lowering/joined_casts.h"
#include "inductor/lowering/memory_formats.h"
#include "inductor/lowering/patch_products.h"
#include "inductor/lowering/short_attention.h"
#include "inductor/lowering/wide_products.h"
#include "inductor/schedule/commit_order.h"
#include "inductor/schedule/input_writes.h"
#include "inductor/schedule/products.h"
#include "runtime/base/config.h"
#include "inductor/weights/fold_norms.h"
#include "inductor/weights/join_products.h"
#include "inductor/weights/pack_products.h"
#include "inductor/weights/padded_products.h"
#include "runtime/base/log.h"

namespace framejit::inductor {
namespace {

// Which matrix products are kernels; none if the library computes all of them.
std::optional<ProductRule> product_rule(const Choices& choices) {
  if (choices.products == Products::kernels || config().products == "kernels") return ProductRule::kWherever;
  const bool may = choices.products == Products::cost_model && config().products == "auto";
  return may ? std::optional(ProductRule::kWhereTheyPay) : std::nullopt;
}

TargetInfo chosen_target(const Compilation& c) {
  TargetInfo target = c.target.info();
  if (!product_rule(c.choices)) target.traits.multiplies_few_rows = false;
  return target;
}

Result<void> run_fold_norms(Compilation& c) {
  if (c.weights.empty()) return {};
  FJ_TRY(c.graph, fold_norms(c.graph, c.weights));
  return {};
}

Result<void> run_widen_products(Compilation& c) {
  const WideProducts choice = c.choices.wide_products;
  const bool is_wide =
      choice == WideProducts::cost_model ? wants_wide_products(c.target.info()) : choice == WideProducts::wide;
  if (is_wide) c.graph = widen_products(c.graph, c.target.info());
  return {};
}

Result<void> run_join_products(Compilation& c) {
  FJ_TRY(c.graph, join_products(c.graph, c.weights, chosen_target(c)));
  return {};
}

Result<void> run_pack_linear(Compilation& c) {
  if (c.weights.empty()) return {};
  FJ_TRY(c.graph, pack_linear(c.graph, c.weights, c.target.info()));
  return {};
}

Result<void> run_bare_products(Compilation& c) {
  c.graph = bare_products(c.graph, c.target.info());
  return {};
}

Result<void> run_pack_float32(Compilation& c) {
  if (c.weights.empty()) return {};
  FJ_TRY(c.graph, pack_float32(c.graph, c.weights, c.target.info()));
  return {};
}

Result<void> run_short_attention(Compilation& c) {
  c.graph = short_attention(std::move(c.graph), c.target.info());
  return {};
}

Result<void> run_patch_products(Compilation& c) {
  c.graph = patch_products(std::move(c.graph), c.target.info());
  return {};
}

Result<void> run_pad_products(Compilation& c) {
  c.graph = pad_products(std::move(c.graph), c.weights, c.target.info());
  return {};
}

Result<void> run_memory_formats(Compilation& c) {
  const MemoryFormats choice = c.choices.memory_formats;
  if (choice == MemoryFormats::as_recorded) return {};
  const FormatRule rule = choice == MemoryFormats::channels_last ? FormatRule::kChannelsLast : FormatRule::kLeastCost;
  c.graph = choose_memory_formats(c.graph, c.target.info(), rule, c.weights);
  return {};
}

Result<void> run_fuse_epilogues(Compilation& c) {
  c.graph = fuse_epilogues(std::move(c.graph), c.target.info());
  return {};
}

Result<void> run_pack_convolutions(Compilation& c) {
  if (c.weights.empty()) return {};
  FJ_TRY(c.graph, pack_convolutions(c.graph, c.weights, c.target.info()));
  return {};
}

// Each call checks whether the weights of derived values have changed. Packed weights are worth that; a few vectors
// that kernels could compute are not.
bool are_worth_asking(const std::vector<Derivation>& derivations, const TargetInfo& target) {
  int64_t bytes = 0;
  for (const Derivation& derivation : derivations) {
    const graph::TensorMeta& meta = derivation.graph.meta(derivation.graph.outputs[0]);
    if (meta.is_packed) return true;
    bytes += bytes_of(meta);
  }
  return bytes >= target.costs.derived_bytes;
}

Result<void> run_hoist_weights(Compilation& c) {
  if (c.weights.empty()) return {};
  FJ_TRY(Hoisted hoisted, hoist_weights(c.graph, c.weights));
  c.graph = std::move(hoisted.graph);
  c.derivations = std::move(hoisted.derivations);
  c.is_over = !are_worth_asking(c.derivations, c.target.info());
  return {};
}

Result<void> run_join_casts(Compilation& c) {
  c.graph = join_casts(std::move(c.graph), chosen_target(c));
  return {};
}

Result<void> run_lower(Compilation& c) {
  c.lowered = lower(c.graph, chosen_target(c));
  for (size_t s = 0; s < c.graph.shapes.symbol_count(); ++s)
    c.hints.symbols.push_back(c.graph.shapes.symbol(static_cast<graph::SymbolId>(s)).hint);
  return {};
}

// The schedule in which inputs are written in place; none if that would change the order of steps that may fail.
std::optional<Schedule> schedule_in_place(Compilation& c, bool with_kept_nests) {
  if (!c.may_write_inputs || c.graph.updates.empty()) return std::nullopt;
  LoweredGraph in_place = c.lowered;
  const std::vector<bool> taken = write_inputs_in_place(c.graph, c.target.info(), in_place);
  if (std::find(taken.begin(), taken.end(), true) == taken.end()) return std::nullopt;
  Schedule schedule = make_schedule(std::move(in_place.program), c.hints, c.target.info(), with_kept_nests);
  if (!writes_in_order(schedule, c.target.info())) return std::nullopt;
  c.lowered.forms = std::move(in_place.forms);
  return schedule;
}

Result<void> run_schedule(Compilation& c) {
  if (!c.is_fused) {
    c.schedule = make_plain_schedule(std::move(c.lowered.program));
    return {};
  }
  const bool with_kept_nests = log::enabled(log::Kind::Schedule);
  std::optional<Schedule> in_place = schedule_in_place(c, with_kept_nests);
  c.schedule = in_place ? std::move(*in_place)
                        : make_schedule(std::move(c.lowered.program), c.hints, c.target.info(), with_kept_nests);
  return {};
}

Result<void> run_products(Compilation& c) {
  if (const auto rule = product_rule(c.choices))
    take_products(c.graph, c.lowered.forms, c.hints, c.target.info(), *rule, c.schedule);
  return {};
}

Result<void> run_commit_order(Compilation& c) {
  if (c.is_fused && c.may_write_inputs)
    order_for_commit(c.graph, c.lowered.forms, c.hints, c.target.info(), c.schedule);
  return {};
}

KernelTuning tuning_of(const Choices& choices) {
  KernelTuning tuning;
  if (choices.unroll != Unroll::cost_model) tuning.unroll = choices.unroll == Unroll::half ? -1 : 1;
  if (choices.threads != Threads::cost_model) tuning.grain = choices.threads == Threads::fewer ? 2 : -2;
  return tuning;
}

// Equal derivations share one plan.
Result<void> add_derivations(Compilation& c) {
  std::map<std::string, uint32_t> known;
  graph::PlanSizes sizes(c.executable.forward);
  for (const Derivation& derivation : c.derivations) {
    const auto [at, is_new] = known.emplace(graph::print(derivation.graph), static_cast<uint32_t>(known.size()));
    if (is_new) {
      FJ_TRY(runtime::Executable made, c.compile_derivation(derivation.graph));
      c.executable.derive.push_back(runtime::moved_plan(std::move(made), c.executable));
    }
    runtime::Buffer buffer = sizes.buffer(derivation.graph.meta(derivation.graph.outputs[0]));
    c.executable.derived.push_back({std::move(buffer), at->second, derivation.operands});
  }
  return {};
}

Result<void> run_assemble(Compilation& c) {
  FJ_TRY(c.executable, assemble(c.graph, c.lowered.forms, c.schedule, c.hints, c.target, tuning_of(c.choices),
                                c.derivations.size(), c.spent));
  return add_derivations(c);
}

// How results of rows are verified and dumped, by the second column.

Result<void> verify_graph(const Compilation& c) { return graph::verify(c.graph); }
Result<void> verify_loops(const Compilation& c) { return verify(c.lowered.program, c.hints.symbols); }
Result<void> verify_schedule(const Compilation& c) { return verify(c.schedule, c.hints.symbols); }
Result<void> verify_plan(const Compilation& c) { return runtime::verify(c.executable); }

void dump_graph(Compilation& c, const char* stage) { graph::dump_graph(c.graph, stage); }

void dump_loops(Compilation& c, const char*) {
  if (!log::enabled(log::Kind::Loops)) return;
  const LoopProgram& program = c.lowered.program;
  log::emit(log::Kind::Loops, "", {{"graph", program.name}, {"nests", std::to_string(program.items.size())}},
            print(program));
}

void dump_schedule(Compilation& c, const char* stage) {
  if (!log::enabled(log::Kind::Schedule)) return;
  const std::string& name = c.schedule.program.name;
  std::string text = print(c.schedule);
  if (text == c.dumped) return;
  log::emit(log::Kind::Schedule, "",
            {{"graph", name}, {"stage", stage}, {"steps", std::to_string(c.schedule.steps.size())}}, text);
  if (c.dumped.empty())
    log::emit(log::Kind::Refused, "", {{"graph", name}, {"pairs", std::to_string(c.schedule.refused.size())}},
              print_refused(c.schedule));
  c.dumped = std::move(text);
}

void dump_plan(Compilation&, const char*) {}  // the compiler dumps it, for every backend

}  // namespace

const std::vector<graph::Stage<Compilation>>& stages() {
  static const std::vector<graph::Stage<Compilation>> rows = {
#define STAGE(name, leaves, doc) {#name, run_##name, verify_##leaves, dump_##leaves},
#include "inductor/stages.def"
#undef STAGE
  };
  return rows;
}

}  // namespace framejit::inductor
