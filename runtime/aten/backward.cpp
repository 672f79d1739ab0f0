#include "runtime/aten/backward.h"

#include <ATen/core/Generator.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "runtime/aten/forward_again.h"
#include "runtime/aten/forward_inputs.h"
#include "runtime/aten/inner_backward.h"
#include "runtime/aten/own_tensor.h"
#include "runtime/aten/passing_nodes.h"
#include "runtime/aten/plan_program.h"
#include "runtime/aten/torch_version.h"
#include "runtime/aten/totals.h"
#include "runtime/base/warn_once.h"

namespace framejit::runtime {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// What the nodes of one call share.
class SavedForBackward {
 public:
  SavedForBackward(std::shared_ptr<BackwardPlans> plans, const at::Tensor* const* inputs, const int64_t* symbols,
                   const std::vector<at::Tensor>& values, std::vector<GeneratorState> drawn)
      : plans_(std::move(plans)),
        drawn_(std::move(drawn)),
        symbols_(symbols, symbols + layout().symbol_count),
        is_released_(layout().roots.size()),
        has_run_(layout().roots.size()),
        last_task_(layout().roots.size(), -1) {
    for (const BackwardLayout::Saved& saved : layout().saved)
      if (saved.of == BackwardLayout::Saved::kValue) {
        values_.emplace_back(values[saved.index], false);
        if (has_hooks_) shown_values_.emplace_back(values[saved.index]);
      }
    for (size_t i = 0, next = 0; i < layout().input_names.size(); ++i) {
      const bool is_kept = next < layout().kept_inputs.size() && layout().kept_inputs[next] == i;
      if (is_kept) inputs_.emplace_back(*inputs[layout().kept_inputs[next++]], has_hooks_);
      else others_.emplace_back(*inputs[i]);
    }
  }

  const BackwardLayout& layout() const { return plans_->layout(); }
  void add_root(const at::Tensor& output) { roots_.push_back(Showing::dense(output)); }
  bool has_hooks() const { return has_hooks_; }
  // Call it once the outputs have their history. Saving them as outputs avoids a cycle of references.
  void keep_outputs(const at::Tensor* outputs) {
    for (uint32_t i : layout().kept_outputs) {
      outputs_.emplace_back(outputs[i], root_of(i) >= 0);
      if (has_hooks_) shown_outputs_.emplace_back(outputs[i]);
    }
  }
  // Which root an output is; -1: none.
  int64_t root_of(uint32_t output) const {
    const auto at = std::find(layout().roots.begin(), layout().roots.end(), output);
    return at == layout().roots.end() ? -1 : at - layout().roots.begin();
  }

  // Eager's error, if formulas of these roots hold an output that was detached in place.
  void refuse_detached(uint32_t output, const SavedVariable& saved, const std::vector<bool>& given) const {
    try {
      (void)saved.unpack();
    } catch (const c10::Error&) {  // others see to its version
      if (plans_->is_read_itself({SavedValue::kOutput, output}, given)) throw;
    }
  }

  // given: per root; wanted: per gradient. node: whose turn it is.
  variable_list run(variable_list& gradients, const std::vector<bool>& given, const std::vector<bool>& wanted,
                    bool is_last, torch::autograd::Node& node) {
    const std::lock_guard<std::mutex> lock(mutex_);
    refuse_second(given);
    for (size_t r = 0; r < given.size(); ++r)
      if (given[r]) last_task_[r] = torch::autograd::get_current_graph_task_id();
    if (std::find(wanted.begin(), wanted.end(), true) == wanted.end()) {  // eager's formulas look at what they kept
      (void)unpacked_inputs(given);
      (void)unpacked_outputs(given, node);
      return variable_list(layout().gradients.size());
    }
    if (at::GradMode::is_enabled() || !std::all_of(gradients.begin(), gradients.end(), is_plain))
      return run_again(gradients, given, wanted, node);
    variable_list results(layout().gradients.size());
    std::optional<std::vector<at::Tensor>> saved = unpacked(given, is_last, node);
    if (!saved) return run_again(gradients, given, wanted, node);
    ValuesBetweenPlans between{nullptr, std::move(*saved), !has_hooks_};
    for (size_t r = 0; r < gradients.size(); ++r)
      if (given[r]) gradients[r] = roots_[r].laid(gradients[r]);
    const std::shared_ptr<const PlanRunner> runner = plans_->plan_for(given, wanted);
    std::vector<const at::Tensor*> inputs;
    for (const at::Tensor& gradient : gradients) inputs.push_back(&gradient);
    const Result<void> done = runner->run(inputs.data(), symbols_.data(), results.data(), &between);
    if (!done.ok()) {
      count_failed_backward(done.error().message + "; backward() raises it", runner->plan().name);
      throw std::runtime_error(done.error().message);
    }
    backward_totals().runs += 1;
    return results;
  }

