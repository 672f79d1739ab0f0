#include "runtime/aten/saved_for_backward.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/aten/forward_again.h"
#include "runtime/aten/totals.h"

namespace framejit::runtime {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

bool share(const std::vector<bool>& a, const std::vector<bool>& b) {
  for (size_t r = 0; r < a.size(); ++r)
    if (a[r] && b[r]) return true;
  return false;
}

// False for tensors of vmap, of another transform, or of a subclass.
bool is_plain(const at::Tensor& gradient) {
  static constexpr c10::DispatchKeySet kOthers({c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched,
                                                c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize,
                                                c10::DispatchKey::ZeroTensor, c10::DispatchKey::Python});
  return !gradient.defined() || !gradient.key_set().has_any(kOthers);
}

bool looks_for_nan() {
  return torch::autograd::AnomalyMode::is_enabled() && torch::autograd::AnomalyMode::should_check_nan();
}

bool has_nan(const variable_list& gradients) {
  return std::any_of(gradients.begin(), gradients.end(), [](const at::Tensor& gradient) {
    return gradient.defined() && gradient.ne(gradient).any().item<bool>();
  });
}

}  // namespace

BackwardCall::BackwardCall(const BackwardLayout& layout)
    : given(layout.roots.size()), wanted(layout.gradients.size()), task(torch::autograd::get_current_graph_task_id()) {
  const auto* asked = torch::autograd::get_current_graph_task_exec_info();
  is_whole = asked == nullptr || asked->empty();
}

SavedForBackward::SavedForBackward(std::shared_ptr<BackwardPlans> plans, const at::Tensor* const* inputs,
                                   const int64_t* symbols, const std::vector<at::Tensor>& values,
                                   std::vector<GeneratorState> drawn)
    : plans_(std::move(plans)),
      drawn_(std::move(drawn)),
      symbols_(symbols, symbols + layout().symbol_count),
      done_(layout().roots.size() * (layout().gradients.size() + 1)) {
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

void SavedForBackward::keep_outputs(const at::Tensor* outputs) {
  for (uint32_t i : layout().kept_outputs) {
    outputs_.emplace_back(outputs[i], root_of(i) >= 0);
    if (has_hooks_) shown_outputs_.emplace_back(outputs[i]);
  }
}

int64_t SavedForBackward::root_of(uint32_t output) const {
  const auto at = std::find(layout().roots.begin(), layout().roots.end(), output);
  return at == layout().roots.end() ? -1 : at - layout().roots.begin();
}

void SavedForBackward::refuse_detached(uint32_t output, const SavedVariable& saved,
                                       const std::vector<bool>& given) const {
  try {
    (void)saved.unpack();
  } catch (const c10::Error&) {  // other code checks its version
    if (plans_->is_read_itself({SavedValue::kOutput, output}, given)) throw;
  }
}

variable_list SavedForBackward::run(variable_list& gradients, const BackwardCall& call, bool is_last,
                                    torch::autograd::Node& node) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!earlier_.empty()) raise_as_eager(call, node);
  if (!has_any(call.wanted)) {  // eager's formulas still check what they kept
    (void)all_kept(call, node);
    return variable_list(layout().gradients.size());
  }
  if (at::GradMode::is_enabled() || !std::all_of(gradients.begin(), gradients.end(), is_plain))
    return run_again(gradients, call, is_last, node);
  variable_list results(layout().gradients.size());
  const bool looks = looks_for_nan();
  std::optional<std::vector<at::Tensor>> saved = unpacked(call, is_last && !looks, node);
  if (!saved) return run_again(gradients, call, is_last, node);
  ValuesBetweenPlans between{nullptr, std::move(*saved), !has_hooks_};
  const variable_list given = looks ? gradients : variable_list();
  for (size_t r = 0; r < gradients.size(); ++r)
    if (call.given[r]) gradients[r] = roots_[r].laid(gradients[r]);
  const std::shared_ptr<const PlanRunner> runner = plans_->plan_for(call.given, call.wanted);
  std::vector<const at::Tensor*> inputs;
  for (const at::Tensor& gradient : gradients) inputs.push_back(&gradient);
  const Result<void> done = runner->run(inputs.data(), symbols_.data(), results.data(), &between);
  if (!done.ok()) {
    count_failed_backward(done.error().message + "; backward() raises it", runner->plan().name);
    throw std::runtime_error(done.error().message);
  }
  // Anomaly detection names the formula that made a NaN: PyTorch's own formulas run once more.
  if (looks && has_nan(results) && plans_->forward_again().ok()) return run_again(given, call, is_last, node);
  backward_totals().runs += 1;
  return results;
}

