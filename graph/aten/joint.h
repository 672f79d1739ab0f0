// graph/aten/joint.h — the joint graph: a forward and its backward in one recording.
//
// Inputs are added and the forward is recorded (RecordScope, inside a ForwardScope); build() adds a tangent input for
// every output that needs a gradient and lets torch's autograd engine run over the traced tensors, whose ops are
// recorded like any others.
// An input that is not a leaf for the caller is not one here either (it may be written in place). Its history ends in a
// hidden leaf, whose gradient is that of the input. Backward nodes have no user line. Only one thread at a time may use
// an instance.
#pragma once

#include <ATen/SavedTensorHooks.h>
#include <c10/core/AutogradState.h>

#include <memory>
#include <string>
#include <vector>

#include "graph/aten/formulas.h"
#include "graph/aten/recorder.h"
#include "graph/aten/user_function.h"
#include "graph/joint.h"

namespace framejit::graph {

struct JointGraph {
  Graph graph;
  JointLayout layout;
};

// A backward() or grad() that the recorded program calls itself.
struct InnerBackward {
  std::vector<at::Tensor> outputs, given;  // given: the gradient of each output
  std::vector<at::Tensor> wanted;  // empty: all leaves that the outputs were computed from
  bool accumulates = false;                // each gradient gets memory of its own, as AccumulateGrad makes it
  bool keeps_graph = false, creates_graph = false;
};
struct InnerGradients {
  std::vector<at::Tensor> of, gradients;  // a gradient is undefined if the outputs do not depend on the tensor
};

class JointRecording {
 public:
  explicit JointRecording(std::shared_ptr<Recorder> recorder) : recorder_(std::move(recorder)) {}

  // Returns what the program sees. An input that needs a gradient may be one that the recording has seen before.
  at::Tensor add_input(const at::Tensor& real, const std::string& source, const DynamicExtents& dynamic = {});
  // Whether the history of an input has changed since it was added: the program wrote to it under autograd.
  bool has_new_history(size_t input) const;

  // Makes a tensor of the program that has no history a leaf that needs a gradient. It must not be an output: gradients
  // that arrive from outside would be lost.
  void add_leaf(const at::Tensor& made);
  bool is_added_leaf(const at::Tensor& tensor) const;

  // Inputs that the outputs were computed from; with_history: only those that have a history.
  std::vector<size_t> inputs_reached(const std::vector<at::Tensor>& outputs, bool with_history) const;
  // Call this, is_freed() and build() without the GIL: the engine refuses to run under it. They throw what the engine
  // throws, after dropping the ops of the call; a capture break is then kept by the recorder.
  InnerGradients gradients(const InnerBackward& call);
  bool has_freed() const { return has_freed_; }  // whether a call of gradients() has freed history
  // Whether a backward of the tensor would need freed history. It would raise eager's error.
  bool is_freed(const at::Tensor& tensor);
  std::string name_of_history(const at::Tensor& tensor);  // what eager calls the node that made it

  // Which of `views` have a gradient of their own in eager: other outputs are computed from them, they are computed
  // from such views, or their history does not lead to their base. `views` and the result are per output; roots: which
  // other outputs have a history. Call it inside a RecordScope and a ForwardScope.
  std::vector<bool> views_on_the_way(const std::vector<at::Tensor>& outputs, const std::vector<bool>& roots,
                                     const std::vector<bool>& views) const;

  // An error: the recording cannot be finished.
  // is_root: per output, whether its tangent is its whole gradient. If empty, each output that needs a gradient has a
  // tangent, which is only the part that arrives from outside the graph.
  Result<JointGraph> build(const std::vector<at::Tensor>& outputs, const std::vector<bool>& is_root = {});

 private:
  struct Root {
    at::Tensor output, tangent, part;  // part: a leaf that stands for the output in other roots
  };
  // Gradients in the engine's order. The layout gets what each is for, and which roots lead to it.
  std::vector<at::Tensor> run_backward(const std::vector<Root>& roots, const std::vector<at::Tensor>& all_outputs,
                                       JointLayout& layout);
  at::Tensor add_tangent(const at::Tensor& output, size_t index);
  void part_roots(std::vector<Root>& roots) const;
  bool leads_to_base(const at::Tensor& view) const;
  int64_t input_of_leaf(const torch::autograd::Node& leaf) const;
  std::vector<at::Tensor> run_engine(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& wanted,
                                     const std::vector<at::Tensor>& given, bool keeps_graph, bool creates_graph);
  std::vector<at::Tensor> leaves_reached(const std::vector<at::Tensor>& outputs) const;

  std::shared_ptr<Recorder> recorder_;
  std::vector<at::Tensor> leaves_;  // per input: the leaf that gets its gradient; undefined: it needs none
  std::vector<at::Tensor> visible_;  // per input: what the program sees
  std::vector<at::Tensor> added_leaves_;
  bool has_freed_ = false;
  Formulas formulas_;
  ReachedFunctions functions_;  // of the finished recording
};

// Open while the forward runs. Autograd then remembers views by the op that made them, not as as_strided, and the
// program's hooks on saved tensors do not see traced ones.
class ForwardScope {
 public:
  ForwardScope() : views_(c10::AutogradState::get_tls_state().get_view_replay_enabled()) {
    c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
    hooks_ = at::SavedTensorDefaultHooks::get_tls_state();
    at::SavedTensorDefaultHooks::set_tls_state({});
  }
  ~ForwardScope() {
    c10::AutogradState::get_tls_state().set_view_replay_enabled(views_);
    at::SavedTensorDefaultHooks::set_tls_state(hooks_);
  }
  ForwardScope(const ForwardScope&) = delete;

 private:
  const bool views_;
  at::impl::SavedTensorDefaultHooksTLS hooks_;
};

}  // namespace framejit::graph
