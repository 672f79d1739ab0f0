// runtime/aten/forward_again.h — a backward by PyTorch's own engine and formulas, over a forward that runs once more,
// op by op, under autograd.
//
// This serves gradients that have a history themselves (create_graph=True), gradients that are not plain tensors (those
// of vmap: is_grads_batched=True), and inputs that the program has given other data since the forward.
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

// A value of the forward that a backward holds.
struct SavedValue {
  enum Of : uint8_t { kInput, kOutput, kValue } of = kValue;
  uint32_t index = 0;  // of the forward's input or output, or among the values that it saves
};

// The forward as plans of operators: graph/forward_again.h. The first two take the forward's inputs.
struct ForwardAgain {
  std::shared_ptr<const PlanRunner> constants, roots;  // no constants: null
  // If inputs are missing: computes the lost values from what is held. The last outputs of `roots` are their memory.
  std::shared_ptr<const PlanRunner> lost;
  std::vector<SavedValue> held;  // the index of a kValue is one into BackwardLayout::saved
  std::vector<bool> reads;  // per input
};

// inputs: those in `reads`; the others are undefined. tangents: per root, undefined if none is given. wanted: per
// gradient of the layout. drawn: the states of the generators before the forward; empty: it draws nothing. lost: the
// results of ForwardAgain::lost. others: per input, a tensor with the data that the program has given it since the
// forward; undefined: none. is_last: the graph is not retained; the history that the gradients share with it is freed.
std::vector<at::Tensor> backward_of_forward_again(
    const ForwardAgain& forward, const BackwardLayout& layout, std::vector<at::Tensor> inputs, const int64_t* symbols,
    const std::vector<at::Tensor>& tangents, const std::vector<bool>& wanted, const std::vector<GeneratorState>& drawn,
    const std::vector<at::Tensor>& lost, const std::vector<at::Tensor>& others, bool creates_graph, bool is_last);

}  // namespace framejit::runtime