  // Frees the values saved for these roots, except those that another root still reads. ran: they have gone backward,
  // so a later backward of a root that shares a formula with them is an error, as in eager. Otherwise their nodes died
  // unused.
  void release(const std::vector<bool>& roots, bool ran) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t r = 0; r < roots.size(); ++r) {
      is_released_[r] = is_released_[r] || roots[r];
      has_run_[r] = has_run_[r] || (roots[r] && ran);
    }
    for (size_t i = 0, next = 0; i < layout().saved.size(); ++i) {
      if (layout().saved[i].of != BackwardLayout::Saved::kValue) continue;
      if (!is_read_later(i, {})) values_[next].reset_data();
      ++next;
    }
    if (std::find(is_released_.begin(), is_released_.end(), false) != is_released_.end()) return;
    inputs_.clear();
    outputs_.clear();
  }

 private:
  // Within one run of the engine, several nodes may use the same formula. That is not a second backward.
  void refuse_second(const std::vector<bool>& given) const {
    const int task = torch::autograd::get_current_graph_task_id();
    for (size_t r = 0; r < given.size(); ++r)
      for (size_t s = 0; given[r] && s < given.size(); ++s)
        if (has_run_[s] && last_task_[s] != task && layout().conflicts[r * given.size() + s])
          throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
    for (size_t r = 0; r < given.size(); ++r)
      if (given[r] && is_released_[r] && reads_anything(r))
        throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
  }
  bool reads_anything(size_t root) const {
    const auto& readers = layout().readers;
    return std::any_of(readers.begin(), readers.end(), [&](const std::vector<bool>& by) { return by[root]; });
  }

  // Whether a root reads it that has not gone backward yet and is not one of `now`.
  bool is_read_later(size_t saved, const std::vector<bool>& now) const {
    const std::vector<bool>& readers = layout().readers[saved];
    for (size_t r = 0; r < readers.size(); ++r)
      if (readers[r] && !is_released_[r] && (now.empty() || !now[r])) return true;
    return false;
  }

  // Kept inputs and outputs of the backwards from these roots; the others are undefined.
  using Kept = c10::SmallVector<at::Tensor, 16>;
  Kept unpacked_inputs(const std::vector<bool>& given) const {
    Kept inputs;
    for (size_t k = 0; k < inputs_.size(); ++k)
      inputs.push_back(is_held(k, given) ? input_now(k, given) : at::Tensor());
    return inputs;
  }
  at::Tensor input_now(size_t kept, const std::vector<bool>& given) const {
    try {
      return inputs_[kept].now();
    } catch (const c10::Error&) {
      if (plans_->is_read_itself({SavedValue::kInput, layout().kept_inputs[kept]}, given)) throw;
    }
    return inputs_[kept].even_detached();
  }
  Kept unpacked_outputs(const std::vector<bool>& given, torch::autograd::Node& node) const {
    Kept outputs;
    for (size_t k = 0; k < outputs_.size(); ++k)
      outputs.push_back(share(layout().output_keepers[k], given) ? outputs_[k].unpack(node.getptr()) : at::Tensor());
    return outputs;
  }
  static bool share(const std::vector<bool>& a, const std::vector<bool>& b) {
    for (size_t r = 0; r < a.size(); ++r)
      if (a[r] && b[r]) return true;
    return false;
  }

  // What the plan reads; nothing if an input has other data than the plan was made for. In the last backward the plan's
  // handles are the only ones, so that each value goes after its last use.
  std::optional<std::vector<at::Tensor>> unpacked(const std::vector<bool>& given, bool is_last,
                                                  torch::autograd::Node& node) {
    const auto inputs = unpacked_inputs(given), outputs = unpacked_outputs(given, node);
    for (size_t k = 0; k < inputs.size(); ++k)
      if (inputs[k].defined() && inputs_[k].has_other_data(inputs[k])) return std::nullopt;
    std::vector<at::Tensor> values;
    for (size_t i = 0, next = 0; i < layout().saved.size(); ++i) {
      const BackwardLayout::Saved& saved = layout().saved[i];
      SavedVariable* value = saved.of == BackwardLayout::Saved::kValue ? &values_[next++] : nullptr;
      if (!share(layout().readers[i], given)) {
        values.emplace_back();
      } else if (value != nullptr) {
        values.push_back(has_hooks_ ? shown_values_[next - 1].laid(value->unpack()) : value->unpack());
        if (is_last && !is_read_later(i, given)) value->reset_data();
      } else {
        const bool is_input = saved.of == BackwardLayout::Saved::kInput;
        const std::vector<uint32_t>& kept = is_input ? layout().kept_inputs : layout().kept_outputs;
        const size_t at = static_cast<size_t>(std::find(kept.begin(), kept.end(), saved.index) - kept.begin());
        const auto& from = is_input ? inputs : outputs;
        if (at >= from.size()) throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
        if (!has_hooks_) values.push_back(from[at]);
        else values.push_back((is_input ? inputs_[at].shown() : shown_outputs_[at]).laid(from[at]));
      }
    }
    return values;
  }

  // False for tensors of vmap, of another transform, or of a subclass.
  static bool is_plain(const at::Tensor& gradient) {
    static constexpr c10::DispatchKeySet kOthers(
        {c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
         c10::DispatchKey::Functionalize, c10::DispatchKey::ZeroTensor, c10::DispatchKey::Python});
    return !gradient.defined() || !gradient.key_set().has_any(kOthers);
  }

  // Visits each input of the forward: its place among the kept ones or among the others.
  template <class Visit>
  void for_each_input(Visit&& visit) const {
    for (size_t i = 0, kept = 0, other = 0; i < layout().input_names.size(); ++i) {
      const bool is_kept = kept < layout().kept_inputs.size() && layout().kept_inputs[kept] == i;
      visit(i, is_kept, is_kept ? kept++ : other++);
    }
  }
  // Whether eager's formulas of these roots hold a kept input.
  bool is_held(size_t kept, const std::vector<bool>& given) const { return share(layout().input_keepers[kept], given); }
  std::vector<bool> inputs_there(const std::vector<bool>& given) const {
    std::vector<bool> there;
    for_each_input([&](size_t, bool is_kept, size_t at) {
      there.push_back(is_kept ? is_held(at, given) || inputs_[at].is_there() : others_[at].is_there());
    });
    return there;
  }
  std::vector<at::Tensor> inputs_of(const ForwardAgain& forward, const std::vector<bool>& stand_in,
                                    const std::string& asker) const {
    std::vector<at::Tensor> inputs;
    for_each_input([&](size_t i, bool is_kept, size_t at) {
      if (!forward.reads[i]) inputs.emplace_back();
      else if (stand_in[i]) inputs.push_back(is_kept ? inputs_[at].stand_in() : others_[at].stand_in());
      else inputs.push_back(is_kept ? inputs_[at].before() : others_[at].get(layout().input_names[i], asker));
    });
    return inputs;
  }

  // outputs: the kept ones.
  std::vector<at::Tensor> lost_values(const ForwardAgain& forward, const Kept& outputs, const std::string& asker) {
    std::vector<at::Tensor> held(forward.held.size()), lost(forward.lost->plan().outputs.size());
    const auto saved_at = [&](uint32_t place) {  // among values_
      return std::count_if(layout().saved.begin(), layout().saved.begin() + place,
                           [](const SavedValue& saved) { return saved.of == SavedValue::kValue; });
    };
    for (size_t h = 0; h < held.size(); ++h) {
      const auto [of, index] = forward.held[h];
      if (of == SavedValue::kValue) held[h] = values_[static_cast<size_t>(saved_at(index))].unpack();
      if (of == SavedValue::kOutput)
        held[h] =
            outputs[static_cast<size_t>(std::find(layout().kept_outputs.begin(), layout().kept_outputs.end(), index) -
                                        layout().kept_outputs.begin())];
      if (of == SavedValue::kInput)
        for_each_input([&, input = index](size_t i, bool is_kept, size_t at) {
          if (i == input) held[h] = is_kept ? inputs_[at].before() : others_[at].get(layout().input_names[i], asker);
        });
    }
    std::vector<const at::Tensor*> pointers;
    for (const at::Tensor& tensor : held) pointers.push_back(&tensor);
    const Result<void> done = forward.lost->run(pointers.data(), symbols_.data(), lost.data());
    if (!done.ok()) throw std::runtime_error(done.error().message);
    return lost;
  }

  // Per input that the formulas of these roots hold.
  std::vector<at::Tensor> other_data(const std::vector<bool>& given) const {
    std::vector<at::Tensor> others;
    for_each_input([&](size_t, bool is_kept, size_t at) {
      others.push_back(is_kept && is_held(at, given) ? inputs_[at].other_data() : at::Tensor());
    });
    return others;
  }

  // By PyTorch's formulas: those of the plans have no derivative, and take plain tensors that lie as planned.
  variable_list run_again(const variable_list& gradients, const std::vector<bool>& given,
                          const std::vector<bool>& wanted, torch::autograd::Node& node) {
    (void)unpacked_inputs(given);
    const Kept outputs = unpacked_outputs(given, node);  // checks their versions
    const std::vector<at::Tensor> others = other_data(given);
    const bool has_others = std::any_of(others.begin(), others.end(), [](const at::Tensor& t) { return t.defined(); });
    const std::string asker = has_others                   ? "a backward after new data for an input"
                              : at::GradMode::is_enabled() ? "create_graph=True"
                                                           : "is_grads_batched=True";
    ForwardAgain forward;
    std::vector<at::Tensor> inputs, lost;
    try {
      Result<ForwardAgain> whole = plans_->forward_again();
      if (!whole.ok()) whole = plans_->forward_again({}, {}, given);  // perhaps other roots make it impossible
      if (!whole.ok()) throw std::runtime_error("framejit: " + asker + " is not possible: " + whole.error().message);
      forward = whole.take();
      const std::vector<bool> there = inputs_there(given);
      std::vector<bool> missing(there.size());
      for (size_t i = 0; i < there.size(); ++i) missing[i] = forward.reads[i] && !there[i];
      if (std::find(missing.begin(), missing.end(), true) != missing.end()) {
        Result<ForwardAgain> without = plans_->forward_again(missing, there, given);
        if (without.ok()) forward = without.take();
        else missing.assign(missing.size(), false);  // the error names the first of them
      }
      inputs = inputs_of(forward, missing, asker);
      if (forward.lost) lost = lost_values(forward, outputs, asker);
    } catch (...) {
      plans_->give_up();
      throw;
    }
    return backward_of_forward_again(forward, layout(), std::move(inputs), symbols_.data(), gradients, wanted, drawn_,
                                     lost, others, at::GradMode::is_enabled());
  }

  const std::shared_ptr<BackwardPlans> plans_;
  const std::vector<GeneratorState> drawn_;
  const std::vector<int64_t> symbols_;
  std::mutex mutex_;
  // Of the program. They may give back other tensors than were saved.
  const bool has_hooks_ = at::SavedTensorDefaultHooks::get_hooks().has_value();
  std::vector<SavedVariable> values_, outputs_;
  std::vector<Showing> shown_values_, shown_outputs_;  // with hooks: what is given back lies as it did
  std::vector<KeptInput> inputs_;
  std::vector<OtherInput> others_;  // inputs that eager would not keep alive
  std::vector<Showing> roots_;  // how the plan's tangents lie, as empty_like(output)
  std::vector<bool> is_released_;  // per root
  std::vector<bool> has_run_;  // per root: its backward has freed it
  std::vector<int> last_task_;  // per root: the run of the engine in which it went backward last
};