// Whether eager's node would run in this call.
bool SavedForBackward::runs(const BackwardLayout::Holder& holder, const BackwardCall& call) const {
  return share(holder.roots, call.given) &&
         (share(holder.gradients, call.wanted) || (call.is_whole && holder.is_end()));
}

// Within one run of the engine, several nodes of ours may use the same node of eager's. That is not a second backward.
bool SavedForBackward::is_freed(const BackwardLayout::Holder& holder, int task) const {
  return std::any_of(earlier_.begin(), earlier_.end(),
                     [&](const BackwardCall& call) { return call.task != task && runs(holder, call); });
}

// Throws the error that eager meets first, if it meets any.
void SavedForBackward::raise_as_eager(const BackwardCall& call, torch::autograd::Node& node) const {
  for (const BackwardLayout::Holder& holder : layout().holders) {
    if (!runs(holder, call)) continue;
    if (is_freed(holder, call.task)) throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
    for (const SavedValue& saved : holder.versions) {
      try {
        require_version(saved, call, node);
      } catch (const c10::Error&) {
        const auto error = std::find_if(
            holder.write_errors.begin(), holder.write_errors.end(),
            [&](const auto& of_one) { return of_one.first.of == saved.of && of_one.first.index == saved.index; });
        if (error == holder.write_errors.end()) throw;
        throw std::runtime_error(error->second);
      }
    }
  }
}

void SavedForBackward::require_version(const SavedValue& saved, const BackwardCall& call,
                                       torch::autograd::Node& node) const {
  const bool is_input = saved.of == SavedValue::kInput;
  const std::vector<uint32_t>& kept = is_input ? layout().kept_inputs : layout().kept_outputs;
  const auto at = static_cast<size_t>(std::find(kept.begin(), kept.end(), saved.index) - kept.begin());
  if (is_input && at < inputs_.size()) (void)input_now(at, call.given);
  if (!is_input && at < outputs_.size()) (void)outputs_[at].unpack(node.getptr());
}

void SavedForBackward::set_done(const BackwardCall& call) {
  const size_t gradients = layout().gradients.size();
  for (size_t r = 0; r < call.given.size(); ++r) {
    for (size_t g = 0; call.given[r] && g < gradients; ++g)
      if (call.wanted[g]) done_[r * (gradients + 1) + g] = true;
    if (call.given[r] && call.is_whole) done_[r * (gradients + 1) + gradients] = true;
  }
}

bool SavedForBackward::is_left(size_t root, size_t gradient, const BackwardCall* now) const {
  const bool is_now = now != nullptr && now->given[root] && now->wanted[gradient];
  return layout().reaches[root][gradient] && !is_done(root, gradient) && !is_now;
}

// Roots whose backward may still run after this call, also for other gradients.
std::vector<bool> SavedForBackward::roots_left(const BackwardCall* now) const {
  std::vector<bool> left(layout().roots.size());
  const size_t gradients = layout().gradients.size();
  for (size_t r = 0; r < left.size(); ++r) {
    for (size_t g = 0; !left[r] && g < gradients; ++g) left[r] = is_left(r, g, now);
    if (layout().ends[r] && !is_done(r, gradients) && !(now != nullptr && now->given[r] && now->is_whole))
      left[r] = true;
  }
  return left;
}

bool SavedForBackward::is_read_later(size_t saved, const std::vector<bool>& roots, const BackwardCall* now) const {
  for (size_t r = 0; r < roots.size(); ++r)
    for (size_t g = 0; roots[r] && layout().readers[saved][r] && g < layout().gradients.size(); ++g)
      if (layout().gradient_readers[saved][g] && is_left(r, g, now)) return true;
  return false;
}

