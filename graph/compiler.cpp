// graph/compiler.cpp — see compiler.h.
#include "graph/compiler.h"

#include <algorithm>

#include "graph/passes/pipeline.h"
#include "runtime/base/log.h"

namespace framejit::graph {
namespace {

void log_plan(const runtime::Executable& executable, const std::string& where) {
  if (!log::enabled(log::Kind::Steps)) return;
  const std::string steps = std::to_string(executable.forward.steps.size());
  log::emit(log::Kind::Steps, where, {{"plan", executable.name}, {"steps", steps}}, runtime::print(executable));
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

Result<runtime::Executable> run_backend(Backend& backend, const Graph& functional, const MakeTimer& make_timer) {
  if (!make_timer) return backend.compile(functional);
  return backend.compile_timed(functional, *make_timer(functional.shapes, backend.loader()));
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
  FJ_TRY(made.functional, run_pipeline(std::move(captured.graph), backend->takes_core_ops()));
  Result<runtime::Executable> executable = run_backend(*backend, made.functional, make_timer);
  if (!executable.ok()) return refusal(executable.error());
  log_plan(executable.value(), captured.where);
  const log::Stopwatch watch(made.functional.name, "bind");
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
  FJ_TRY(runtime::Executable executable, backend->derive(compiled.functional, compiled.weights));
  if (executable.derived.empty() && have_symbolic_sizes(compiled.functional, compiled.weights))
    return Error{Reason::not_derived, "sizes of its weights vary between calls"};
  if (executable.derived.empty()) return none;
  log_plan(executable, where_it_begins(compiled.functional));
  return runtime::BoundExecutable::bind(std::move(executable), backend->loader());
}

Compiler& compiler() {
  static auto* const shared = new Compiler;
  return *shared;
}

}  // namespace framejit::graph