// The node of one group of roots.
class CompiledBackward final : public torch::autograd::Node {
 public:
  // Eager's name, where there is one root: errors about it and its text name the node.
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
  // What the roots are computed from is held as eager's formulas hold it: detach_() of it is an error.
  void hold(uint32_t output, const at::Tensor& tensor) { held_.emplace_back(output, SavedVariable(tensor, false)); }

  void will_release_variables() override { is_last_ = true; }
  // After the last run, or when nothing leads to the node any more.
  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_last_)
      for (uint32_t r : roots_) mark(last_given_, r);
    held_.clear();
    shared_->release(std::exchange(last_given_, {}), std::exchange(is_last_, false));
  }

  variable_list apply(variable_list&& given_gradients) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const BackwardLayout& layout = shared_->layout();
    variable_list gradients(layout.roots.size()), results(gradients_.size());
    std::vector<bool> given(layout.roots.size()), wanted(layout.gradients.size());
    for (size_t i = 0; i < roots_.size(); ++i) {
      given[roots_[i]] = given_gradients[i].defined();
      gradients[roots_[i]] = std::move(given_gradients[i]);
    }
    for (size_t i = 0; i < gradients_.size(); ++i) wanted[gradients_[i]] = task_should_compute_output(i);
    const auto is_true = [](bool b) { return b; };
    variable_list made(layout.gradients.size());
    for (const auto& [output, saved] : held_) shared_->refuse_detached(output, saved, given);
    if (std::any_of(given.begin(), given.end(), is_true))
      made = shared_->run(gradients, given, wanted, is_last_, *this);
    last_given_ = given;
    for (size_t i = 0; i < gradients_.size(); ++i) {
      results[i] = std::move(made[gradients_[i]]);
      // A forward that runs again leaves out ops that are overwritten; eager's formulas of these give zeros.
      if (!results[i].defined() && wanted[gradients_[i]] && is_reached(given, gradients_[i])) results[i] = zeros(i);
    }
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
  void mark(std::vector<bool>& roots, uint32_t root) const {
    roots.resize(shared_->layout().roots.size());
    roots[root] = true;
  }

  std::shared_ptr<SavedForBackward> shared_;
  std::vector<uint32_t> roots_, gradients_;
  std::vector<std::pair<uint32_t, SavedVariable>> held_;  // outputs of the forward
  std::vector<bool> last_given_;  // per root of the call
  bool is_last_ = false;
};

}  // namespace

