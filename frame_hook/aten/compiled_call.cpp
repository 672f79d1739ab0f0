// frame_hook/aten/compiled_call.cpp — the call that wraps a plan for Python.
#include "frame_hook/aten/compiled_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "frame_hook/aten/autocast_region.h"
#include "frame_hook/aten/derived_weights.h"
#include "frame_hook/aten/torch_graphs.h"
#include "frame_hook/aten/training.h"
#include "graph/aten/torch_texts.h"
#include "guards/cpython/running_compile.h"
#include "runtime/arena.h"
#include "runtime/aten/graph_replay.h"
#include "runtime/aten/plan_runner.h"
#include "runtime/aten/shape_functions.h"

namespace framejit::frame_hook {
namespace {

constexpr int64_t kManyElements = 1 << 15;

int64_t constant_elements(const runtime::Buffer& buffer) {
  int64_t elements = 1;
  for (const runtime::Size& size : buffer.sizes) {
    if (size.slot >= 0) return kManyElements;
    elements *= size.constant;
  }
  return elements;
}

// Kernels only, with little work: they end sooner than another thread could take the GIL.
bool is_short(const runtime::CallPlan& plan) {
  for (const runtime::Step& step : plan.steps)
    if (std::holds_alternative<runtime::ExternStep>(step)) return false;
  int64_t elements = 0;
  for (const runtime::Buffer& buffer : plan.buffers)
    if ((elements += constant_elements(buffer)) >= kManyElements) return false;
  return true;
}

// Runs a plan. The runner and the plan take care of returned views and inputs, and of writes to inputs.
class PlannedCall final : public CompiledCall {
 public:
  PlannedCall(const graph::CompiledGraph& compiled, const RecordedValues& values, Deriving deriving,
              const OutputSet& outputs)
      : runner_(compiled.executable, values.constants, values.opaques),
        is_short_(is_short(runner_.plan())),
        backward_(backward_plans(compiled, values, outputs)),
        written_(backward_ ? outputs.written : std::vector<WrittenInput>()),
        weights_in_region_(WeightsInRegion::of(values.example_inputs)),
        derived_(is_short_ || backward_ ? nullptr : DerivedWeights::make(compiled, values, deriving)) {
    output_count = runner_.plan().outputs.size();
    op_count = compiled.functional.nodes.size();
    kernel_count = compiled.executable->executable().kernels.size();
    if (!is_short_) held_inputs_ = copied_inputs(runner_.plan());
    if (deriving.replays && !backward_)
      replays_.emplace(compiled.functional.name, compiled.functional.input_names, compiled.weights, torch_graphs());
    if (deriving.replays && backward_)
      runtime::log_not_replayed(compiled.functional.name, {runtime::GraphRefusal::saves, ""});
  }

