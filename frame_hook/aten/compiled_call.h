// frame_hook/aten/compiled_call.h — a compiled graph as something that runs on Python tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "frame_hook/trace/tensor_frontend.h"

namespace framejit::frame_hook {

// What a call hands over as an input: a tensor, or the float that Recording::add_float stands for.
at::Tensor input_tensor(PyObject* input);

// The values of a recording whose numbers are in its graph.
struct RecordedValues {
  const std::vector<at::Tensor>& constants;
  const std::vector<c10::IValue>& opaques;
  const std::vector<at::Tensor>& example_inputs;
};

std::unique_ptr<CompiledCall> planned_call(const graph::CompiledGraph& compiled, const RecordedValues& values);

}  // namespace framejit::frame_hook
