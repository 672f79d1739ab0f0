// frame_hook/aten/inner_gradients.cpp — backward() and grad() that the traced program calls, and the leaves that it
// makes.
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <set>

#include "frame_hook/aten/recording.h"
#include "frame_hook/aten/torch_modes.h"
#include "graph/node_values.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/running_compile.h"
#include "runtime/aten/inner_backward.h"

namespace framejit::frame_hook {

void TorchRecording::set_line(const graph::Line& line, const std::string& way) {
  line_ = line;
  line_.checkpoint = open_checkpoints_.empty() ? 0 : checkpoints_;
  way_ = way;
  recorder_->set_line(line_, way_);
}

// Only the outermost of nested checkpoints counts: it recomputes everything inside.
void TorchRecording::begin_checkpoint() {
  if (open_checkpoints_.empty()) ++checkpoints_;
  open_checkpoints_.emplace_back(recorder_->graph().nodes.size(), recorder_->graph().values.size());
  set_line(line_, way_);
}

bool TorchRecording::end_checkpoint() {
  const auto [first_node, first_value] = open_checkpoints_.back();
  open_checkpoints_.pop_back();
  set_line(line_, way_);
  const graph::Graph& g = recorder_->graph();
  std::set<uint32_t> before, written;
  for (size_t v = 0; v < g.values.size(); ++v)
    if (v < first_value || g.values[v].node < 0) before.insert(g.values[v].storage);
  for (size_t n = first_node; n < g.nodes.size(); ++n)
    for (int8_t i : g.nodes[n].op->write_args)
      graph::for_each_value(g.nodes[n].args[static_cast<size_t>(i)], [&](graph::ValueId v) {
        if (v != graph::kNoValue) written.insert(g.values[graph::index_of(v)].storage);
      });
  return std::none_of(written.begin(), written.end(), [&](uint32_t storage) { return before.contains(storage); });
}

bool TorchRecording::make_leaf(PyObject* object) { return make_leaf(THPVariable_Unpack(object)); }

bool TorchRecording::make_leaf(const at::Tensor& tensor) {
  const graph::TracedTensorImpl* traced = graph::as_traced(tensor);
  if (traced == nullptr || traced->input >= 0 || tensor.grad_fn() != nullptr || tensor.is_inference() ||
      !at::isFloatingType(tensor.scalar_type()))
    return false;
  joint_.add_leaf(tensor);
  return true;
}

// torch's engine must run without the GIL. That is safe: no other thread has the traced tensors. Whatever it raises,
// plain Python raises again.
bool TorchRecording::find_gradients(const GradientCall& call, graph::InnerGradients& found) {
  const auto unpacked = [](const std::vector<PyObject*>& objects) {
    std::vector<at::Tensor> tensors;
    for (PyObject* object : objects) tensors.push_back(THPVariable_Unpack(object));
    return tensors;
  };
  const graph::InnerBackward asked{unpacked(call.outputs), unpacked(call.given), unpacked(call.wanted),
                                   call.accumulates,       call.keeps_graph,     call.creates_graph};
  try {
    const WithoutGil released;
    found = joint_.gradients(asked);
    return true;
  } catch (const std::exception& e) {
    const auto failure = recorder_->take_break();
    drop_error();
    refuse(failure ? failure->reason : Reason::gradient_call, failure ? failure->message : "a backward that raises,");
    return false;
  }
}

// The history of an input may lead to the tensor whose gradient is wanted. The recording cannot see that, so each call
// checks that it does not.
bool TorchRecording::keep_apart(const GradientCall& call) {
  std::vector<at::Tensor> outputs;
  for (PyObject* output : call.outputs) outputs.push_back(THPVariable_Unpack(output));
  for (size_t from : joint_.inputs_reached(outputs, /*with_history=*/true))
    for (PyObject* wanted : call.wanted) {
      const graph::TracedTensorImpl* traced = graph::as_traced(THPVariable_Unpack(wanted));
      const size_t to = traced != nullptr && traced->input >= 0 ? static_cast<size_t>(traced->input) : from;
      if (to == from) continue;
      if (runtime::leads_to(inputs_[from], inputs_[to])) return false;
      if (std::find(apart_.begin(), apart_.end(), std::pair(from, to)) == apart_.end()) apart_.emplace_back(from, to);
    }
  return true;
}

// If a gradient begins or ends at an input, the input's hooks would run.
bool TorchRecording::must_stay_unhooked(const at::Tensor& tensor) {
  const graph::TracedTensorImpl* traced = graph::as_traced(tensor);
  if (traced == nullptr || traced->input < 0) return true;
  const auto input = static_cast<size_t>(traced->input);
  if (runtime::is_watched(inputs_[input]))
    return refuse(Reason::gradient_call, "a backward to a tensor with hooks"), false;
  if (std::find(unhooked_.begin(), unhooked_.end(), input) == unhooked_.end()) unhooked_.push_back(input);
  return true;
}

bool TorchRecording::gradients(const GradientCall& call, std::vector<TracedGradient>& found) {
  if (const auto mode = unsupported_mode()) return refuse(Reason::modes_unsupported, *mode), false;
  if (!open_functions_.empty())
    return refuse(Reason::gradient_call, "a backward inside of the backward() of an autograd.Function"), false;
  if (!keep_apart(call))
    return refuse(Reason::gradient_call, "a gradient through a history that began before the traced code"), false;
  graph::InnerGradients inner;
  if (!find_gradients(call, inner)) return false;
  for (PyObject* output : call.outputs)
    if (!must_stay_unhooked(THPVariable_Unpack(output))) return false;
  for (size_t i = 0; i < inner.of.size(); ++i) {
    if (!must_stay_unhooked(inner.of[i])) return false;
    found.push_back({PyRef::steal(THPVariable_Wrap(inner.of[i])),
                     inner.gradients[i].defined() ? PyRef::steal(THPVariable_Wrap(inner.gradients[i])) : PyRef()});
  }
  return true;
}

// After the program's own backward, outputs whose history it freed must raise eager's error.
Result<void> TorchRecording::settle_histories() {
  for (const at::Tensor& tensor : outputs_.tensors)
    if (joint_.is_added_leaf(tensor))
      return Error{Reason::gradient_call, "a leaf that was made here and is used outside"};
  if (!joint_.has_freed()) return {};
  const std::vector<bool> roots = outputs_.roots();
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i]) continue;
    const WithoutGil released;
    if (!joint_.is_freed(outputs_.tensors[i])) continue;
    if (outputs_.properties[i].is_input)
      return Error{Reason::no_backward, "the history of a written input has been freed"};
    outputs_.properties[i].freed = joint_.name_of_history(outputs_.tensors[i]);
    outputs_.properties[i].freed_inputs = joint_.inputs_reached({outputs_.tensors[i]}, /*with_history=*/false);
  }
  return {};
}

void TorchRecording::find_views_on_the_way() {
  const graph::RecordScope scope(*recorder_);
  const graph::ForwardScope views_by_op;
  const std::vector<bool> met = joint_.views_on_the_way(outputs_.tensors, outputs_.roots(), outputs_.views());
  for (size_t i = 0; i < met.size(); ++i) outputs_.properties[i].own_history = met[i];
}

}  // namespace framejit::frame_hook
