#include "runtime/aten/backward.h"

#include <ATen/core/Generator.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/aten/inner_backward.h"
#include "runtime/aten/own_tensor.h"
#include "runtime/aten/passing_nodes.h"
#include "runtime/aten/plan_program.h"
#include "runtime/aten/saved_for_backward.h"
#include "runtime/aten/torch_version.h"
#include "runtime/aten/totals.h"
#include "runtime/base/warn_once.h"

namespace framejit::runtime {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// The node of one group of roots.
class CompiledBackward final : public torch::autograd::Node {
 public:
  // Eager's name, if there is one root: errors about the root, and its text, name the node.
  std::string name() const override {
    return roots_.size() == 1 ? shared_->layout().names[roots_[0]] : "CompiledBackward";
  }

  void set(std::shared_ptr<SavedForBackward> shared, std::vector<uint32_t> roots) {
    shared_ = std::move(shared);
    roots_ = std::move(roots);
    const BackwardLayout& layout = shared_->layout();
    for (uint32_t g = 0; g < layout.gradients.size(); ++g)
      if (std::any_of(roots_.begin(), roots_.end(), [&](uint32_t r) { return layout.reaches[r][g]; }))
        gradients_.push_back(g);
  }
  const std::vector<uint32_t>& gradients() const { return gradients_; }  // of the layout, per edge
  const std::vector<uint32_t>& roots() const { return roots_; }
  // Holds an output from which the roots are computed, as eager's formulas do. If it is detached by detach_(), a
  // backward raises eager's error.
  void hold(uint32_t output, const at::Tensor& tensor) { held_.emplace_back(output, SavedVariable(tensor, false)); }

  void will_release_variables() override { is_last_ = true; }
  // Called after the last run, or when nothing leads to the node any more.
  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_.clear();
    if (std::exchange(is_last_, false)) shared_->release(std::exchange(last_, {}));
    else shared_->drop(roots_);
  }

  variable_list apply(variable_list&& given_gradients) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const BackwardLayout& layout = shared_->layout();
    variable_list gradients(layout.roots.size()), results(gradients_.size());
    BackwardCall call(layout);
    for (size_t i = 0; i < roots_.size(); ++i) {
      call.given[roots_[i]] = given_gradients[i].defined();
      gradients[roots_[i]] = std::move(given_gradients[i]);
    }
    for (size_t i = 0; i < gradients_.size(); ++i) call.wanted[gradients_[i]] = task_should_compute_output(i);
    variable_list made(layout.gradients.size());
    for (const auto& [output, saved] : held_) shared_->refuse_detached(output, saved, call.given);
    if (has_any(call.given)) made = shared_->run(gradients, call, is_last_, *this);
    for (size_t i = 0; i < gradients_.size(); ++i) {
      results[i] = std::move(made[gradients_[i]]);
      // A forward that runs again leaves out ops that are overwritten; eager's formulas of these give zeros.
      if (!results[i].defined() && call.wanted[gradients_[i]] && is_reached(call.given, gradients_[i]))
        results[i] = zeros(i);
    }
    last_ = std::move(call);
    return results;
  }

 private:
  bool is_reached(const std::vector<bool>& given, uint32_t gradient) const {
    const auto& reaches = shared_->layout().reaches;
    return std::any_of(roots_.begin(), roots_.end(), [&](uint32_t r) { return given[r] && reaches[r][gradient]; });
  }
  at::Tensor zeros(size_t edge) const {
    const torch::autograd::Edge& next = next_edge(edge);
    return next.function->input_metadata(next.input_nr).zeros_like();
  }

  std::shared_ptr<SavedForBackward> shared_;
  std::vector<uint32_t> roots_, gradients_;
  std::vector<std::pair<uint32_t, SavedVariable>> held_;  // outputs of the forward
  BackwardCall last_;
  bool is_last_ = false;
};

}  // namespace

std::vector<GeneratorState> drawn_states(const BackwardPlans& plans, const PlanRunner& forward) {
  return plans.layout().draws ? states_of(forward.program().generators) : std::vector<GeneratorState>();
}

