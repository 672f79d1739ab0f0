#include "graph/compiler.h"

#include <algorithm>

#include "graph/joint.h"
#include "graph/passes/partition.h"
#include "graph/passes/passes.h"
#include "graph/passes/pipeline.h"
#include "graph/passes/rebuild.h"
#include "runtime/backward_plan.h"
#include "runtime/base/config.h"
#include "runtime/base/log.h"

namespace framejit::graph {
namespace {

void log_plan(const runtime::Executable& executable, const std::string& where) {
  if (!log::enabled(log::Kind::Steps)) return;
  const auto& plan = executable.backward.empty() ? executable.forward : executable.backward[0];
  const std::string steps = std::to_string(plan.steps.size());
  log::emit(log::Kind::Steps, where,
            {{"plan", executable.name}, {"steps", steps}, {"hash", runtime::content_hash(executable)}},
            runtime::print(executable));
}

bool have_symbolic_sizes(const Graph& functional, const std::vector<bool>& weights) {
  const auto is_constant = [](const SymExpr& e) { return e.is_constant(); };
  for (size_t i = 0; i < functional.inputs.size() && i < weights.size(); ++i) {
    const SymSizes& sizes = functional.meta(functional.inputs[i]).sizes;
    if (weights[i] && !std::all_of(sizes.begin(), sizes.end(), is_constant)) return true;
  }
  return false;
}

// A backend may refuse a graph that was recorded correctly.
Error refusal(const Error& error) {
  const bool is_code = row_of(error.reason).kind == ReasonKind::refusal;
  return {is_code ? Reason::kernel_refused : error.reason, error.message};
}

void log_joint(const Graph& graph, const JointLayout& layout) {
  if (!log::enabled(log::Kind::Joint)) return;
  const size_t nodes = graph.nodes.size(), forward = std::min(nodes, layout.forward_nodes);
  log::emit(log::Kind::Joint, "",
            {{"graph", graph.name},
             {"forward", std::to_string(forward)},
             {"backward", std::to_string(nodes - forward)}},
            print(graph));
}

Backend& op_by_op() {
  static const std::unique_ptr<Backend> backend = make_eager_backend();
  return *backend;
}

// A stage after the graph passes. It is not a row of their table, because it makes two graphs from one.
Result<void> part(CompiledGraph& made, const JointLayout& layout, std::shared_ptr<const Graph> recorded,
                  bool is_decomposed) {
  const log::Stopwatch watch("", "partition");
  log_joint(made.functional, layout);
  FJ_TRY(TrainingGraphs graphs, partition(made.functional, layout, config().memory_budget));
  if (config().strict)
    for (const Graph* graph : {&graphs.forward, &graphs.backward}) {
      const Result<void> valid = verify(*graph);
      FJ_ASSERT(valid.ok(), "partition: " + valid.error().message);
    }
  graphs.draws = std::any_of(recorded->nodes.begin(), recorded->nodes.end(),
                             [](const Node& node) { return node.op->has(kRandom); });
  graphs.recorded = std::move(recorded);
  graphs.forward_nodes = layout.forward_nodes;
  graphs.without_history = layout.without_history;
  graphs.has_functions = layout.has_functions;
  graphs.is_decomposed = is_decomposed;
  made.functional = graphs.forward;
  made.training = std::make_shared<const TrainingGraphs>(std::move(graphs));
  return {};
}

void log_backward(const Graph& graph, const std::vector<bool>& given, const std::vector<bool>& wanted) {
  if (!log::enabled(log::Kind::Backward)) return;
  const auto count = [](const std::vector<bool>& flags) {
    return std::to_string(std::count(flags.begin(), flags.end(), true));
  };
  log::emit(log::Kind::Backward, where_it_begins(graph),
            {{"graph", graph.name},
             {"ops", std::to_string(graph.nodes.size())},
             {"given", count(given)},
             {"wanted", count(wanted)}},
            print(graph));
}

Result<runtime::Executable> run_backend(Backend& backend, const Graph& functional, const MakeTimer& make_timer,
                                        std::string& decided) {
  if (!make_timer) return backend.compile(functional);
  return backend.compile_timed(functional, *make_timer(functional.shapes, backend.loader()), decided);
}

}  // namespace

std::string where_it_begins(const Graph& graph) {
  if (graph.nodes.empty() || graph.nodes[0].line == 0) return "";
  const Line& line = graph.lines[graph.nodes[0].line];
  return line.file + ":" + std::to_string(line.number) + " " + line.function;
}

void Compiler::add_backend(const std::string& name, BackendFactory factory) {
  const std::lock_guard lock(mutex_);
  factories_[name] = std::move(factory);
  made_.erase(name);
}

Backend* Compiler::find_backend(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto at = factories_.find(name);
  if (at == factories_.end()) return nullptr;
  std::unique_ptr<Backend>& backend = made_[name];
  if (!backend) backend = at->second();
  return backend.get();
}

std::vector<std::string> Compiler::backend_names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, factory] : factories_) names.push_back(name);
  return names;
}