std::vector<GeneratorState> drawn_states(const BackwardPlans& plans, const PlanRunner& forward) {
  return plans.layout().draws ? states_of(forward.program().generators) : std::vector<GeneratorState>();
}

namespace {

// Makes the nodes of one call. Those that others lead to come first.
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
    // Nodes that others lead to come first.
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

  // A view of a whole input or output may be that same tensor object, which then has another history.
  bool is_shared(size_t output) const {
    const at::Tensor* const* const inputs_end = inputs_ + layout_.input_names.size();
    const at::Tensor* const outputs_end = outputs_ + layout_.output_count;
    const auto is_it = [&](const at::Tensor& other) {
      return &other != &outputs_[output] && other.is_same(outputs_[output]);
    };
    return std::any_of(inputs_, inputs_end, [&](const at::Tensor* input) { return is_it(*input); }) ||
           std::any_of(static_cast<const at::Tensor*>(outputs_), outputs_end, is_it);
  }

  // Roots may share a node only if they reach the same inputs, leaves aside. The engine runs everything that a node
  // leads to, hooks included, even if no gradient arrives there.
  bool same_node(size_t r, size_t s) const {
    if (r == s) return true;
    if (is_watched_ || layout_.groups[r] != layout_.groups[s]) return false;
    return std::none_of(layout_.partly_reached.begin(), layout_.partly_reached.end(), [&](uint32_t g) {
      return layout_.reaches[r][g] != layout_.reaches[s][g] && !inputs_[layout_.gradients[g].index]->is_leaf();
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
