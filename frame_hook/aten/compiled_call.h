// frame_hook/aten/compiled_call.h — a compiled graph as something that runs on Python tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "frame_hook/aten/output_properties.h"
#include "frame_hook/trace/torch/tensor_frontend.h"

namespace framejit::frame_hook {

// What a call hands over as an input: a tensor, or the float that Recording::add_float stands for.
at::Tensor input_tensor(PyObject* input);

// Values of a recording that its graph refers to by number.
struct RecordedValues {
  const std::vector<at::Tensor>& constants;
  const std::vector<c10::IValue>& opaques;
  const std::vector<at::Tensor>& example_inputs;
};

// Inputs to which a run of the plan makes second handles. For a tensor that Python holds, torch takes the GIL to make
// one. If the interpreter ends at that moment, the process would abort.
std::vector<uint32_t> copied_inputs(const runtime::CallPlan& plan);

// Whether an allocator threw this, the system's or torch's.
bool is_out_of_memory(const std::exception& e);

std::unique_ptr<CompiledCall> planned_call(const graph::CompiledGraph& compiled, const RecordedValues& values,
                                           Deriving deriving, const OutputSet& outputs);

}  // namespace framejit::frame_hook
