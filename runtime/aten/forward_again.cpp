#include "runtime/aten/forward_again.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/alias_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/aten/backward.h"

namespace framejit::runtime {
namespace {

using torch::autograd::variable_list;

// Lets no gradient through until it is opened.
class Gate final : public torch::autograd::FunctionPreHook {
 public:
  explicit Gate(std::shared_ptr<const bool> is_open) : is_open_(std::move(is_open)) {}
  variable_list operator()(const variable_list& gradients) override {
    return *is_open_ ? gradients : variable_list(gradients.size());
  }

 private:
  std::shared_ptr<const bool> is_open_;
};

class Rerun {
 public:
  Rerun(const ForwardAgain& forward, const BackwardLayout& layout, const int64_t* symbols)
      : forward_(forward), layout_(layout), symbols_(symbols) {}

  // Runs the forward again. Its outputs are each root, then, for roots with their own gradient, the aliases that later
  // ops read.
  void run(std::vector<at::Tensor> inputs, const std::vector<GeneratorState>& drawn) {
    inputs_ = std::move(inputs);
    const c10::impl::ExcludeDispatchKeyGuard casts_are_recorded(c10::autocast_dispatch_keyset);
    // The forward ran outside vmap, which refuses to draw random numbers.
    const c10::impl::ExcludeDispatchKeyGuard outside_of_vmap(c10::DispatchKey::VmapMode);
    if (forward_.constants) {
      const c10::AutoGradMode no_history(false);
      variable_list constants =
          outputs_of(*forward_.constants, drawn, [&](const auto& runner, auto... args) { return runner.run(args...); });
      for (at::Tensor& constant : constants) inputs_.push_back(constant.detach());
    }
    const c10::AutoGradMode with_history(true);
    // Inputs become aliases, so that no input's history leads to another input of the rerun.
    for (const BackwardLayout::Gradient& gradient : layout_.gradients)
      if (at::Tensor* input = gradient.is_of_root ? nullptr : &inputs_[gradient.index]; input && input->defined())
        *input = at::_ops::alias::call(*input);
    roots_ = outputs_of(*forward_.roots, drawn,
                        [&](const auto& runner, auto... args) { return runner.run_under_autograd(args...); });
  }

  // Writes the contents of the lost values. The tensors that nodes have kept are other handles to the same memory.
  void fill_in(const std::vector<at::Tensor>& lost) {
    const at::AutoDispatchBelowADInplaceOrView below;
    for (size_t i = 0; i < lost.size(); ++i) {
      at::Tensor memory = roots_[roots_.size() - lost.size() + i], contents = lost[i];
      for (int64_t d = 0; d < memory.dim(); ++d) {  // writes an expanded dimension once
        if (memory.stride(d) != 0 || memory.size(d) <= 1) continue;
        memory = memory.narrow(d, 0, 1);
        contents = contents.narrow(d, 0, 1);
      }
      c10::VariableVersion counter = memory.unsafeGetTensorImpl()->version_counter();
      const int64_t version = counter.current_version();
      memory.copy_(contents);
      counter.set_version(version);
    }
  }

  // Gives inputs other data, as the program did after the forward.
  void give_other_data(const std::vector<at::Tensor>& others) {
    for (size_t i = 0; i < others.size(); ++i)
      if (others[i].defined() && inputs_[i].defined()) inputs_[i].set_data(others[i]);
  }

  variable_list gradients(const variable_list& tangents, const std::vector<bool>& wanted, bool creates_graph,
                          bool is_last) {
    torch::autograd::edge_list from, to;
    variable_list given;
    for (size_t r = 0; r < layout_.roots.size(); ++r) {
      if (!tangents[r].defined() || !roots_[r].requires_grad()) continue;
      from.push_back(torch::autograd::impl::gradient_edge(roots_[r]));
      given.push_back(tangents[r]);
    }
    std::vector<size_t> asked;
    const auto is_open = std::make_shared<bool>(false);
    for (size_t g = 0; g < layout_.gradients.size(); ++g) {
      const auto [is_of_root, index] = layout_.gradients[g];
      const at::Tensor& target = is_of_root ? roots_[alias_of(index)] : inputs_[index];
      if (!target.defined() || !target.requires_grad()) continue;
      if (is_of_root) target.grad_fn()->add_pre_hook(std::make_unique<Gate>(is_open));
      if (!wanted[g]) continue;
      to.push_back(torch::autograd::impl::gradient_edge(target));
      asked.push_back(g);
    }
    variable_list results(layout_.gradients.size());
    if (from.empty() || to.empty()) return results;
    variable_list made = torch::autograd::Engine::get_default_engine().execute(
        from, given, /*keep_graph=*/creates_graph && !is_last, creates_graph, /*accumulate_grad=*/false, to);
    for (size_t i = 0; i < asked.size(); ++i) results[asked[i]] = std::move(made[i]);
    *is_open = true;
    return results;
  }

 private:
  // Which output of the rerun is read in place of a root.
  size_t alias_of(uint32_t root) const {
    size_t at = layout_.roots.size();
    for (uint32_t r = 0; r < root; ++r)
      at += std::any_of(layout_.gradients.begin(), layout_.gradients.end(),
                        [r](const BackwardLayout::Gradient& g) { return g.is_of_root && g.index == r; });
    return at;
  }

  template <class Run>
  variable_list outputs_of(const PlanRunner& runner, const std::vector<GeneratorState>& drawn, Run&& run) const {
    std::vector<const at::Tensor*> pointers;
    for (const at::Tensor& input : inputs_) pointers.push_back(&input);
    variable_list outputs(runner.plan().outputs.size());
    const SameDraws draws(drawn);
    const Result<void> done = run(runner, pointers.data(), symbols_, outputs.data());
    if (!done.ok()) throw std::runtime_error(done.error().message);
    for (size_t i = 0; i < outputs.size(); ++i)
      if (const Output& output = runner.plan().outputs[i]; output.kind == Output::kInput)
        outputs[i] = inputs_[output.index];
    return outputs;
  }

  const ForwardAgain& forward_;
  const BackwardLayout& layout_;
  const int64_t* symbols_;
  variable_list inputs_, roots_;
};

}  // namespace

std::vector<at::Tensor> backward_of_forward_again(
    const ForwardAgain& forward, const BackwardLayout& layout, std::vector<at::Tensor> inputs, const int64_t* symbols,
    const std::vector<at::Tensor>& tangents, const std::vector<bool>& wanted, const std::vector<GeneratorState>& drawn,
    const std::vector<at::Tensor>& lost, const std::vector<at::Tensor>& others, bool creates_graph, bool is_last) {
  Rerun rerun(forward, layout, symbols);
  rerun.run(std::move(inputs), drawn);
  rerun.fill_in(lost);
  rerun.give_other_data(others);
  return rerun.gradients(tangents, wanted, creates_graph, is_last);
}

}  // namespace framejit::runtime
