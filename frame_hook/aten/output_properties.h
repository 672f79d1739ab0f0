// frame_hook/aten/output_properties.h — properties of outputs that a plan does not keep, because a plan computes only
// values: which outputs are the same object, what each is a view of, whose version counter it shares, the value of that
// counter, and the modes (grad, inference) under which the output was made.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "frame_hook/aten/input_versions.h"
#include "frame_hook/trace/torch/tensor_frontend.h"
#include "graph/sym_expr.h"

namespace framejit::frame_hook {

// The op by which the program made a view of its base, so that its node has eager's name and attributes.
struct ViewOp {
  std::unique_ptr<torch::autograd::ViewFunc> function;  // with the numbers of the trace
  std::vector<graph::SymExpr> numbers;                  // empty: they never change

  at::Tensor view(const at::Tensor& base, std::span<const int64_t> symbols) const;
};

struct OutputProperties {
  enum class Of : uint8_t { kNothing, kInput, kOutput };
  bool is_input = false;         // the input's own object
  bool inference = false;
  bool view = false;             // as autograd records it: it has a _base
  bool history = false;          // autograd has recorded how it was made
  bool own_history = false;  // of a view: it has a gradient of its own, because other outputs are computed from it, or
                             // its history does not lead to its base
  bool new_history = false;      // an input that the program wrote to under autograd
  bool shares_input = false;     // memory, with any input
  bool shares_output = false;    // memory, with an earlier output
  Of of = Of::kNothing;          // the _base of a view; else the tensor whose version counter it shares
  size_t index = 0;              // of that input or output
  int64_t version = -1;          // of its own counter; -1 if it has none
  uint32_t writes_since = 0;     // of a view: writes to the memory since it was made
  torch::autograd::CreationMeta creation = torch::autograd::CreationMeta::DEFAULT;  // of a view
  bool by_strides = false;  // a view whose memory was written since: eager makes it again
  bool has_other_sign = false;  // shows negated numbers of memory that others see: kernels make a copy of it
  std::shared_ptr<const ViewOp> op;  // of a view that has a history or the other sign; null: it is made by strides
  std::string freed;  // the name of its history, if a backward of the program has freed that
  std::vector<size_t> freed_inputs;  // what that history leads to
};

// The outputs of a graph: each tensor that the program returns, once, and the bases of returned views if nothing else
// keeps them alive.
struct OutputSet {
  std::vector<at::Tensor> tensors;    // traced, a _base before its views
  std::vector<OutputProperties> properties;  // of `tensors`
  std::vector<size_t> returned;       // for each returned tensor, its index in `tensors`
  std::vector<WrittenInput> written;
  // Inputs whose gradients the graph computes: they must be distinct and have no hooks.
  std::vector<size_t> unhooked;
  // Pairs of inputs: the graph computes the gradient of the second, so the history of the first must not lead to it.
  std::vector<std::pair<size_t, size_t>> apart;
  std::vector<size_t> unviewed;  // inputs that must not be a leaf and a view at once
  size_t symbol_count = 0;
  // Per tensor: whether it receives a gradient. That of a view goes to its base, unless the view has own_history.
  std::vector<bool> roots() const;
  std::vector<bool> views() const;  // per tensor: whether its gradient may go to a base
  // For a traced input that was written: it takes over the history of the written values.
  void add_written(const at::Tensor& input);
};

// Whether the tensor is a leaf and also a view of a tensor that needs no gradient. Autograd treats views of it as views
// of that tensor.
bool is_leaf_view(const at::Tensor& tensor);
// Whether eager raises when the history of this view is asked for: an op that returns several views, or a custom
// Function, made it, and its memory was written later.
bool is_unusable_view(const at::Tensor& tensor);

OutputSet outputs_of(const std::vector<at::Tensor>& handed_out, const std::vector<at::Tensor>& traced_inputs,
                     const std::vector<size_t>& written_inputs);
// Wraps a call that makes `outputs.tensors` into one that makes the tensors that the program returned.
std::unique_ptr<CompiledCall> with_output_properties(std::unique_ptr<CompiledCall> call, OutputSet outputs,
                                                     size_t inputs);

}  // namespace framejit::frame_hook