void SavedForBackward::free_values() {
  const std::vector<bool> left = roots_left(nullptr);
  for (size_t i = 0, next = 0; i < layout().saved.size(); ++i) {
    if (layout().saved[i].of != SavedValue::kValue) continue;
    if (!is_read_later(i, left, nullptr)) values_[next].reset_data();
    ++next;
  }
  if (has_any(left)) return;
  inputs_.clear();
  outputs_.clear();
}

void SavedForBackward::release(BackwardCall call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  set_done(call);
  earlier_.push_back(std::move(call));
  free_values();
}

void SavedForBackward::drop(const std::vector<uint32_t>& roots) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto columns = static_cast<ptrdiff_t>(layout().gradients.size() + 1);
  for (uint32_t r : roots) std::fill_n(done_.begin() + r * columns, columns, true);
  free_values();
}

// Whether a gradient that the given roots reach is not wanted.
bool SavedForBackward::is_partial(const BackwardCall& call) const {
  for (size_t r = 0; r < call.given.size(); ++r)
    for (size_t g = 0; call.given[r] && g < call.wanted.size(); ++g)
      if (layout().reaches[r][g] && !call.wanted[g]) return true;
  return false;
}

bool SavedForBackward::is_read(size_t saved, const BackwardCall& call) const {
  return share(layout().readers[saved], call.given) && share(layout().gradient_readers[saved], call.wanted);
}

bool SavedForBackward::is_read_by_plan(const SavedValue& kept, const BackwardCall& call) const {
  for (size_t i = 0; i < layout().saved.size(); ++i)
    if (layout().saved[i].of == kept.of && layout().saved[i].index == kept.index && is_read(i, call)) return true;
  return false;
}

// Throws if eager would. A value that only other gradients need may have been overwritten. Then it is undefined here.
SavedForBackward::AllKept SavedForBackward::all_kept(const BackwardCall& call, torch::autograd::Node& node) const {
  AllKept found;
  bool has_raised = false;
  const auto add = [&](Kept& to, bool is_held, const SavedValue& saved, auto&& unpack) {
    try {
      to.push_back(is_held ? unpack() : at::Tensor());
    } catch (const c10::Error&) {  // an error of a hook passes through
      if (!has_raised) raise_as_eager(call, node);
      if (is_read_by_plan(saved, call)) throw;
      has_raised = true;
      to.emplace_back();
    }
  };
  for (size_t k = 0; k < inputs_.size(); ++k)
    add(found.inputs, is_held(k, call.given), {SavedValue::kInput, layout().kept_inputs[k]},
        [&] { return input_now(k, call.given); });
  for (size_t k = 0; k < outputs_.size(); ++k)
    add(found.outputs, share(layout().output_keepers[k], call.given), {SavedValue::kOutput, layout().kept_outputs[k]},
        [&] { return outputs_[k].unpack(node.getptr()); });
  return found;
}

at::Tensor SavedForBackward::input_now(size_t kept, const std::vector<bool>& given) const {
  try {
    return inputs_[kept].now();
  } catch (const c10::Error&) {
    if (plans_->is_read_itself({SavedValue::kInput, layout().kept_inputs[kept]}, given)) throw;
  }
  return inputs_[kept].even_detached();
}

