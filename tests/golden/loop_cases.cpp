// tests/golden/loop_cases.cpp — folders loops, schedule and hip: cases that start from a graph's text.
//
// Stages: "lower" prints the loop program (and checks its round trip and verifier); "schedule" prints the fused groups; "kernels"
// prints the kernel IR of every group; "refused" the pairs that stayed apart; "hip" every kernel as HIP source; "widen" the graph
// whose products of bfloat16 are computed in float32; "bare" the graph whose products
// add nothing; "formats" the graph with the memory formats that cost least; "last" with all
// convolutions in channels_last.
#include <gtest/gtest.h>

#include <map>

#include "graph/graph.h"
#include "inductor/gpu/hip_emitter.h"
#include "inductor/kernel/kernel_ir.h"
#include "inductor/lowering/bare_products.h"
#include "inductor/lowering/lower.h"
#include "inductor/lowering/memory_formats.h"
#include "inductor/lowering/wide_products.h"
#include "tests/golden/golden.h"

namespace framejit::inductor {
namespace {

SizeHints hints_of(const graph::Graph& graph) {
  SizeHints hints;
  for (size_t s = 0; s < graph.shapes.symbol_count(); ++s) hints.symbols.push_back(graph.shapes.symbol(static_cast<graph::SymbolId>(s)).hint);
  return hints;
}

Result<std::string> lowered_text(const LoopProgram& program) {
  FJ_TRY_VOID(verify(program));
  const std::string text = print(program);
  FJ_TRY(const LoopProgram again, parse_loops(text));
  EXPECT_EQ(print(again), text) << "printing and parsing differ";
  return text;
}

std::string kernels_text(const Schedule& schedule, const SizeHints& hints) {
  std::string text;
  const std::vector<bool> is_private(schedule.program.buffers.size(), false);
  for (const auto& step : schedule.steps)
    if (const Group* group = std::get_if<Group>(&step)) text += print(make_kernel(schedule.program, *group, is_private, hints));
  return text;
}

Result<std::string> hip_text(const Schedule& schedule, const SizeHints& hints) {
  std::string text;
  const std::vector<bool> is_private = private_buffers(schedule);
  for (const auto& step : schedule.steps) {
    const Group* group = std::get_if<Group>(&step);
    if (group == nullptr) continue;
    FJ_TRY(const HipProgram program, emit_hip(make_kernel(schedule.program, *group, is_private, hints, kGpuScratchBytes)));
    text += "// ceil(" + program.extent.text() + " / " + std::to_string(program.per_block) + ") blocks of " + std::to_string(program.threads) + "\n" + program.text;
  }
  return text;
}

Result<std::string> run(const golden::Case& c) {
  FJ_TRY(graph::Graph graph, graph::parse_graph(c.in));
  static const std::map<std::string, graph::Graph (*)(const graph::Graph&)> kRewrites = {
      {"widen", widen_products},
      {"bare", bare_products},
      {"formats", [](const graph::Graph& g) { return choose_memory_formats(g, FormatRule::kLeastCost); }},
      {"last", [](const graph::Graph& g) { return choose_memory_formats(g, FormatRule::kChannelsLast); }}};
  if (const auto rewrite = kRewrites.find(c.stages[0]); rewrite != kRewrites.end()) {
    graph = rewrite->second(graph);
    FJ_TRY_VOID(graph::verify(graph));
    return graph::print(graph);
  }
  LoweredGraph lowered = lower(graph);
  const SizeHints hints = hints_of(graph);
  std::string text;
  for (const std::string& stage : c.stages) {
    if (stage == "lower") {
      FJ_TRY(text, lowered_text(lowered.program));
      continue;
    }
    const Schedule schedule = make_schedule(lowered.program, hints, true);
    if (stage == "hip") {
      FJ_TRY(text, hip_text(schedule, hints));
      continue;
    }
    if (stage != "schedule" && stage != "kernels" && stage != "refused") return Error{"golden", "unknown stage " + stage};
    text = stage == "schedule" ? print(schedule) : stage == "refused" ? print_refused(schedule) : kernels_text(schedule, hints);
  }
  return text;
}

const golden::Folder kLoops("loops", run);
const golden::Folder kSchedule("schedule", run);
const golden::Folder kHip("hip", run);

}  // namespace
}  // namespace framejit::inductor
