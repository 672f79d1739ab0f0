#include "runtime/aten/inner_backward.h"

#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <stdexcept>
#include <vector>

#include "runtime/aten/history_walk.h"
#include "runtime/aten/torch_version.h"

namespace framejit::runtime {
namespace {

class FreedHistory final : public torch::autograd::Node {
 public:
  void set_name(const std::string& name) { name_ = name; }
  std::string name() const override { return name_; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
  }

 private:
  std::string name_;
};

}  // namespace

bool has_hooks(torch::autograd::Node& node) {
  return !node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() || !node.post_hooks().empty() ||
         !node.retains_grad_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

bool is_watched(const at::Tensor& tensor) {
  namespace impl = torch::autograd::impl;
  if (!tensor.requires_grad()) return false;
  if (!impl::hooks(tensor).empty() || impl::post_acc_grad_hooks(tensor) != nullptr) return true;
  const auto node = tensor.is_leaf() ? impl::try_get_grad_accumulator(tensor) : tensor.grad_fn();
  return node != nullptr && has_hooks(*node);
}

bool leads_to(const at::Tensor& from, const at::Tensor& to) {
  if (!from.requires_grad() || !to.requires_grad() || from.is_leaf()) return false;
  const torch::autograd::Edge end = torch::autograd::impl::gradient_edge(to);
  bool leads = false;
  walk_history(from.grad_fn().get(), [&](const torch::autograd::Edge& edge) {
    leads = leads || edge == end;
    return !leads;
  });
  return leads;
}

void give_freed_history(at::Tensor& output, const std::string& name, const std::vector<at::Tensor>& inputs) {
  auto node = make_autograd_node<FreedHistory>();
  node->set_name(name);
  for (const at::Tensor& input : inputs) node->add_next_edge(torch::autograd::impl::gradient_edge(input));
  const uint32_t slot = node->add_input_metadata(output);
  torch::autograd::impl::set_gradient_edge(output, {node, slot});
}

}  // namespace framejit::runtime
