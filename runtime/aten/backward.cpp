// runtime/aten/backward.cpp — see backward.h.
#include "runtime/aten/backward.h"

#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/resolve_conj.h>
#include <ATen/ops/resolve_neg.h>
#include <ATen/ops/zeros_ops.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/aten/own_tensor.h"
#include "runtime/aten/torch_version.h"

namespace framejit::runtime {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// The layout that the plan's tangents have: that of the output, where it is dense.
struct RootLayout {
  c10::SmallVector<int64_t, 5> sizes, strides;

  explicit RootLayout(const at::Tensor& output) : sizes(output.sizes()), strides(output.strides()) {
    if (output.is_non_overlapping_and_dense()) return;
    int64_t expected = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      strides[d] = expected;
      expected *= std::max<int64_t>(sizes[d], 1);
    }
  }
  bool fits(const at::Tensor& tensor) const {
    for (size_t d = 0; d < sizes.size(); ++d)
      if (tensor.stride(static_cast<int64_t>(d)) != strides[d] && sizes[d] > 1) return tensor.numel() == 0;
    return true;
  }
};

// An input that only a backward which is differentiated itself reads. What eager would not hold is not held here, but
// for numbers.
class OtherInput {
 public:
  explicit OtherInput(const at::Tensor& input)
      : weak_(input.getIntrusivePtr()), version_(input.is_inference() ? 0 : input._version()) {
    if (input.dim() == 0 && !input.requires_grad()) strong_ = input;
  }
  at::Tensor get(const std::string& name) const {
    const auto tensor = weak_.lock();
    if (!tensor)
      throw std::runtime_error("framejit: create_graph=True needs the input " + name +
                               " of the compiled forward, and it is gone; keep it until the backward has run");
    at::Tensor input(tensor);
    if (!input.is_inference() && input._version() != version_)
      throw std::runtime_error("framejit: create_graph=True needs the input " + name +
                               " of the compiled forward as it was, and it was written to in between");
    return input;
  }

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weak_;
  at::Tensor strong_;
  int64_t version_;
};

// The default generator stands where it stood before the forward, and goes back afterwards.
class SameDraws {
 public:
  explicit SameDraws(const at::Tensor& state) {
    if (!state.defined()) return;
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    now_ = generator.get_state();
    generator.set_state(state);
  }
  ~SameDraws() {
    if (!now_.defined()) return;
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(now_);
  }
  SameDraws(const SameDraws&) = delete;

 private:
  at::Tensor now_;
};

// Hands gradients on: the first to its input, the others to the next such node. So they arrive one after the other, in
// the order in which eager's would.
class Deliver final : public torch::autograd::Node {
 public:
  std::string name() const override { return "CompiledBackward"; }
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
};

