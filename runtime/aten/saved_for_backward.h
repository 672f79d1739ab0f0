// runtime/aten/saved_for_backward.h — what the nodes of one call of a compiled forward share: what it saved, what of it
// is freed, and the errors that eager's nodes would raise.
#pragma once

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/aten/backward.h"
#include "runtime/aten/forward_inputs.h"

namespace framejit::runtime {

inline bool has_any(const std::vector<bool>& set) { return std::find(set.begin(), set.end(), true) != set.end(); }

// One run of a node.
struct BackwardCall {
  BackwardCall() = default;
  explicit BackwardCall(const BackwardLayout& layout);  // for the run of the engine on this thread
  std::vector<bool> given, wanted;  // per root, per gradient
  bool is_whole = false;  // backward() of everything: eager's nodes that lead to no gradient run too
  int task = -1;
};

class SavedForBackward {
 public:
  using variable_list = torch::autograd::variable_list;
  SavedForBackward(std::shared_ptr<BackwardPlans> plans, const at::Tensor* const* inputs, const int64_t* symbols,
                   const std::vector<at::Tensor>& values, std::vector<GeneratorState> drawn);

  const BackwardLayout& layout() const { return plans_->layout(); }
  void add_root(const at::Tensor& output) { roots_.push_back(Showing::dense(output)); }
  bool has_hooks() const { return has_hooks_; }
  // Call it once the outputs have their history. Saving them as outputs avoids a cycle of references.
  void keep_outputs(const at::Tensor* outputs);
  // Which root an output is; -1: none.
  int64_t root_of(uint32_t output) const;
  // Eager's error, if formulas of these roots hold an output that was detached in place.
  void refuse_detached(uint32_t output, const torch::autograd::SavedVariable& saved,
                       const std::vector<bool>& given) const;

  // node: the node that runs.
  variable_list run(variable_list& gradients, const BackwardCall& call, bool is_last, torch::autograd::Node& node);
  // The graph was not retained: frees the values that no later call reads.
  void release(BackwardCall call);
  // The node of these roots dies.
  void drop(const std::vector<uint32_t>& roots);

 private:
  // Kept inputs and outputs of the call's roots; the others are undefined.
  using Kept = c10::SmallVector<at::Tensor, 16>;
  struct AllKept {
    Kept inputs, outputs;
  };

  bool runs(const BackwardLayout::Holder& holder, const BackwardCall& call) const;
  bool is_freed(const BackwardLayout::Holder& holder, int task) const;
  void raise_as_eager(const BackwardCall& call, torch::autograd::Node& node) const;
  void require_version(const SavedValue& saved, const BackwardCall& call, torch::autograd::Node& node) const;

  bool is_done(size_t root, size_t gradient) const { return done_[root * (layout().gradients.size() + 1) + gradient]; }
  void set_done(const BackwardCall& call);
  // now: a call that is counted as done; null: none.
  bool is_left(size_t root, size_t gradient, const BackwardCall* now) const;
  std::vector<bool> roots_left(const BackwardCall* now) const;
  bool is_read_later(size_t saved, const std::vector<bool>& roots, const BackwardCall* now) const;
  bool is_partial(const BackwardCall& call) const;
  bool is_read(size_t saved, const BackwardCall& call) const;
  void free_values();

  AllKept all_kept(const BackwardCall& call, torch::autograd::Node& node) const;
  at::Tensor input_now(size_t kept, const std::vector<bool>& given) const;
  bool is_read_by_plan(const SavedValue& kept, const BackwardCall& call) const;
  std::optional<std::vector<at::Tensor>> unpacked(const BackwardCall& call, bool is_last, torch::autograd::Node& node);

  template <class Visit>
  void for_each_input(Visit&& visit) const;
  // Whether eager's formulas of these roots hold a kept input.
  bool is_held(size_t kept, const std::vector<bool>& given) const;
  std::vector<bool> inputs_there(const std::vector<bool>& given) const;
  std::vector<at::Tensor> inputs_of(const ForwardAgain& forward, const std::vector<bool>& stand_in,
                                    const std::string& asker) const;
  std::vector<at::Tensor> lost_values(const ForwardAgain& forward, const Kept& outputs, const std::string& asker);
  std::vector<at::Tensor> other_data(const std::vector<bool>& given) const;
  variable_list run_again(const variable_list& gradients, const BackwardCall& call, bool is_last,
                          torch::autograd::Node& node);

  const std::shared_ptr<BackwardPlans> plans_;
  const std::vector<GeneratorState> drawn_;
  const std::vector<int64_t> symbols_;
  std::mutex mutex_;
  // Whether the program has saved-tensor hooks. They may return other tensors than those that were saved.
  const bool has_hooks_ = at::SavedTensorDefaultHooks::get_hooks().has_value();
  std::vector<torch::autograd::SavedVariable> values_, outputs_;
  std::vector<Showing> shown_values_, shown_outputs_;  // with hooks: how the tensors that they return must lie
  std::vector<KeptInput> inputs_;
  std::vector<OtherInput> others_;  // inputs that eager would not keep alive
  std::vector<Showing> roots_;  // how the plan's tangents lie, as empty_like(output)
  // Per root, per gradient, and last for nodes that lead to no gradient: whether this backward has run, or cannot run
  // any more.
  std::vector<bool> done_;
  c10::SmallVector<BackwardCall, 1> earlier_;  // calls that freed what they went through
};

}  // namespace framejit::runtime