// What the plan reads; nullopt if an input has other data than the plan was made for. In the last backward the plan's
// handles are the only ones, so that each value is freed after its last use.
std::optional<std::vector<at::Tensor>> SavedForBackward::unpacked(const BackwardCall& call, bool is_last,
                                                                  torch::autograd::Node& node) {
  const auto [inputs, outputs] = all_kept(call, node);
  for (size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k].defined() && inputs_[k].has_other_data(inputs[k])) return std::nullopt;
  const bool partial = is_partial(call);
  const std::vector<bool> left = is_last ? roots_left(&call) : std::vector<bool>();
  std::vector<at::Tensor> values;
  for (size_t i = 0, next = 0; i < layout().saved.size(); ++i) {
    const BackwardLayout::Saved& saved = layout().saved[i];
    SavedVariable* value = saved.of == SavedValue::kValue ? &values_[next++] : nullptr;
    if (partial ? !is_read(i, call) : !share(layout().readers[i], call.given)) {
      values.emplace_back();
    } else if (value != nullptr) {
      values.push_back(has_hooks_ ? shown_values_[next - 1].laid(value->unpack()) : value->unpack());
      if (is_last && !is_read_later(i, left, &call)) value->reset_data();
    } else {
      const bool is_input = saved.of == SavedValue::kInput;
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

// Visits each input of the forward: its place among the kept ones or among the others.
template <class Visit>
void SavedForBackward::for_each_input(Visit&& visit) const {
  for (size_t i = 0, kept = 0, other = 0; i < layout().input_names.size(); ++i) {
    const bool is_kept = kept < layout().kept_inputs.size() && layout().kept_inputs[kept] == i;
    visit(i, is_kept, is_kept ? kept++ : other++);
  }
}

bool SavedForBackward::is_held(size_t kept, const std::vector<bool>& given) const {
  return share(layout().input_keepers[kept], given);
}

std::vector<bool> SavedForBackward::inputs_there(const std::vector<bool>& given) const {
  std::vector<bool> there;
  for_each_input([&](size_t, bool is_kept, size_t at) {
    there.push_back(is_kept ? is_held(at, given) || inputs_[at].is_there() : others_[at].is_there());
  });
  return there;
}

std::vector<at::Tensor> SavedForBackward::inputs_of(const ForwardAgain& forward, const std::vector<bool>& stand_in,
                                                    const std::string& asker) const {
  std::vector<at::Tensor> inputs;
  for_each_input([&](size_t i, bool is_kept, size_t at) {
    if (!forward.reads[i]) inputs.emplace_back();
    else if (stand_in[i]) inputs.push_back(is_kept ? inputs_[at].stand_in() : others_[at].stand_in());
    else inputs.push_back(is_kept ? inputs_[at].before() : others_[at].get(layout().input_names[i], asker));
  });
  return inputs;
}

// outputs: the kept outputs.
std::vector<at::Tensor> SavedForBackward::lost_values(const ForwardAgain& forward, const Kept& outputs,
                                                      const std::string& asker) {
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

// Per input: its other data, if the formulas of these roots hold the input and it has such data; else undefined.
std::vector<at::Tensor> SavedForBackward::other_data(const std::vector<bool>& given) const {
  std::vector<at::Tensor> others;
  for_each_input([&](size_t, bool is_kept, size_t at) {
    others.push_back(is_kept && is_held(at, given) ? inputs_[at].other_data() : at::Tensor());
  });
  return others;
}

constexpr const char* kPlainFromNowOn =
    ". From now on, plain Python runs in place of this compiled code where gradients are recorded: call the function "
    "again.";

// Runs PyTorch's formulas. Those of the plans have no derivative, and take only plain tensors that are laid out as
// planned.
variable_list SavedForBackward::run_again(const variable_list& gradients, const BackwardCall& call, bool is_last,
                                          torch::autograd::Node& node) {
  const Kept outputs = all_kept(call, node).outputs;  // checks the versions
  const std::vector<bool>& given = call.given;
  const std::vector<at::Tensor> others = other_data(given);
  const bool has_others = std::any_of(others.begin(), others.end(), [](const at::Tensor& t) { return t.defined(); });
  const std::string asker = has_others                   ? "a backward after an input got new data"
                            : at::GradMode::is_enabled() ? "create_graph=True"
                            : looks_for_nan()            ? "anomaly detection"
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
  } catch (const std::exception& e) {
    plans_->give_up(e.what());
    if (dynamic_cast<const std::runtime_error*>(&e) == nullptr) throw;
    throw std::runtime_error(std::string(e.what()) + kPlainFromNowOn);
  }
  return backward_of_forward_again(forward, layout(), std::move(inputs), symbols_.data(), gradients, call.wanted,
                                   drawn_, lost, others, at::GradMode::is_enabled(), is_last);
}

}  // namespace framejit::runtime
