// runtime/aten/plan_program.h — what is the same in all calls of a plan: resolved operators, shapes, and which steps
// torch must see.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "runtime/aten/extern_call.h"
#include "runtime/executable.h"

namespace framejit::runtime {

c10::Device torch_device(DeviceId id);

struct PlanProgram {
  struct Shape {                                 // of a buffer
    bool constant = false;
    std::vector<int64_t> sizes, strides;         // if constant
    c10::ScalarType dtype;
    c10::Device device;
  };

  // `bound` is a plan of the executable.
  PlanProgram(std::shared_ptr<const BoundExecutable> executable, const BoundPlan& bound,
              std::vector<at::Tensor> constants, const std::vector<c10::IValue>& opaque);

  // Whether an update needs no copy after the steps: its value is the input itself.
  bool is_in_place(uint32_t input, BufferId buffer) const;

  std::shared_ptr<const BoundExecutable> executable;
  const BoundPlan& bound;
  const CallPlan* plan;
  std::vector<at::Tensor> constants;
  std::vector<Shape> shapes;
  std::vector<std::optional<ExternCall>> calls;  // per step
  std::vector<bool> leaves;                      // per buffer: returned, or the base of a returned view
  std::vector<bool> tracked;                     // per step: an extern call that writes, or whose view is returned
  std::vector<bool> copy_before_update;          // per update: its value may show an input that is written
  std::vector<uint32_t> written_inputs;          // the ones that steps write in place
  std::vector<c10::Device> arena_devices;        // per block
  std::vector<at::Generator> generators;         // that its steps draw from

 private:
  void find_tracked_steps();
  void find_updates_to_copy();
  void find_generators();
};

}  // namespace framejit::runtime