namespace {

// Makes the nodes of one call. A node to which others lead is made before them.
class Recording {
 public:
  Recording(std::shared_ptr<BackwardPlans> plans, const at::Tensor* const* inputs, const int64_t* symbols,
            at::Tensor* outputs, const std::vector<at::Tensor>& values, std::vector<GeneratorState> drawn)
      : layout_(plans->layout()),
        inputs_(inputs),
        outputs_(outputs),
        shared_(std::make_shared<SavedForBackward>(std::move(plans), inputs, symbols, values, std::move(drawn))),
        edges_(layout_.roots.size()) {
    for (const BackwardLayout::Gradient& g : layout_.gradients)
      old_edges_.push_back(g.is_of_root ? torch::autograd::Edge()
                                        : torch::autograd::impl::gradient_edge(*inputs[g.index]));
    is_watched_ = std::any_of(old_edges_.begin(), old_edges_.end(),
                              [](const torch::autograd::Edge& e) { return e.is_valid() && has_hooks(*e.function); });
  }

  void run() {
    for (size_t r = 0; r < layout_.roots.size(); ++r) shared_->add_root(settled(r));
    std::vector<bool> is_made(layout_.roots.size());
    for (size_t left = layout_.roots.size(); left > 0;) {
      const size_t before = left;
      for (size_t r = 0; r < layout_.roots.size(); ++r)
        if (!is_made[r] && can_be_made(r, is_made)) left -= make_group(r, is_made);
      FJ_ASSERT(left < before, "roots are made of each other");
    }
    for (size_t r = 0; r < layout_.roots.size(); ++r) give_history(r);
    for (size_t k = 0; k < layout_.kept_outputs.size(); ++k)
      set_version(outputs_[layout_.kept_outputs[k]], layout_.kept_versions[k]);
    shared_->keep_outputs(outputs_);
    for (size_t k = 0; !shared_->has_hooks() && k < layout_.kept_outputs.size(); ++k) hold_in_later_nodes(k);
  }

 private:
  at::Tensor& settled(size_t root) {
    at::Tensor& output = outputs_[layout_.roots[root]];
    if (layout_.written[root] >= 0) return output;
    if (output.is_view() || is_shared(layout_.roots[root])) {
      const c10::VariableVersion base = output.unsafeGetTensorImpl()->version_counter();
      output = own_tensor(output, false);
      if (layout_.versions[root] < 0) output.unsafeGetTensorImpl()->set_version_counter(base);
    }
    set_version(output, layout_.versions[root]);
    return output;
  }

  static void set_version(const at::Tensor& output, int64_t version) {
    c10::VariableVersion counter = output.unsafeGetTensorImpl()->version_counter();
    if (version >= 0 && counter.enabled()) counter.set_version(version);
  }

  // Whether the output is the same object as an input or another output, which has another history. A view of a whole
  // tensor may be that tensor.
  bool is_shared(size_t output) const {
    const at::Tensor* const* const inputs_end = inputs_ + layout_.input_names.size();
    const at::Tensor* const outputs_end = outputs_ + layout_.output_count;
    const auto is_it = [&](const at::Tensor& other) {
      return &other != &outputs_[output] && other.is_same(outputs_[output]);
    };
    return std::any_of(inputs_, inputs_end, [&](const at::Tensor* input) { return is_it(*input); }) ||
           std::any_of(static_cast<const at::Tensor*>(outputs_), outputs_end, is_it);
  }

  // Roots may share a node only if they reach the same inputs, apart from leaves without hooks. The engine runs every
  // node that a node leads to, hooks included, even if no gradient arrives there.
  bool same_node(size_t r, size_t s) const {
    if (r == s) return true;
    if (layout_.groups[r] != layout_.groups[s]) return false;
    return std::none_of(layout_.partly_reached.begin(), layout_.partly_reached.end(), [&](uint32_t g) {
      return layout_.reaches[r][g] != layout_.reaches[s][g] &&
             (is_watched_ || !inputs_[layout_.gradients[g].index]->is_leaf());
    });
  }

