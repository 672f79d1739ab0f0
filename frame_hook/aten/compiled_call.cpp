// frame_hook/aten/compiled_call.cpp — the call that wraps a plan for Python.
#include "frame_hook/aten/compiled_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <deque>
#include <optional>

#include "guards/running_compile.h"
#include "runtime/arena.h"
#include "runtime/aten/plan_runner.h"

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
  PlannedCall(const graph::CompiledGraph& compiled, const RecordedValues& values) : runner_(compiled.executable, values.constants, values.opaques) {
    output_count = runner_.plan().outputs.size();
    op_count = compiled.functional.nodes.size();
    kernel_count = compiled.executable->executable().kernels.size();
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

}  // namespace

at::Tensor input_tensor(PyObject* input) {
  return PyFloat_CheckExact(input) ? at::scalar_tensor(PyFloat_AS_DOUBLE(input), at::kDouble) : at::Tensor(THPVariable_Unpack(input));
}

std::unique_ptr<CompiledCall> planned_call(const graph::CompiledGraph& compiled, const RecordedValues& values) {
  return std::make_unique<PlannedCall>(compiled, values);
}

}  // namespace framejit::frame_hook
