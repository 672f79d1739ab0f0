// tests/golden/loop_cases.cpp — folders loops, schedule, plan and hip: cases that start from a graph's text.
//
// Stages of graphs (first): "pipeline" runs all graph passes, as production does; "widen" computes products of
// bfloat16 in float32; "bare" takes additions out of products; "formats" chooses the memory formats that cost least,
// "last" channels_last for all convolutions; "join_columns", "patches", "short_attention" and "pad_products" do what a
// GPU's target does; "fold", "join", "pack_linear", "pack_convolutions" and "hoist" take inputs whose names begin with
// w for weights ("hoist" prints the derivations after the graph). Stages of loops: "lower" prints the loop program (and
// checks its round trip and verifier); "schedule" the fused groups; "steps" their names alone, and how many kernels
// there are; "kernels" the kernel IR of every group; "plan" also what the CPU's code does, for registers of 512 and of
// 256 bits; "refused" the pairs that stayed apart; "hip" every kernel as HIP source. A case with one of these is
// executed as well: interpreted, and by machine code of every vector level that this CPU has
// ("not_executed": it calls library ops that are not emulated). With "products", matrix products are kernels wherever
// they can be. With "few_rows", those of few rows are sums, as on a GPU; the interpreter runs them. The target is not a
// real machine (reference_target()), or, with "gpu", a GPU, whose blocks share rows with "blocks_meet" and whose
// launches overlap with "overlap". "in_place": inputs are written in place where that is right. "row=number" replaces a
// row of inductor/target/costs.def in it; "small_caches" gives it a 256th of its caches, so that small programs exceed
// them.
#include <gtest/gtest.h>

#include <map>

