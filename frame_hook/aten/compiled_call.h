// frame_hook/aten/compiled_call.h — from a finished recording to something that runs on Python tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "frame_hook/aten/captured_calls.h"
#include "frame_hook/trace/tensor_frontend.h"
#include "graph/graph.h"

namespace framejit::frame_hook {

// What a call hands over as an input: a tensor, or the float that Recording::add_float stands for.
at::Tensor input_tensor(PyObject* input);

struct RecordedGraph {
  const graph::Graph& graph;
  const std::vector<at::Tensor>& constants;
  const std::vector<c10::IValue>& opaques;
  const std::vector<at::Tensor>& example_inputs;
  const CapturedCalls& calls;
};

// Passes, backend, plan. What the passes took for granted about sizes becomes a fact of `shapes`, to be guarded. With a user's backend
// that raises, the Python error is set and an Error returned.
Result<std::unique_ptr<CompiledCall>> compile_graph(const RecordedGraph& recorded, graph::ShapeEnv& shapes, const CompileRequest& request);

}  // namespace framejit::frame_hook
