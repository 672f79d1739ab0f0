// graph/aten/user_function.h — the autograd node of a torch.autograd.Function whose backward() has been traced.
//
// The ops of the backward are recorded once, right after the forward, over stand-ins for the gradients; nothing reads
// them there. When torch's engine comes to the node, it repeats them with the real gradients in place of the stand-ins.
// So the backward runs where eager's runs, and the same gradients are undefined.
// In a recording, a UserFunction takes three steps: its outputs get their history (wrap), the tracer traces backward()
// over the stand-ins, and take_backward() takes over what was recorded meanwhile.
#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/aten/recorder.h"
#include "graph/joint.h"
#include "runtime/base/result.h"

namespace framejit::graph {

// What is known of a forward() after it has run; its tensors are traced.
struct FunctionForward {
  std::string name;  // of the node
  std::vector<at::Tensor> inputs;
  std::vector<std::optional<at::Tensor>> outputs;  // nullopt: not a tensor
  std::vector<at::Tensor> saved, dirty, not_differentiable;
  bool makes_zeros = true;  // a gradient that is not defined becomes zeros
  bool saves_after = false;  // setup_context() has saved the tensors, and sees the outputs
  size_t first_node = 0, first_value = 0;  // of the recorded forward
};

class UserFunction final : public torch::autograd::Node {
 public:
  using Tensors = std::vector<std::optional<at::Tensor>>;

  // Call wrap() once, inside a RecordScope and a ForwardScope, with grad mode. It returns the outputs with their
  // history, and throws what torch throws.
  Tensors wrap(const std::shared_ptr<Recorder>& recorder, const FunctionForward& forward);
  // One per output: the tensor that backward() gets as its gradient while it is traced. Without one, it gets None.
  const Tensors& stand_ins() const { return stand_ins_; }
  // The ops that were recorded since wrap() are the backward, and give these gradients, one per input (undefined:
  // None). `numbers`: what else the backward may read. Returns an error text if the backward cannot be repeated later.
  std::optional<std::string> take_backward(const FunctionForward& forward, const std::vector<at::Tensor>& gradients,
                                           const std::vector<at::Tensor>& numbers);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return name_; }
  void release_variables() override;

  // Whether the gradients are linear in those of the outputs, so that several runs may add up.
  bool is_linear() const { return is_linear_; }
  // Whether undefined gradients of some outputs give another result than zeros.
  bool tells_outputs_apart() const { return differentiable_ > 1 && !(is_linear_ && makes_zeros_); }
  bool has_own_gradients() const { return has_own_gradients_; }  // that do not depend on those of the outputs

 private:
  at::Tensor as_stand_in(const at::Tensor& gradient, const at::Tensor& stand_in) const;
  void add_stand_in(const std::optional<at::Tensor>& output);

  std::shared_ptr<Recorder> recorder_;
  std::string name_;
  bool makes_zeros_ = true, is_linear_ = false, has_own_gradients_ = false;
  size_t differentiable_ = 0;  // outputs
  std::vector<torch::autograd::SavedVariable> saved_;
  Tensors stand_ins_;
  size_t first_node_ = 0, end_node_ = 0;  // of the backward
  std::vector<at::Tensor> gradients_;  // as they were traced
};

// The functions to which the roots of a joint graph lead.
class ReachedFunctions {
 public:
  void note(uint32_t root, const torch::autograd::Node& node);
  bool any() const { return !roots_of_.empty(); }
  // An error: the recording is wrong for a backward from only some of the roots.
  Result<void> verify(const JointLayout& layout) const;

 private:
  std::map<const UserFunction*, std::vector<uint32_t>> roots_of_;
};

}  // namespace framejit::graph