#include "graph/graph.h"
#include "graph/passes/decompose.h"
#include "graph/passes/pipeline.h"
#include "inductor/cpu/plan/nest_plan.h"
#include "inductor/gpu/hip_emitter.h"
#include "inductor/interp/interp_target.h"
#include "inductor/kernel/kernel_ir.h"
#include "inductor/lowering/bare_products.h"
#include "inductor/lowering/convolution_epilogues.h"
#include "inductor/lowering/joined_casts.h"
#include "inductor/lowering/lower.h"
#include "inductor/lowering/memory_formats.h"
#include "inductor/lowering/patch_products.h"
#include "inductor/lowering/short_attention.h"
#include "inductor/lowering/wide_products.h"
#include "inductor/schedule/input_writes.h"
#include "inductor/schedule/products.h"
#include "inductor/weights/fold_norms.h"
#include "inductor/weights/hoist.h"
#include "inductor/weights/join_products.h"
#include "inductor/weights/pack_products.h"
#include "inductor/weights/padded_products.h"
#include "tests/golden/golden.h"
#include "tests/parsers/graph_parser.h"
#include "tests/parsers/loop_parser.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor {
namespace {

SizeHints hints_of(const graph::Graph& graph) {
  SizeHints hints;
  for (size_t s = 0; s < graph.shapes.symbol_count(); ++s)
    hints.symbols.push_back(graph.shapes.symbol(static_cast<graph::SymbolId>(s)).hint);
  return hints;
}

Result<std::string> lowered_text(const LoopProgram& program, const SizeHints& hints) {
  FJ_TRY_VOID(verify(program, hints.symbols));
  const std::string text = print(program);
  FJ_TRY(const LoopProgram again, parse_loops(text));
  EXPECT_EQ(print(again), text) << "printing and parsing differ";
  return text;
}

std::string kernels_text(const Schedule& schedule, const SizeHints& hints, const TargetInfo& target) {
  std::string text;
  const std::vector<bool> is_private(schedule.program.buffers.size(), false);
  for (const auto& step : schedule.steps)
    if (const Group* group = std::get_if<Group>(&step))
      text += print(make_kernel(schedule.program, *group, is_private, hints, target));
  return text;
}

std::string plans_text(const Schedule& schedule, const SizeHints& hints, const TargetInfo& target) {
  std::string text;
  const std::vector<bool> is_private = private_buffers(schedule);
  TargetInfo narrow = target;
  narrow.registers = reference_target(VectorLevel::kAvx2).registers;
  for (const auto& step : schedule.steps) {
    const Group* group = std::get_if<Group>(&step);
    if (group == nullptr) continue;
    const Kernel kernel = make_kernel(schedule.program, *group, is_private, hints, target);
    text += print(kernel);
    for (const TargetInfo* t : {&target, static_cast<const TargetInfo*>(&narrow)})
      text += print(plan_kernel(kernel, *t), kernel, *t);
  }
  return text;
}

Result<std::string> hip_text(const Schedule& schedule, const SizeHints& hints, const TargetInfo& gpu) {
  std::string text;
  const std::vector<bool> is_private = private_buffers(schedule);
  for (const auto& step : schedule.steps) {
    const Group* group = std::get_if<Group>(&step);
    if (group == nullptr) continue;
    FJ_TRY(const HipProgram program, emit_hip(make_kernel(schedule.program, *group, is_private, hints, gpu), gpu));
    text += "// ceil(" + program.extent.text() + " / " + std::to_string(program.per_block) + ") blocks of " +
            std::to_string(program.threads) + "\n" + program.text;
  }
  return text;
}

// One line per step, and the number of steps.
std::string steps_text(const Schedule& schedule) {
  std::string text;
  size_t kernels = 0;
  for (const auto& step : schedule.steps) {
    const Group* group = std::get_if<Group>(&step);
    if (group == nullptr) {
      text += "extern " + std::get<ExternCall>(step).op + "\n";
      continue;
    }
    text += "kernel k" + std::to_string(kernels++) + " outer " + std::to_string(group->outer) + ":";
    for (const Nest& nest : group->nests) text += " " + nest.name;
    text += "\n";
  }
  return text + "kernels: " + std::to_string(kernels) +
         ", library calls: " + std::to_string(schedule.steps.size() - kernels) + "\n";
}

std::vector<bool> weights_of(const graph::Graph& graph) {
  std::vector<bool> weights;
  for (const std::string& name : graph.input_names) weights.push_back(name.starts_with("w"));
  return weights;
}

Result<std::string> hoisted_text(const graph::Graph& graph) {
  FJ_TRY(const Hoisted hoisted, hoist_weights(graph, weights_of(graph)));
  FJ_TRY_VOID(graph::verify(hoisted.graph));
  std::string text = graph::print(hoisted.graph);
  for (const Derivation& derivation : hoisted.derivations) {
    FJ_TRY_VOID(graph::verify(derivation.graph));
    text += "from";
    for (uint32_t operand : derivation.operands) text += " " + std::to_string(operand);
    text += "\n" + graph::print(derivation.graph);
  }
  return text;
}

// As on a GPU. If no input's name begins with w, casts count as weights.
Result<graph::Graph> join_columns(const graph::Graph& graph) {
  TargetInfo target = reference_target();
  target.traits.joins_products = true;
  target.traits.packs_weights = false;
  const std::vector<bool> weights = weights_of(graph);
  const bool has_weights = std::find(weights.begin(), weights.end(), true) != weights.end();
  return join_products(graph, has_weights ? weights : std::vector<bool>(), target);
}

Result<graph::Graph> multiply_patches(const graph::Graph& graph) {
  TargetInfo target = reference_target();
  target.traits.multiplies_patches = true;
  return patch_products(graph, target);
}

Result<graph::Graph> shorten_attention(const graph::Graph& graph) {
  TargetInfo target = reference_target();
  target.traits.attends_in_kernel = true;
  target.costs.short_attention_keys = 32;
  target.costs.short_attention_masked = 16;
  target.costs.short_attention_blocks = 8;
  return short_attention(graph, target);
}

Result<graph::Graph> pad_wide(const graph::Graph& graph) {
  TargetInfo target = gpu_target();
  target.costs.padded_columns = 6;
  target.costs.padded_rows = 2;
  target.costs.padded_copied_rows = 4;
  return pad_products(graph, weights_of(graph), target);
}

using GraphStage = Result<graph::Graph> (*)(const graph::Graph&);
const std::map<std::string, GraphStage>& graph_stages() {
  using graph::Graph;
  static const std::map<std::string, GraphStage> stages = {
      {"pipeline", [](const Graph& g) { return graph::run_pipeline(g, true); }},
      {"widen", [](const Graph& g) -> Result<Graph> { return widen_products(g, reference_target()); }},
      {"bare", [](const Graph& g) -> Result<Graph> { return bare_products(g, reference_target()); }},
      {"formats",
       [](const Graph& g) -> Result<Graph> {
         return choose_memory_formats(g, reference_target(), FormatRule::kLeastCost);
       }},
      {"fold", [](const Graph& g) -> Result<Graph> { return fold_norms(g, weights_of(g)); }},
      {"join",
       [](const Graph& g) -> Result<Graph> {
         TargetInfo target = reference_target();
         target.costs.packed_rows = 16;
         return join_products(g, weights_of(g), target);
       }},
      {"join_columns", join_columns},
      {"patches", multiply_patches},
      {"short_attention", shorten_attention},
      {"pad_products", pad_wide},
      {"join_casts",
       [](const Graph& g) -> Result<Graph> {
         TargetInfo target = reference_target();
         target.traits.casts_together = true;
         return join_casts(g, target);
       }},
      {"epilogues",
       [](const Graph& g) -> Result<Graph> {
         TargetInfo target = reference_target();
         target.traits.fuses_convolutions = true;
         return fuse_epilogues(g, target);
       }},
      {"biases",
       [](const Graph& g) -> Result<Graph> {
         TargetInfo target = reference_target();
         target.traits.fuses_convolutions = target.traits.adds_biases_last = true;
         return fuse_epilogues(g, target);
       }},
      {"half_formats",
       [](const Graph& g) -> Result<Graph> {
         TargetInfo target = reference_target();
         target.traits.half_convolutions_are_last = true;
         return choose_memory_formats(g, target);
       }},
      {"pack_linear",
       [](const Graph& g) -> Result<Graph> { return pack_linear(g, weights_of(g), reference_target()); }},
      {"pack_float32",
       [](const Graph& g) -> Result<Graph> {
         TargetInfo target = reference_target();
         target.costs.packed_rows = 16;
         return pack_float32(g, weights_of(g), target);
       }},
      {"pack_convolutions",
       [](const Graph& g) -> Result<Graph> { return pack_convolutions(g, weights_of(g), reference_target()); }},
      {"last", [](const Graph& g) -> Result<Graph> {
         return choose_memory_formats(g, reference_target(), FormatRule::kChannelsLast);
       }}};
  return stages;
}

Result<std::string> loop_text(const std::string& stage, const graph::Graph& graph, const LoweredGraph& lowered,
                              const TargetInfo& target, bool with_products) {
  const SizeHints hints = hints_of(graph);
  if (stage == "lower") return lowered_text(lowered.program, hints);
  Schedule schedule = make_schedule(lowered.program, hints, target, true);
  if (with_products) take_products(graph, lowered.forms, hints, target, ProductRule::kWherever, schedule);
  FJ_TRY_VOID(verify(schedule, hints.symbols));
  if (stage == "schedule") return print(schedule);
  if (stage == "steps") return steps_text(schedule);
  if (stage == "refused") return print_refused(schedule);
  if (stage == "kernels") return kernels_text(schedule, hints, target);
  if (stage == "plan") return plans_text(schedule, hints, target);
  if (stage == "hip")
    return hip_text(schedule, hints, target.machine_class == MachineClass::gpu ? target : gpu_target());
  return Error{Reason::bad_text, "unknown stage " + stage};
}

// Removes the stages that describe the target.
Result<TargetInfo> target_of(std::vector<std::string>& stages) {
  TargetInfo target = std::erase(stages, "gpu") != 0 ? gpu_target() : reference_target();
  target.traits.multiplies_few_rows = std::erase(stages, "few_rows") != 0;
  target.traits.blocks_meet = std::erase(stages, "blocks_meet") != 0;
  target.traits.launches_overlap = std::erase(stages, "overlap") != 0;
  if (std::erase(stages, "small_caches") != 0)
    for (int64_t* cache : {&target.caches.first, &target.caches.second, &target.caches.last}) *cache /= 256;
  for (size_t at = 0; at < stages.size();) {
    const size_t equals = stages[at].find('=');
    if (equals == std::string::npos) {
      ++at;
      continue;
    }
    const auto row = std::find_if(cost_rows().begin(), cost_rows().end(),
                                  [&](const CostRow& r) { return stages[at].substr(0, equals) == r.name; });
    if (row == cost_rows().end()) return Error{Reason::bad_text, "no row of costs.def: " + stages[at]};
    const int64_t number = std::stoll(stages[at].substr(equals + 1));
    if (!row->numbers.has(number)) return Error{Reason::bad_text, stages[at] + ": " + text_of(row->numbers)};
    target.costs.*row->field = number;
    stages.erase(stages.begin() + static_cast<long>(at));
  }
  return target;
}

// How much the coarsest floats in the graph's computation round away.
double tolerance_of(const graph::Graph& graph) {
  double tolerance = 2e-6;
  for (const graph::ValueInfo& value : graph.values)
    if (is_half(value.meta.dtype)) tolerance = std::max(tolerance, value.meta.dtype == DType::kBFloat16 ? 1e-2 : 1e-3);
  return tolerance;
}

// Runs kernels for another target in the interpreter.
class InterpretedTarget : public KernelTarget {
 public:
  explicit InterpretedTarget(TargetInfo info) : info_(std::move(info)) {}
  const TargetInfo& info() const override { return info_; }
  Result<CompiledKernel> compile(const Kernel& kernel) override { return interpreter_->compile(kernel); }
  Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>& code,
                                     runtime::DeviceId device) override {
    return interpreter_->load(code, device);
  }
  Result<std::vector<KernelText>> texts(const Kernel&, bool) override { return std::vector<KernelText>{}; }
  TargetStatistics statistics() const override { return interpreter_->statistics(); }

