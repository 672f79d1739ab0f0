// frame_hook/aten/plan_timer.h — times executables of a recorded graph on the tensors that it was recorded with.
//
// Runs like the call itself: without the GIL, on torch's threads, under the modes of this thread. Results are dropped,
// inputs only read. What an operator warns of is dropped as well: it warns again when the program runs.
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
  // `loader` is that of the executables. The symbols' hints are this call's sizes.
  CallTimer(const RecordedValues& values, const graph::ShapeEnv& shapes, runtime::KernelLoader& loader);

  Result<double> seconds(const std::shared_ptr<const runtime::Executable>& executable, double most) override;

 private:
  struct Input {
    at::Tensor alias;  // its sizes and strides cannot be changed by other threads
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
