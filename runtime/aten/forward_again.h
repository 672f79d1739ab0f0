// runtime/aten/forward_again.h — a backward by PyTorch's own engine and formulas, over a forward that runs once more,
// op by op, under autograd.
//
// For gradients that have a history themselves (create_graph=True), and for those that are no plain tensors (of vmap:
// is_grads_batched=True).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/aten/plan_runner.h"
#include "runtime/aten/random_state.h"

namespace framejit::runtime {

struct BackwardLayout;

// What a backward has of its forward.
struct SavedValue {
  enum Of : uint8_t { kInput, kOutput, kValue } of = kValue;
  uint32_t index = 0;  // of the forward's input or output, or among the values that it saves
};

// The forward as plans of operators: graph/forward_replay.h. The first two take the forward's inputs.
struct ForwardAgain {
  std::shared_ptr<const PlanRunner> constants, roots;  // no constants: null
  // With missing inputs: what is lost by that, computed from what is held. The last outputs of `roots` are its memory.
  std::shared_ptr<const PlanRunner> lost;
  std::vector<SavedValue> held;  // kValue: by the place in BackwardLayout::saved
  std::vector<bool> reads;  // per input
};

// An input that eager would not keep alive, held weakly. If it has died but another tensor still owns its memory, a new
// tensor over that memory, with the input's history, replaces it.
class OtherInput {
 public:
  explicit OtherInput(const at::Tensor& input);
  // Throws an error with its name if that is not possible, or if the input was written to.
  at::Tensor get(const std::string& name) const;
  bool is_there() const;  // and get() does not throw
  at::Tensor stand_in() const;  // zeros with the history that the input had

 private:
  at::Tensor found() const;
  bool was_written() const;
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  at::Tensor strong_;  // a number
  c10::DispatchKeySet keys_;
  c10::Device device_{c10::kCPU};
  caffe2::TypeMeta dtype_;
  c10::SmallVector<int64_t, 5> sizes_, strides_;
  int64_t offset_ = 0;
  torch::autograd::Edge history_;
  bool is_leaf_ = false;  // that needs a gradient
  c10::VariableVersion counter_;
  int64_t version_ = 0;
};

// inputs: those that `reads` says, the others undefined. tangents: per root, undefined where none is given. wanted: per
// gradient of the layout. drawn: the states of the generators before the forward; empty: it draws nothing. lost: the
// results of ForwardAgain::lost.
std::vector<at::Tensor> backward_of_forward_again(const ForwardAgain& forward, const BackwardLayout& layout,
                                                  std::vector<at::Tensor> inputs, const int64_t* symbols,
                                                  const std::vector<at::Tensor>& tangents,
                                                  const std::vector<bool>& wanted,
                                                  const std::vector<GeneratorState>& drawn,
                                                  const std::vector<at::Tensor>& lost, bool creates_graph);

}  // namespace framejit::runtime