  CallResult run(PyObject* const* inputs, const int64_t* symbols, PyObject** outputs, WeightOwners& owners) override {
    CallResult if_thrown{CallStatus::failed};
    HANDLE_TH_ERRORS
    const runtime::CallPlan& plan = runner_.plan();
    c10::SmallVector<const at::Tensor*, 64> tensors(plan.input_count);
    // Tensors that stand for Python floats. Made only if there are any, because even an empty deque allocates.
    std::optional<std::deque<at::Tensor>> floats;
    for (uint32_t i = 0; i < plan.input_count; ++i) {
      const bool is_number = PyFloat_CheckExact(inputs[i]);
      if (is_number && !floats) floats.emplace();
      tensors[i] = is_number ? &floats->emplace_back(input_tensor(inputs[i])) : &THPVariable_Unpack(inputs[i]);
    }
    if (weights_in_region_) weights_in_region_->look(tensors.data());
    c10::SmallVector<at::Tensor, 8> results(output_count);
    const DerivedWeights::Use derived = derived_ ? derived_->ask(tensors.data(), owners) : DerivedWeights::Use{};
    if (backward_ && backward_->has_given_up())
      return failed({Reason::no_backward, "an earlier backward failed, " + backward_->why_given_up()});
    if (backward_ && runtime::changes_history_of_view(*backward_, tensors.data()))
      return failed({Reason::run_failed, "a view that needs a gradient is written"});
    const InputVersions versions(written_, inputs);
    runtime::ValuesBetweenPlans between;
    std::vector<runtime::GeneratorState> drawn;
    if (backward_) drawn = runtime::drawn_states(*backward_, runner_);
    const CallResult computed = compute(derived, inputs, tensors.data(), symbols, results.data(), between);
    if (computed.status != CallStatus::done) return computed;
    versions.settle();
    if (backward_) try {
        runtime::record_backward(backward_, tensors.data(), symbols, results.data(), std::move(between.saved),
                                 std::move(drawn));
      } catch (...) {
        if_thrown = {CallStatus::raised};  // a saved-tensor hook of the program raised, after the graph ran
        throw;
      }
    for (size_t i = 0; i < output_count; ++i) {
      const runtime::Output& output = plan.outputs[i];
      // If outputs have a history, a view of a whole input may be a different tensor, with its own history.
      const bool is_input =
          output.kind == runtime::Output::kInput && (!backward_ || results[i].is_same(*tensors[output.index]));
      outputs[i] = is_input ? Py_NewRef(inputs[output.index]) : THPVariable_Wrap(results[i]);
    }
    return {};
    END_HANDLE_TH_ERRORS_RET(if_thrown)
  }

 private:
  static CallResult failed(const Error& error, CallStatus status = CallStatus::failed) {
    PyErr_SetString(PyExc_RuntimeError, error.message.c_str());
    return {status, error.reason};
  }

  // Hands the call to `ask`, which may run it as a graph of the GPU's driver: true if it did.
  template <class Ask>
  Result<bool> as_graph(const DerivedWeights::Use& derived, const at::Tensor* const* inputs, const int64_t* symbols,
                        at::Tensor* results, Ask ask) {
    if (!replays_) return false;
    runtime::ValuesBetweenPlans between{derived.values ? &derived.values->tensors() : nullptr};
    const bool derives = derived.runner != nullptr;
    return ask(
        {derives ? *derived.runner : runner_, derives ? &between : nullptr, derived.values, inputs, symbols, results});
  }
  Result<bool> replay(const DerivedWeights::Use& derived, const at::Tensor* const* inputs, const int64_t* symbols,
                      at::Tensor* results) {
    return as_graph(derived, inputs, symbols, results,
                    [&](const runtime::ReplayCall& call) { return replays_->replay(call); });
  }
  Result<bool> record(const DerivedWeights::Use& derived, PyObject* const* objects, const at::Tensor* const* inputs,
                      const int64_t* symbols, at::Tensor* results) {
    return as_graph(derived, inputs, symbols, results, [&](const runtime::ReplayCall& call) {
      return replays_->record(call, inputs_marked_as_fixed(objects, runner_.plan().input_count));
    });
  }

  // Fills `results`: a graph of the GPU's driver is replayed or recorded, or the plan runs.
  CallResult compute(const DerivedWeights::Use& derived, PyObject* const* objects, const at::Tensor* const* inputs,
                     const int64_t* symbols, at::Tensor* results, runtime::ValuesBetweenPlans& between) {
    const Result<bool> replayed = replay(derived, inputs, symbols, results);
    if (!replayed.ok()) return failed(replayed.error());
    if (replayed.value()) return {};
    c10::SmallVector<at::Tensor, 8> held;
    for (uint32_t i : derived.runner != nullptr ? *derived.held_inputs : held_inputs_) held.push_back(*inputs[i]);
    const Result<bool> recorded = record(derived, objects, inputs, symbols, results);
    if (!recorded.ok()) return failed(recorded.error());
    return recorded.value() ? CallResult{} : run_plan(derived, inputs, symbols, results, between);
  }

