// frame_hook/aten/compiled_call.cpp — passes, backend, and the call that wraps their product for Python.
#include "frame_hook/aten/compiled_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <deque>
#include <optional>

#include "frame_hook/aten/plan_timer.h"
#include "frame_hook/aten/tensor_frontend.h"
#include "frame_hook/aten/user_backend.h"
#include "graph/passes/pipeline.h"
#include "guards/running_compile.h"
#include "runtime/arena.h"
#include "runtime/aten/plan_runner.h"
#include "runtime/base/log.h"

namespace framejit::frame_hook {
namespace {

constexpr int64_t kManyElements = 1 << 15;

// The user line of the first op: where the graph begins.
std::string place_of(const graph::Graph& graph) {
  if (graph.nodes.empty() || graph.nodes[0].line == 0) return "";
  const graph::Line& line = graph.lines[graph.nodes[0].line];
  return line.file + ":" + std::to_string(line.number) + " " + line.function;
}

void log_calls(const CapturedCalls& calls, const graph::Graph& graph) {
  if (!log::enabled(log::Kind::Graph)) return;
  log::emit(log::Kind::Graph, place_of(graph), {{"graph", graph.name}, {"calls", std::to_string(calls.size())}}, calls.text(graph));
}

void log_graph(const graph::Graph& graph, const char* stage) {
  if (!log::enabled(log::Kind::AtenGraph)) return;
  log::emit(log::Kind::AtenGraph, place_of(graph), {{"graph", graph.name}, {"stage", stage}, {"ops", std::to_string(graph.nodes.size())}}, graph::print(graph));
}

void log_plan(const runtime::Executable& executable, const std::string& where) {
  if (!log::enabled(log::Kind::Steps)) return;
  const std::string steps = std::to_string(executable.forward.steps.size());
  log::emit(log::Kind::Steps, where, {{"plan", executable.name}, {"steps", steps}}, runtime::print(executable));
}

int64_t constant_elements(const runtime::Buffer& buffer) {
  int64_t elements = 1;
  for (const runtime::Size& size : buffer.sizes) {
    if (size.slot >= 0) return kManyElements;
    elements *= size.constant;
  }
  return elements;
}

// Little work, all of it ours: done before another thread could have taken over.
bool is_short(const runtime::CallPlan& plan) {
  for (const runtime::Step& step : plan.steps)
    if (std::holds_alternative<runtime::ExternStep>(step)) return false;
  int64_t elements = 0;
  for (const runtime::Buffer& buffer : plan.buffers)
    if ((elements += constant_elements(buffer)) >= kManyElements) return false;
  return true;
}

// Runs a plan. Views that leave it, writes to inputs and returned inputs are the runner's and the plan's business.
class PlannedCall final : public CompiledCall {
 public:
  PlannedCall(const std::shared_ptr<const runtime::BoundExecutable>& executable, const RecordedGraph& recorded, size_t ops)
      : runner_(executable, recorded.constants, recorded.opaques) {
    output_count = runner_.plan().outputs.size();
    op_count = ops;
    kernel_count = executable->executable().kernels.size();
    is_short_ = is_short(runner_.plan());
  }

  bool run(PyObject* const* inputs, const int64_t* symbols, PyObject** outputs) override {
    HANDLE_TH_ERRORS
    const runtime::CallPlan& plan = runner_.plan();
    c10::SmallVector<const at::Tensor*, 64> tensors(plan.input_count);
    std::optional<std::deque<at::Tensor>> floats;  // tensors that stand for Python floats; even an empty deque allocates
    for (uint32_t i = 0; i < plan.input_count; ++i) {
      const bool is_number = PyFloat_CheckExact(inputs[i]);
      if (is_number && !floats) floats.emplace();
      tensors[i] = is_number ? &floats->emplace_back(input_tensor(inputs[i])) : &THPVariable_Unpack(inputs[i]);
    }
    c10::SmallVector<at::Tensor, 8> results(output_count);
    if (!run_plan(tensors.data(), symbols, results.data())) return false;
    for (size_t i = 0; i < output_count; ++i)
      outputs[i] = plan.outputs[i].kind == runtime::Output::kInput ? Py_NewRef(inputs[plan.outputs[i].index]) : THPVariable_Wrap(results[i]);
    return true;
    END_HANDLE_TH_ERRORS_RET(false)
  }

