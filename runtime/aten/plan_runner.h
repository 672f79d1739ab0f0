// runtime/aten/plan_runner.h — a plan of a bound executable over torch tensors.
//
// Extern calls go through the dispatcher below autograd and autocast, under the modes of the thread (guards ensure
// that they are those of the capture). Steps that write, and steps that make views for outputs, run where torch keeps
// version counters and view bookkeeping, so that the caller sees eager's `_version`, `_base` and `_is_view()`. Writes
// to inputs come last.
// A runner is immutable: any number of threads may run it, with or without the GIL. State of a call lies in a
// per-thread pool.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "runtime/executable.h"

namespace framejit::runtime {

struct PlanProgram;

struct ValuesBetweenPlans {
  const std::vector<at::Tensor>* derived = nullptr;
  std::vector<at::Tensor> saved = {};
  // A backward may write over saved values that no one else holds. False if hooks of the program may have made them.
  bool may_overwrite = false;
};

class PlanRunner {
 public:
  // The executable's forward. constants, opaque: by the plan's constant and opaque slots. Throws InternalError for an
  // operator that does not exist.
  PlanRunner(std::shared_ptr<const BoundExecutable> executable, std::vector<at::Tensor> constants,
             std::vector<c10::IValue> opaque = {});
  // Another of its plans.
  PlanRunner(std::shared_ptr<const BoundExecutable> executable, const BoundPlan& plan,
             std::vector<at::Tensor> constants, std::vector<c10::IValue> opaque = {});
  ~PlanRunner();
  PlanRunner(PlanRunner&&) noexcept;

  // inputs: pointers to plan().input_count tensors, which the caller keeps alive.
  // outputs: plan().outputs.size() tensors, overwritten. A failed check is an Error, what an operator throws passes
  // through; in both cases no input was written.
  // `between` holds the executable's derived and saved values; a forward that saves fills `saved`. Null: there are
  // none.
  Result<void> run(const at::Tensor* const* inputs, const int64_t* symbols, at::Tensor* outputs,
                   ValuesBetweenPlans* between = nullptr) const;
  // The same for a plan of operators alone, which autograd records.
  Result<void> run_under_autograd(const at::Tensor* const* inputs, const int64_t* symbols, at::Tensor* outputs) const;
  // Enqueues the same under a capture of a GPU's stream: nothing runs, and the owner of the capture handles generators.
  Result<void> record(const at::Tensor* const* inputs, const int64_t* symbols, at::Tensor* outputs,
                      ValuesBetweenPlans* between) const;
  const CallPlan& plan() const;
  const PlanProgram& program() const { return *program_; }
  // Runs the steps and drops their results: nothing is written to an input. Returns the seconds that it took; infinity
  // if it gave up, because an operator would have begun more than `most` seconds after the start.
  Result<double> seconds(const at::Tensor* const* inputs, const int64_t* symbols, double most) const;

 private:
  class Call;
  std::unique_ptr<PlanProgram> program_;
};

}  // namespace framejit::runtime
