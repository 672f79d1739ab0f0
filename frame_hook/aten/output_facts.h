// frame_hook/aten/output_facts.h — what the program left on its outputs and a plan, which computes values, would not
// say: which are one object and which are not, what each is a view of, whose version counter it shares and what that
// counts, and the marks of the modes that it was made under.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "frame_hook/trace/torch/tensor_frontend.h"

namespace framejit::frame_hook {

struct OutputFacts {
  enum class Of : uint8_t { kNothing, kInput, kOutput };
  bool is_input = false;         // the input's own object
  bool inference = false;
  bool view = false;             // with bookkeeping: it has a _base
  bool history = false;          // autograd has recorded how it was made
  bool new_history = false;      // an input that the program wrote to under autograd
  bool shares_input = false;     // memory, with any input
  bool shares_output = false;    // memory, with an output before it
  Of of = Of::kNothing;          // the _base of a view; of another tensor, whose version counter it shares
  size_t index = 0;              // of that input or output
  int64_t version = -1;          // of a counter of its own; -1 without one
  uint32_t writes_since = 0;     // a view's: writes to the memory after it was made
  torch::autograd::CreationMeta creation = torch::autograd::CreationMeta::DEFAULT;  // a view's
};

// A graph's outputs are the tensors the program hands out, each once, and the ones these are views of where nothing
// else keeps them.
struct OutputSet {
  struct Written {
    size_t input;
    int64_t versions;  // that the program advanced its counter by
  };
  std::vector<at::Tensor> tensors;    // traced, a _base before its views
  std::vector<OutputFacts> facts;     // of `tensors`
  std::vector<size_t> returned;       // for each tensor handed out, its place in `tensors`
  std::vector<Written> written;
  // Per tensor: whether a gradient comes in for it. That of a view goes to what it is a view of.
  std::vector<bool> roots() const;
  // A traced input, whose history becomes that of what was written.
  void add_written(const at::Tensor& input);
};

OutputSet outputs_of(const std::vector<at::Tensor>& handed_out, const std::vector<at::Tensor>& traced_inputs,
                     const std::vector<size_t>& written_inputs);
// A call that makes what was handed out from a call that makes `outputs.tensors`.
std::unique_ptr<CompiledCall> with_output_facts(std::unique_ptr<CompiledCall> call, OutputSet outputs, size_t inputs);

}  // namespace framejit::frame_hook