 private:
  bool run_plan(const at::Tensor* const* inputs, const int64_t* symbols, at::Tensor* results) {
    Result<void> done;
    try {
      const WithoutGil released(!is_short_);
      done = runner_.run(inputs, symbols, results);
    } catch (...) {
      runtime::ArenaPool::cpu().trim();  // for want of memory, maybe, and plain Python needs some now
      throw;
    }
    if (!done.ok()) PyErr_SetString(PyExc_RuntimeError, done.error().message.c_str());
    return done.ok();
  }

  runtime::PlanRunner runner_;
  bool is_short_ = false;
};

struct Planned {
  graph::Graph functional;
  std::shared_ptr<const runtime::BoundExecutable> executable;
};

// What a backend cannot compile is no defect of the recording.
Error refusal(const Error& error) {
  const bool has_row = error.code == "interrupted" || error.code == "no_memory";
  return {has_row ? error.code : "kernel_refused", error.message};
}

// No Python is needed here but for the runs of a plan that are timed: no object is touched, log listeners and who looks for Ctrl-C take
// the GIL for themselves.
Result<Planned> plan_graph(const RecordedGraph& recorded, graph::Backend& backend, bool decompose, bool autotune) {
  Planned made;
  std::optional<Result<runtime::Executable>> compiled;
  {
    const Unlocked others_run;
    FJ_TRY(made.functional, graph::run_pipeline(recorded.graph, decompose));
    if (!autotune) compiled = backend.compile(made.functional);
  }
  if (autotune) {
    CallTimer timer(recorded, made.functional.shapes, backend.loader());
    compiled = backend.compile_timed(made.functional, timer);
  }
  if (!compiled->ok()) return refusal(compiled->error());
  log_plan(compiled->value(), place_of(recorded.graph));
  const Unlocked others_run;
  const log::Stopwatch watch(made.functional.name, "bind");
  auto bound = runtime::BoundExecutable::bind(compiled->take(), backend.loader());
  if (!bound.ok()) return refusal(bound.error());
  made.executable = bound.take();
  return made;
}

}  // namespace

at::Tensor input_tensor(PyObject* input) {
  return PyFloat_CheckExact(input) ? at::scalar_tensor(PyFloat_AS_DOUBLE(input), at::kDouble) : at::Tensor(THPVariable_Unpack(input));
}

// Passes make the graph functional; "eager" and user's backends get it as recorded otherwise, ours decomposed.
Result<std::unique_ptr<CompiledCall>> compile_graph(const RecordedGraph& recorded, graph::ShapeEnv& shapes, const CompileRequest& request) {
  log_calls(recorded.calls, recorded.graph);
  log_graph(recorded.graph, "recording");
  const std::string name = request.callable != nullptr ? "eager" : request.backend;
  graph::Backend* const backend = find_backend(name);
  if (!backend) return Error{"unknown_backend", "no backend is named '" + name + "'"};
  FJ_TRY(Planned planned, plan_graph(recorded, *backend, name != "eager", request.autotune));
  auto& [functional, executable] = planned;
  const auto& facts = functional.shapes.facts();
  for (size_t i = recorded.graph.shapes.facts().size(); i < facts.size(); ++i) shapes.add_fact(facts[i]);
  std::unique_ptr<CompiledCall> call = std::make_unique<PlannedCall>(executable, recorded, functional.nodes.size());
  if (request.callable == nullptr) return call;
  call = make_user_call(request.callable, std::move(functional), std::move(call), recorded.example_inputs);
  if (!call) return Error{"backend_raised", "the backend raised"};
  return call;
}

}  // namespace framejit::frame_hook
