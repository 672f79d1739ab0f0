// frame_hook/aten/user_functions.cpp — calls of torch.autograd.Function that record a gradient.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include "frame_hook/aten/recording.h"
#include "frame_hook/aten/torch_modes.h"
#include "guards/cpython/interrupts.h"
#include "runtime/aten/torch_version.h"
#include "runtime/aten/torch_words.h"

namespace framejit::frame_hook {
namespace {

std::vector<at::Tensor> unpacked(const std::vector<PyObject*>& objects) {
  std::vector<at::Tensor> tensors;
  for (PyObject* object : objects) tensors.push_back(object ? THPVariable_Unpack(object) : at::Tensor());
  return tensors;
}

std::vector<PyRef> wrapped(const graph::UserFunction::Tensors& tensors) {
  std::vector<PyRef> objects;
  for (const auto& tensor : tensors) objects.push_back(tensor ? PyRef::steal(THPVariable_Wrap(*tensor)) : PyRef());
  return objects;
}

graph::FunctionForward forward_of(const FunctionCall& call) {
  graph::FunctionForward forward;
  forward.name = call.name;
  forward.inputs = unpacked(call.inputs);
  for (PyObject* output : call.outputs)
    forward.outputs.push_back(output ? std::optional(THPVariable_Unpack(output)) : std::nullopt);
  forward.saved = unpacked(call.saved);
  forward.dirty = unpacked(call.dirty);
  forward.not_differentiable = unpacked(call.not_differentiable);
  forward.makes_zeros = call.makes_zeros;
  forward.saves_after = call.saves_after;
  forward.first_node = call.first_op;
  forward.first_value = call.first_value;
  return forward;
}

}  // namespace

bool TorchRecording::begin_function(const FunctionCall& call, TracedFunction& traced) {
  if (const auto mode = unsupported_mode()) return refuse(Reason::modes_unsupported, *mode), false;
  graph::RecordScope scope(*recorder_);
  const graph::ForwardScope views_by_op;
  try {
    graph::FunctionForward forward = forward_of(call);
    auto node = runtime::make_autograd_node<graph::UserFunction>();
    traced.outputs = wrapped(node->wrap(recorder_, forward));
    traced.gradients = wrapped(node->stand_ins());
    open_functions_.push_back({std::move(node), std::move(forward), inputs_.size() - floats_.size()});
  } catch (const std::exception& e) {
    const auto failure = recorder_->take_break();
    drop_error();
    refuse(failure ? failure->reason : Reason::custom_dispatch,
           failure ? failure->message
                   : "autograd.Function " + call.name + ", for which torch raises: " + runtime::torch_words(e) + ",");
    return false;
  }
  for (const auto device : {at::kCPU, at::kCUDA}) at::autocast::set_autocast_enabled(device, false);
  return true;
}

bool TorchRecording::end_function(const std::vector<PyObject*>& gradients) {
  const OpenFunction function = std::move(open_functions_.back());
  open_functions_.pop_back();
  auto& node = static_cast<graph::UserFunction&>(*function.node);
  std::vector<at::Tensor> floats;
  for (const size_t input : floats_) floats.push_back(traced_inputs_[input]);
  std::optional<std::string> problem;
  if (inputs_.size() - floats_.size() != function.tensor_inputs)
    problem = "reads a tensor from outside: use ctx.save_for_backward()";
  if (!problem) problem = node.take_backward(function.forward, unpacked(gradients), floats);
  if (problem)
    refuse(Reason::custom_dispatch,
           "autograd.Function " + function.forward.name + ", whose backward() " + *problem + ",");
  return !problem;
}

}  // namespace framejit::frame_hook