 private:
  const TargetInfo info_;
  std::unique_ptr<KernelTarget> interpreter_ = make_interp_target();
};

// Every printed program also runs, unless it calls ops that the tests' host does not emulate: then the case says so.
void execute(const graph::Graph& graph, const LoopProgram& program, bool is_left_out, bool with_products) {
  const bool can_run = testing::unknown_calls(program).empty();
  EXPECT_NE(can_run, is_left_out) << (can_run ? "'not_executed' has no reason"
                                              : "calls an op that is not emulated: say 'not_executed'");
  if (!can_run) return;
  Choices choices;
  if (with_products) choices.products = Products::kernels;
  const double sums = with_products ? 1e-5 : 0;
  testing::check_graph(graph, {.tolerance = std::max(sums, tolerance_of(graph)), .choices = choices});
}

// Torch's attention on a GPU. No other op here needs its arguments by name.
void declare_attention() {
  const std::vector<std::string> first{"query", "key", "value"};
  const auto declare = [&](const char* name, std::initializer_list<const char*> more) {
    graph::OpDef op;
    op.name = name;
    op.flags = graph::kRandom;
    op.arg_names = first;
    op.arg_names.insert(op.arg_names.end(), more.begin(), more.end());
    graph::declare_op(std::move(op));
  };
  declare("_scaled_dot_product_flash_attention", {"dropout_p", "is_causal", "return_debug_mask", "scale"});
  declare("_scaled_dot_product_cudnn_attention",
          {"attn_bias", "compute_log_sumexp", "dropout_p", "is_causal", "return_debug_mask", "scale"});
}