  bool can_be_made(size_t root, const std::vector<bool>& is_made) const {
    for (size_t r = 0; r < layout_.roots.size(); ++r)
      for (size_t g = 0; same_node(r, root) && g < layout_.gradients.size(); ++g)
        if (layout_.gradients[g].is_of_root && layout_.reaches[r][g] && !is_made[layout_.gradients[g].index])
          return false;
    return true;
  }

  size_t make_group(size_t root, std::vector<bool>& is_made) {
    std::vector<uint32_t> roots;
    for (uint32_t r = 0; r < layout_.roots.size(); ++r)
      if (same_node(r, root)) roots.push_back(r), is_made[r] = true;
    auto node = make_autograd_node<CompiledBackward>();
    node->set(shared_, roots);
    nodes_.push_back(node.get());
    std::vector<torch::autograd::Edge> next;
    std::vector<at::Tensor> targets;
    for (uint32_t g : node->gradients()) {
      const BackwardLayout::Gradient& gradient = layout_.gradients[g];
      next.push_back(gradient.is_of_root ? edges_[gradient.index] : old_edges_[g]);
      targets.push_back(gradient.is_of_root ? outputs_[layout_.roots[gradient.index]] : *inputs_[gradient.index]);
    }
    if (is_watched_) next = chained(std::move(next), targets);
    for (torch::autograd::Edge& edge : next) node->add_next_edge(std::move(edge));
    for (uint32_t r : roots) {
      const uint32_t slot = node->add_input_metadata(outputs_[layout_.roots[r]]);
      edges_[r] = roots.size() == 1 ? torch::autograd::Edge(node, slot) : through_own_node(r, {node, slot});
    }
    return roots.size();
  }

  void hold_in_later_nodes(size_t kept) {
    const uint32_t output = layout_.kept_outputs[kept];
    const int64_t root = shared_->root_of(output);
    for (CompiledBackward* node : nodes_) {
      const std::vector<uint32_t>& roots = node->roots();
      const bool is_own = std::find(roots.begin(), roots.end(), root) != roots.end();
      if (root >= 0 && !is_own &&
          std::any_of(roots.begin(), roots.end(), [&](uint32_t r) { return layout_.output_keepers[kept][r]; }))
        node->hold(output, outputs_[output]);
    }
  }

  // A node for one output, so that the output's hooks run only if a gradient arrives for it.
  torch::autograd::Edge through_own_node(uint32_t root, torch::autograd::Edge edge) {
    auto node = make_autograd_node<OneOutput>();
    node->set_name(layout_.names[root]);
    node->add_next_edge(std::move(edge));
    return {node, node->add_input_metadata(outputs_[layout_.roots[root]])};
  }

  void give_history(size_t root) {
    at::Tensor& output = outputs_[layout_.roots[root]];
    if (layout_.written[root] >= 0) torch::autograd::impl::rebase_history(output, edges_[root]);
    else torch::autograd::impl::set_gradient_edge(output, edges_[root]);
  }

  const BackwardLayout& layout_;
  const at::Tensor* const* inputs_;
  at::Tensor* outputs_;
  std::shared_ptr<SavedForBackward> shared_;
  std::vector<CompiledBackward*> nodes_;
  std::vector<torch::autograd::Edge> edges_;  // per root
  std::vector<torch::autograd::Edge> old_edges_;  // per gradient of an input
  bool is_watched_ = false;
};

}  // namespace

void record_backward(std::shared_ptr<BackwardPlans> plans, const at::Tensor* const* inputs, const int64_t* symbols,
                     at::Tensor* outputs, std::vector<at::Tensor> values, std::vector<GeneratorState> drawn) {
  Recording(std::move(plans), inputs, symbols, outputs, values, std::move(drawn)).run();
}

bool changes_history_of_view(const BackwardPlans& plans, const at::Tensor* const* inputs) {
  const std::vector<int64_t>& written = plans.layout().written;
  return std::any_of(written.begin(), written.end(), [&](int64_t i) { return i >= 0 && inputs[i]->is_view(); });
}

BackwardTotals& backward_totals() {
  static BackwardTotals totals;
  return totals;
}

void count_failed_backward(const std::string& why, const std::string& where) {
  backward_totals().failed += 1;
  log::warn_reason(Reason::backward_failed, why, where);
}

}  // namespace framejit::runtime
