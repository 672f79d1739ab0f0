// frame_hook/aten/output_facts.h — what the program left on its outputs and a plan, which computes values under the modes of the
// segment's entry, would not: whether a tensor was made in inference mode, under which mode a view was made, and that a view of
// everything, or a detached tensor, is a tensor of its own.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <vector>

#include "frame_hook/trace/tensor_frontend.h"

namespace framejit::frame_hook {

struct OutputFacts {
  bool inference = false;
  bool view = false;                                                  // with bookkeeping: it has a _base
  bool own_object = false;                                            // shares memory, and may look like what it shares it with
  torch::autograd::CreationMeta creation = torch::autograd::CreationMeta::DEFAULT;  // of a view
};

std::vector<OutputFacts> facts_of_outputs(const std::vector<at::Tensor>& traced);
// `call` itself where the modes of this moment, those of the entry, give the outputs these facts anyway.
std::unique_ptr<CompiledCall> with_output_facts(std::unique_ptr<CompiledCall> call, std::vector<OutputFacts> facts, size_t inputs);

}  // namespace framejit::frame_hook
