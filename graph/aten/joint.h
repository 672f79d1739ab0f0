// graph/aten/joint.h — the joint graph: a forward and its backward in one recording.
//
// Inputs are added and the forward is recorded (RecordScope, inside a ForwardScope); finish() adds a tangent input for
// every output that needs a gradient and lets torch's autograd engine run over the traced tensors, whose ops are
// recorded like any others.
// An input that is no leaf in the caller is none here (it may be written in place); its gradient is that of a hidden
// leaf behind it. Backward nodes have no user line. An instance is used by one thread at a time.
#pragma once

#include <c10/core/AutogradState.h>

#include <memory>
#include <string>
#include <vector>

#include "graph/aten/recorder.h"

namespace framejit::graph {

// Inputs of the graph: those of the forward, then one tangent per entry of `tangents`.
// Outputs: those of the forward, then the gradients that exist.
struct JointGraph {
  Graph graph;
  size_t forward_inputs = 0, forward_outputs = 0, forward_nodes = 0;
  std::vector<uint32_t> tangents;        // which forward output each tangent belongs to
  std::vector<int32_t>
      gradient_output;  // per forward input: the output that is its gradient; -1: it needs none or gets none
};

class JointRecording {
 public:
  explicit JointRecording(std::shared_ptr<Recorder> recorder) : recorder_(std::move(recorder)) {}

  at::Tensor add_input(const at::Tensor& real, const std::string& source, const DynamicExtents& dynamic = {});

  // Call without the GIL: the engine refuses to run under it. Throws what the backward throws, after dropping its ops;
  // a capture break is then kept by the recorder. An error: the recording cannot be finished.
  Result<JointGraph> finish(const std::vector<at::Tensor>& outputs);

 private:
  std::vector<at::Tensor> run_backward(const std::vector<at::Tensor>& roots,
                                       const std::vector<at::Tensor>& tangents) const;
  at::Tensor add_tangent(const at::Tensor& output, size_t index);

  std::shared_ptr<Recorder> recorder_;
  std::vector<at::Tensor> leaves_;  // per input: what the engine is asked for; undefined: needs no gradient
};

// Open while the forward runs: autograd remembers views by the op that made them, not as as_strided.
class ForwardScope {
 public:
  ForwardScope() : outer_(c10::AutogradState::get_tls_state()) {
    c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
  }
  ~ForwardScope() { c10::AutogradState::set_tls_state(outer_); }
  ForwardScope(const ForwardScope&) = delete;

 private:
  c10::AutogradState outer_;
};

}  // namespace framejit::graph