bool is_watched(const torch::autograd::Edge& edge) {
  torch::autograd::Node& node = *edge.function;
  return !node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() || !node.post_hooks().empty() ||
         !node.retains_grad_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

class CompiledBackward final : public torch::autograd::Node {
 public:
  // Eager's name, where there is one output: errors about it and its text name the node.
  std::string name() const override {
    return plans_ && plans_->layout().names.size() == 1 ? plans_->layout().names[0] : "CompiledBackward";
  }

  void record(std::shared_ptr<BackwardPlans> plans, const at::Tensor* const* inputs, const int64_t* symbols,
              const std::vector<at::Tensor>& values, at::Tensor generator) {
    plans_ = std::move(plans);
    generator_ = std::move(generator);
    const BackwardLayout& layout = plans_->layout();
    is_released_.resize(layout.roots.size());
    symbols_.assign(symbols, symbols + layout.symbol_count);
    for (const BackwardLayout::Saved& saved : layout.saved)
      if (saved.of == BackwardLayout::Saved::kValue) saved_values_.emplace_back(values[saved.index], false);
    for (size_t i = 0, next = 0; i < layout.input_names.size(); ++i) {
      const bool is_kept = next < layout.kept_inputs.size() && layout.kept_inputs[next] == i;
      if (is_kept) kept_inputs_.emplace_back(*inputs[layout.kept_inputs[next++]], false);
      else others_.emplace_back(*inputs[i]);
    }
    std::vector<torch::autograd::Edge> edges;
    for (uint32_t i : layout.gradients) edges.push_back(torch::autograd::impl::gradient_edge(*inputs[i]));
    if (std::any_of(edges.begin(), edges.end(), is_watched)) chain(edges, inputs);
    for (torch::autograd::Edge& edge : edges) add_next_edge(std::move(edge));
  }

  // Of outputs that have their history: as outputs of this node they are no cycle of references.
  void keep_outputs(const at::Tensor* outputs) {
    for (uint32_t i : plans_->layout().kept_outputs) {
      const auto root = std::find(plans_->layout().roots.begin(), plans_->layout().roots.end(), i);
      kept_outputs_.emplace_back(outputs[i], root != plans_->layout().roots.end());
    }
  }
  void add_root(const at::Tensor& output) { roots_.emplace_back(output); }

  void will_release_variables() override { is_last_ = true; }

  // Of the roots whose gradients came in last. What others of them read stays.
  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const BackwardLayout& layout = plans_->layout();
    if (last_given_.empty()) last_given_.assign(layout.roots.size(), true);  // never run: its time is over
    for (size_t r = 0; r < layout.roots.size(); ++r) is_released_[r] = is_released_[r] || last_given_[r];
    last_given_.clear();
    for (size_t i = 0, next = 0; i < layout.saved.size(); ++i) {
      if (layout.saved[i].of != BackwardLayout::Saved::kValue) continue;
      if (!is_read_later(i)) saved_values_[next].reset_data();
      ++next;
    }
    if (std::find(is_released_.begin(), is_released_.end(), false) != is_released_.end()) return;
    kept_inputs_.clear();
    kept_outputs_.clear();
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const BackwardLayout& layout = plans_->layout();
    std::vector<bool> given, wanted;
    for (size_t i = 0; i < layout.roots.size(); ++i) given.push_back(gradients[i].defined());
    refuse_second(given);
    last_given_ = given;
    for (size_t i = 0; i < layout.gradients.size(); ++i) wanted.push_back(task_should_compute_output(i));
    variable_list results(layout.gradients.size());
    const auto is_true = [](bool b) { return b; };
    if (std::none_of(given.begin(), given.end(), is_true) || std::none_of(wanted.begin(), wanted.end(), is_true))
      return results;
    if (at::GradMode::is_enabled()) return apply_under_autograd(std::move(gradients));
    ValuesBetweenPlans between{nullptr, unpacked()};
    for (size_t i = 0; i < gradients.size(); ++i)
      if (given[i]) gradients[i] = laid_out(gradients[i], roots_[i]);
    const std::shared_ptr<const PlanRunner> runner = plans_->plan_for(given, wanted);
    std::vector<const at::Tensor*> inputs;
    for (const at::Tensor& gradient : gradients) inputs.push_back(&gradient);
    const Result<void> done = runner->run(inputs.data(), symbols_.data(), results.data(), &between);
    if (!done.ok()) throw std::runtime_error(done.error().message);
    backward_totals().runs += 1;
    return results;
  }

 private:
  // Each edge but the first leads through nodes that hand the gradients before it on.
  void chain(std::vector<torch::autograd::Edge>& edges, const at::Tensor* const* inputs) const {
    const std::vector<uint32_t>& gradients = plans_->layout().gradients;
    std::vector<torch::autograd::Edge> rest;  // of the nodes made so far, which are the later ones
    for (size_t k = edges.size(); k-- > 0;) {
      auto node = make_autograd_node<Deliver>();
      node->add_next_edge(edges[k]);
      for (torch::autograd::Edge& edge : rest) node->add_next_edge(std::move(edge));
      rest.clear();
      for (size_t i = k; i < edges.size(); ++i) rest.emplace_back(node, node->add_input_metadata(*inputs[gradients[i]]));
    }
    edges = std::move(rest);
  }

  void refuse_second(const std::vector<bool>& given) const {
    const BackwardLayout& layout = plans_->layout();
    for (size_t r = 0; r < given.size(); ++r)
      for (size_t s = 0; s < given.size(); ++s)
        if (given[r] && is_released_[s] && layout.conflicts[r * given.size() + s])
          throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
  }

  bool is_read_later(size_t saved) const {
    const std::vector<bool>& readers = plans_->layout().readers[saved];
    for (size_t r = 0; r < readers.size(); ++r)
      if (readers[r] && !is_released_[r]) return true;
    return false;
  }

  // What the plan reads. In the last backward the plan's handles are the only ones, so that each value goes after its
  // last use.
  std::vector<at::Tensor> unpacked() {
    const BackwardLayout& layout = plans_->layout();
    c10::SmallVector<at::Tensor, 16> inputs, outputs;
    for (const SavedVariable& kept : kept_inputs_) inputs.push_back(kept.unpack());
    for (const SavedVariable& kept : kept_outputs_) outputs.push_back(kept.unpack(getptr()));
    std::vector<at::Tensor> values;
    size_t next = 0;
    for (size_t i = 0; i < layout.saved.size(); ++i) {
      const BackwardLayout::Saved& saved = layout.saved[i];
      if (saved.of == BackwardLayout::Saved::kValue) {
        SavedVariable& value = saved_values_[next++];
        const std::vector<bool>& readers = layout.readers[i];
        bool is_read = false, is_read_later = false;
        for (size_t r = 0; r < readers.size(); ++r) {
          is_read = is_read || (readers[r] && last_given_[r]);
          is_read_later = is_read_later || (readers[r] && !last_given_[r] && !is_released_[r]);
        }
        values.push_back(is_read ? value.unpack() : at::Tensor());
        if (is_read && is_last_ && !is_read_later) value.reset_data();
      } else {
        const bool is_input = saved.of == BackwardLayout::Saved::kInput;
        const std::vector<uint32_t>& kept = is_input ? layout.kept_inputs : layout.kept_outputs;
        const size_t at = static_cast<size_t>(std::find(kept.begin(), kept.end(), saved.index) - kept.begin());
        values.push_back(is_input ? inputs[at] : outputs[at]);
      }
    }
    return values;
  }

  static at::Tensor laid_out(const at::Tensor& gradient, const RootLayout& layout) {
    at::Tensor plain = gradient;
    if (plain.layout() != at::kStrided) plain = plain.to_dense();
    if (plain.is_conj()) plain = plain.resolve_conj();
    if (plain.is_neg()) plain = plain.resolve_neg();
    if (layout.fits(plain)) return plain;
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor laid = at::_ops::empty_strided::call(c10::fromIntArrayRefSlow(layout.sizes),
                                                          c10::fromIntArrayRefSlow(layout.strides),
                                                          plain.scalar_type(), c10::kStrided, plain.device(), false);
    at::Tensor result = laid;
    at::_ops::copy_::call(result, plain, false);
    return result;
  }

  // Forward and backward once more, op by op, so that autograd records how the gradients come about.
  variable_list apply_under_autograd(variable_list&& gradients) {
    const BackwardLayout& layout = plans_->layout();
    std::vector<at::Tensor> inputs;
    for (size_t i = 0, kept = 0, other = 0; i < layout.input_names.size(); ++i) {
      const bool is_kept = kept < layout.kept_inputs.size() && layout.kept_inputs[kept] == i;
      inputs.push_back(is_kept ? kept_inputs_[kept++].unpack() : others_[other++].get(layout.input_names[i]));
    }
    for (size_t i = 0; i < gradients.size(); ++i)
      inputs.push_back(gradients[i].defined() ? gradients[i] : zeros(roots_[i], input_metadata(i)));
    std::vector<const at::Tensor*> pointers;
    for (const at::Tensor& input : inputs) pointers.push_back(&input);
    variable_list results(layout.gradients.size());
    const SameDraws draws(generator_);
    const Result<void> done = plans_->differentiable()->run_under_autograd(pointers.data(), symbols_.data(), results.data());
    if (!done.ok()) throw std::runtime_error(done.error().message);
    for (size_t i = 0; i < results.size(); ++i)
      if (!task_should_compute_output(i)) results[i].reset();
    return results;
  }

  static at::Tensor zeros(const RootLayout& layout, const torch::autograd::InputMetadata& metadata) {
    return at::_ops::zeros::call(c10::fromIntArrayRefSlow(layout.sizes), c10::typeMetaToScalarType(metadata.dtype()),
                                 c10::kStrided, metadata.device(), false);
  }

  std::shared_ptr<BackwardPlans> plans_;
  at::Tensor generator_;
  std::vector<int64_t> symbols_;
  std::vector<OtherInput> others_;  // inputs that eager would not hold
  std::vector<SavedVariable> saved_values_, kept_inputs_, kept_outputs_;
  std::vector<RootLayout> roots_;
  bool is_last_ = false;
  std::vector<bool> last_given_, is_released_;  // per root
};

}  // namespace