Result<CompiledGraph> Compiler::compile(CapturedGraph captured, const std::string& name, const MakeTimer& make_timer) {
  Backend* const backend = find_backend(name);
  if (!backend) return Error{Reason::unknown_backend, "no backend is named '" + name + "'"};
  CompiledGraph made;
  const auto recorded = captured.joint ? std::make_shared<const Graph>(captured.graph) : nullptr;
  FJ_TRY(made.functional, run_pipeline(std::move(captured.graph), backend->takes_core_ops()));
  if (captured.joint) FJ_TRY_VOID(part(made, *captured.joint, recorded, backend->takes_core_ops()));
  Result<runtime::Executable> executable = run_backend(*backend, made.functional, make_timer, made.decided);
  if (!executable.ok()) return refusal(executable.error());
  if (made.training) runtime::save_outputs(executable.value(), made.training->forward_outputs);
  log_plan(executable.value(), captured.where);
  const log::Stopwatch watch("", "bind");
  auto bound = runtime::BoundExecutable::bind(executable.take(), backend->loader());
  if (!bound.ok()) return refusal(bound.error());
  made.executable = bound.take();
  made.backend = name;
  made.weights = std::move(captured.weights);
  return made;
}

Result<std::shared_ptr<const runtime::BoundExecutable>> Compiler::derive(const CompiledGraph& compiled) {
  std::shared_ptr<const runtime::BoundExecutable> none;
  Backend* const backend = find_backend(compiled.backend);
  if (!backend || std::find(compiled.weights.begin(), compiled.weights.end(), true) == compiled.weights.end())
    return none;
  FJ_TRY(runtime::Executable executable, backend->derive(compiled.functional, compiled.weights, compiled.decided));
  if (executable.derived.empty() && have_symbolic_sizes(compiled.functional, compiled.weights))
    return Error{Reason::not_derived, "sizes of its weights vary between calls"};
  if (executable.derived.empty()) return none;
  log_plan(executable, where_it_begins(compiled.functional));
  return runtime::BoundExecutable::bind(std::move(executable), backend->loader());
}

namespace {

bool is_made(const Graph& graph, ValueId v) { return graph.values[index_of(memory_of(graph, v))].node >= 0; }

// Per input of a backward for the given tangents: whether it is a value in memory that the forward made, and that the
// backward of no other tangent reads.
std::vector<bool> spent_by(const TrainingGraphs& graphs, const std::vector<bool>& given) {
  std::vector<bool> spent;
  for (size_t i = 0; i < graphs.saved.size(); ++i) {
    bool others_read = false;
    for (size_t r = 0; r < given.size(); ++r) others_read = others_read || (graphs.readers[i][r] && !given[r]);
    const Saved& saved = graphs.saved[i];
    spent.push_back(!others_read && saved.of == Saved::kValue &&
                    is_made(graphs.forward, graphs.forward.outputs[graphs.forward_outputs + saved.index]));
  }
  return spent;
}

}  // namespace

Result<std::shared_ptr<const runtime::BoundExecutable>> Compiler::compile_backward(const TrainingGraphs& graphs,
                                                                                   const std::string& name,
                                                                                   const std::vector<bool>& given,
                                                                                   const std::vector<bool>& wanted) {
  Backend* const backend = find_backend(name);
  if (!backend) return Error{Reason::unknown_backend, "no backend is named '" + name + "'"};
  FJ_TRY(const Graph functional, partial_backward(graphs, given, wanted));
  log_backward(functional, given, wanted);
  const auto saved = static_cast<uint32_t>(graphs.saved.size());
  FJ_TRY(runtime::Executable executable, backend->compile_backward(functional, spent_by(graphs, given)));
  executable = runtime::as_backward(std::move(executable), saved);
  log_plan(executable, where_it_begins(functional));
  return runtime::BoundExecutable::bind(std::move(executable), backend->loader());
}

Result<std::shared_ptr<const runtime::BoundExecutable>> Compiler::compile_by_ops(const Graph& functional) {
  FJ_TRY(runtime::Executable executable, op_by_op().compile(functional));
  return runtime::BoundExecutable::bind(std::move(executable), op_by_op().loader());
}

Compiler& compiler() {
  static auto* const shared = new Compiler;
  return *shared;
}

}  // namespace framejit::graph