Result<std::string> run(const golden::Case& c) {
  testing::declare_ops();
  declare_attention();
  FJ_TRY(graph::Graph graph, graph::parse_graph(c.in));
  std::vector<std::string> stages = c.stages;
  const bool is_left_out = std::erase(stages, "not_executed") != 0, with_products = std::erase(stages, "products") != 0,
             in_place = std::erase(stages, "in_place") != 0;
  FJ_TRY(const TargetInfo target, target_of(stages));
  size_t at = 0;
  for (; at < stages.size() && graph_stages().count(stages[at]) != 0; ++at) {
    FJ_TRY(graph, graph_stages().at(stages[at])(graph));
    FJ_TRY_VOID(graph::verify(graph));
  }
  if (at == stages.size()) return graph::print(graph);
  if (stages[at] == "hoist") return hoisted_text(graph);
  LoweredGraph lowered = lower(graph, target);
  if (in_place) write_inputs_in_place(graph, target, lowered);
  if (target.traits.multiplies_few_rows) {
    InterpretedTarget interpreted(target);
    if (!is_left_out)
      testing::check_graph_with(interpreted, graph::print(graph), {.tolerance = tolerance_of(graph), .passes = false});
  } else {
    execute(graph, lowered.program, is_left_out, with_products);
  }
  std::string text;
  for (; at < stages.size(); ++at) {
    FJ_TRY(const std::string part, loop_text(stages[at], graph, lowered, target, with_products));
    text += part;
  }
  return text;
}

const golden::Folder kLoops("loops", run);
const golden::Folder kSchedule("schedule", run);
const golden::Folder kPlan("plan", run);
const golden::Folder kHip("hip", run);

}  // namespace
}  // namespace framejit::inductor