at::Tensor generator_state(const BackwardPlans& plans) {
  if (!plans.layout().draws) return {};
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void record_backward(std::shared_ptr<BackwardPlans> plans, const at::Tensor* const* inputs, const int64_t* symbols,
                     at::Tensor* outputs, std::vector<at::Tensor> values, at::Tensor generator) {
  const BackwardLayout& layout = plans->layout();
  auto node = make_autograd_node<CompiledBackward>();
  node->record(std::move(plans), inputs, symbols, values, std::move(generator));
  for (size_t i = 0; i < layout.roots.size(); ++i) {
    at::Tensor& output = outputs[layout.roots[i]];
    node->add_root(output);
    if (layout.written[i] >= 0) {
      torch::autograd::impl::rebase_history(output, {node, node->add_input_metadata(output)});
    } else {
      if (output.is_view()) output = own_tensor(output, false);
      if (layout.versions[i] >= 0) {
        c10::VariableVersion counter = output.unsafeGetTensorImpl()->version_counter();
        counter.set_version(layout.versions[i]);
      }
      torch::autograd::set_history(output, node);
    }
  }
  node->keep_outputs(outputs);
}

bool changes_history_of_view(const BackwardPlans& plans, const at::Tensor* const* inputs) {
  const std::vector<int64_t>& written = plans.layout().written;
  return std::any_of(written.begin(), written.end(), [&](int64_t i) { return i >= 0 && inputs[i]->is_view(); });
}

BackwardTotals& backward_totals() {
  static BackwardTotals totals;
  return totals;
}

}  // namespace framejit::runtime