  CallResult run_plan(const DerivedWeights::Use& derived, const at::Tensor* const* inputs, const int64_t* symbols,
                      at::Tensor* results, runtime::ValuesBetweenPlans& between) {
    Result<void> done;
    try {
      const WithoutGil released(!is_short_);
      if (derived.runner == nullptr) {
        done = runner_.run(inputs, symbols, results, backward_ ? &between : nullptr);
      } else {
        between.derived = &derived.values->tensors();
        done = derived.runner->run(inputs, symbols, results, &between);
      }
    } catch (const runtime::ShapeFunctionErred& e) {
      const std::string op = std::string("an op whose shape function has to be corrected (") + e.what() + ")";
      return failed({Reason::unsupported_op, op}, CallStatus::wrong);
    } catch (const std::exception& e) {
      if (is_out_of_memory(e)) {  // plain Python needs memory now
        runtime::ArenaPool::cpu().trim();
        DerivedWeights::drop_all();
      }
      throw;
    }
    return done.ok() ? CallResult{} : failed(done.error());
  }

  runtime::PlanRunner runner_;
  const bool is_short_;
  const std::shared_ptr<runtime::BackwardPlans> backward_;  // null: no output gets a history
  const std::vector<WrittenInput> written_;                 // with a backward
  std::optional<WeightsInRegion> weights_in_region_;
  const std::shared_ptr<DerivedWeights> derived_;  // null: nothing can be derived
  std::optional<runtime::GraphReplay> replays_;  // none: not asked for
  std::vector<uint32_t> held_inputs_;  // held by a second handle while the plan runs without the GIL
};

}  // namespace

std::vector<uint32_t> copied_inputs(const runtime::CallPlan& plan) {
  std::vector<bool> copied(plan.input_count, false);
  const auto mark = [&](runtime::BufferId b) {
    if (b != runtime::kNoBuffer && plan.buffers[b].storage == runtime::Storage::kInput)
      copied[plan.buffers[b].index] = true;
  };
  for (const runtime::Step& step : plan.steps) {
    if (const auto* view = std::get_if<runtime::ViewStep>(&step)) mark(view->base);
    const auto* call = std::get_if<runtime::ExternStep>(&step);
    if (!call) continue;
    for (const runtime::PlanArg& arg : call->args) {
      if (const auto* one = std::get_if<runtime::BufferId>(&arg.payload)) mark(*one);
      if (const auto* several = std::get_if<std::vector<runtime::BufferId>>(&arg.payload))
        std::for_each(several->begin(), several->end(), mark);
    }
  }
  for (const auto& [input, buffer] : plan.updates) copied[input] = true, mark(buffer);
  for (const runtime::Output& output : plan.outputs)
    output.kind == runtime::Output::kInput ? void(copied[output.index] = true) : mark(output.index);
  std::vector<uint32_t> inputs;
  for (uint32_t i = 0; i < plan.input_count; ++i)
    if (copied[i]) inputs.push_back(i);
  return inputs;
}

bool is_out_of_memory(const std::exception& e) {
  if (dynamic_cast<const std::bad_alloc*>(&e) != nullptr) return true;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&e) != nullptr) return true;
  return graph::has_torch_text(graph::TorchText::no_memory, e.what());
}

at::Tensor input_tensor(PyObject* input) {
  return PyFloat_CheckExact(input) ? at::scalar_tensor(PyFloat_AS_DOUBLE(input), at::kDouble)
                                   : at::Tensor(THPVariable_Unpack(input));
}

std::unique_ptr<CompiledCall> planned_call(const graph::CompiledGraph& compiled, const RecordedValues& values,
                                           Deriving deriving, const OutputSet& outputs) {
  return std::make_unique<PlannedCall>(compiled, values, deriving, outputs);
}

}  // namespace framejit::frame_hook
