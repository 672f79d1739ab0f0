// runtime/aten/backward.h — the backward of a compiled forward as nodes of torch's autograd graph.
//
// The outputs with a history are its roots. Roots that share formulas belong to one node, which runs one plan for the
// gradients that have arrived. A root from which others are computed belongs to a later node, so that its hooks see its
// whole gradient, as in eager. The nodes hold what the forward saved. Inputs and outputs are held as torch's own nodes
// hold them: a write to one of them between forward and backward is eager's error, and saved-tensor hooks run. A plan
// is made when the engine first needs it: one for each set of gradients that are given and wanted.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/aten/forward_again.h"
#include "runtime/aten/plan_runner.h"

namespace framejit::runtime {

// What is the same in all calls.
struct BackwardLayout {
  using Saved = SavedValue;
  struct Gradient {
    bool is_of_root = false;
    uint32_t index = 0;  // of the forward's input, or among the roots
  };
  std::vector<Saved> saved;          // in the order of the plans' saved values
  std::vector<uint32_t> roots;       // outputs of the forward whose gradients the backward takes, in their order
  std::vector<int64_t> written;      // per root: the input whose new value it is; -1: none
  std::vector<uint32_t> groups;      // per root: those of one group belong to one node
  std::vector<Gradient> gradients;   // that the plans give, in the order in which eager's arrive
  std::vector<std::vector<bool>> reaches;  // per root, per gradient
  std::vector<uint32_t> partly_reached;  // gradients of inputs that some roots of a group reach and others do not
  std::vector<uint32_t> kept_inputs, kept_outputs;  // eager would hold these and check their versions
  std::vector<int64_t> kept_versions;  // per kept output, as `versions`
  std::vector<std::vector<bool>> input_keepers, output_keepers;  // per kept tensor, per root: its backward checks it
  // A node of eager's that holds something. It runs for a root that is given and a gradient that is wanted. If it leads
  // to no gradient, it runs in a backward of everything.
  struct Holder {
    std::vector<bool> roots, gradients;
    std::vector<SavedValue> versions;  // inputs and outputs
    // Eager's error after a write to one of them, if it is not the usual one.
    std::vector<std::pair<SavedValue, std::string>> write_errors;
    bool is_end() const { return std::find(gradients.begin(), gradients.end(), true) == gradients.end(); }
  };
  std::vector<Holder> holders;  // in eager's order
  std::vector<bool> ends;  // per root: whether a holder that it reaches leads to no gradient
  std::vector<std::vector<bool>> readers;  // per saved value, per root: whether the root's backward reads the value
  std::vector<std::vector<bool>> gradient_readers;  // per saved value, per gradient: whether it depends on the value
  std::vector<std::string> names;    // per root: of eager's node
  std::vector<int64_t> versions;  // per root: the version in the output's own counter; -1: it has none
  bool draws = false;                // random numbers, in the forward
  std::vector<std::string> input_names;  // of the forward
  size_t symbol_count = 0, output_count = 0;
};

class BackwardPlans {
 public:
  virtual ~BackwardPlans() = default;
  virtual const BackwardLayout& layout() const = 0;
  // Any thread, with or without the GIL. given: per root; wanted: per gradient. Throws if no plan can be made.
  virtual std::shared_ptr<const PlanRunner> plan_for(const std::vector<bool>& given,
                                                     const std::vector<bool>& wanted) = 0;
  // Whether formulas of these roots read this very input or output, and not another tensor in its memory.
  virtual bool is_read_itself(const SavedValue& saved, const std::vector<bool>& given) const = 0;
  virtual Result<ForwardAgain> forward_again() = 0;
  // The same, if inputs that it reads are missing. `there`: inputs that still exist. given: per root.
  virtual Result<ForwardAgain> forward_again(const std::vector<bool>& missing, const std::vector<bool>& there,
                                             const std::vector<bool>& given) = 0;

  // A differentiable backward was wanted and is impossible: from now on, plain Python runs in place of the forward.
  void give_up(const std::string& why) {
    std::call_once(once_, [&] { why_ = why, has_given_up_ = true; });
  }
  bool has_given_up() const { return has_given_up_; }
  const std::string& why_given_up() const { return why_; }  // once it has

 private:
  std::once_flag once_;
  std::string why_;
  std::atomic<bool> has_given_up_ = false;
};

// The states before the forward of the generators that it draws from.
std::vector<GeneratorState> drawn_states(const BackwardPlans& plans, const PlanRunner& forward);

// Gives the roots among `outputs` a history whose node runs `plans`. inputs, outputs: of the forward; values: what it
// saved.
void record_backward(std::shared_ptr<BackwardPlans> plans, const at::Tensor* const* inputs, const int64_t* symbols,
                     at::Tensor* outputs, std::vector<at::Tensor> values, std::vector<GeneratorState> drawn);

// Whether an input whose history would change is a view: then plain Python must run.
bool changes_history_of_view(const BackwardPlans& plans, const at::Tensor* const* inputs);

}  // namespace framejit::runtime
