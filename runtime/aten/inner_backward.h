// runtime/aten/inner_backward.h — a backward inside a compiled plan: its conditions on the tensors outside, and the
// history that it leaves there.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <string>
#include <vector>

namespace framejit::runtime {

bool has_hooks(torch::autograd::Node& node);

// Whether hooks would run when a gradient reaches the tensor: its own, those of its node, retain_grad().
bool is_watched(const at::Tensor& tensor);

// Whether a backward of `from` would give `to`, a different tensor, a gradient.
bool leads_to(const at::Tensor& from, const at::Tensor& to);

// Gives an output a history whose backward has run: a second one that reaches one of `inputs` raises eager's error.
// name: of eager's node.
void give_freed_history(at::Tensor& output, const std::string& name, const std::vector<at::Tensor>& inputs);

}  // namespace framejit::runtime
