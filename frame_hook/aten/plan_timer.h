// frame_hook/aten/plan_timer.h — times executables of a recorded graph on the tensors that it was recorded with.
//
// Runs like the call itself: without the GIL, on torch's threads, under the modes of this thread. Results are dropped,
// inputs are only read. Warnings of operators are dropped too: they come again when the program runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "frame_hook/aten/compiled_call.h"
#include "graph/backend.h"
#include "runtime/aten/plan_runner.h"

namespace framejit::frame_hook {

class CallTimer final : public graph::PlanTimer {
 public:
  // `loader` must be the one that loads these executables. The hints of the symbols are the sizes of this call.
  CallTimer(const RecordedValues& values, const graph::ShapeEnv& shapes, runtime::KernelLoader& loader);

  Result<double> seconds(const std::shared_ptr<const runtime::Executable>& executable, double most) override;

 private:
  struct Input {
    at::Tensor alias;  // other threads cannot change its sizes and strides
    const void* data;
    size_t bytes;
  };
  bool are_unchanged() const;
  Result<const runtime::PlanRunner*> runner_of(const std::shared_ptr<const runtime::Executable>& executable);

  const RecordedValues values_;
  std::vector<Input> inputs_;
  std::vector<int64_t> symbols_;
  runtime::KernelLoader& loader_;
  std::map<const runtime::Executable*, runtime::PlanRunner> runners_;
};

}  // namespace framejit::frame_hook
