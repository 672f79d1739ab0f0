// graph/aten/meta_call.h — one op's shapes from torch's own shape functions.
//
// Arguments are replaced by meta twins of concrete shape. The results are trusted for dtype, sizes, strides and whether
// they share an argument's storage. If a written argument's twin has another shape afterwards, the argument changes its
// shape too. Hand-written shape functions (the dispatcher's) disagree with the CPU kernels in some cases. Those in
// Python, which C++ ones may call, are slow and import half of torch. So an op of torch on a CPU is run in place of
// them, on zeros. A small op with a typed shape function is run too if our rule does not cover the call.
// The Python shape function of an op that is not torch's own is first called with symbols: such functions allocate what
// the kernel would, and torch can do that for symbols as well as for numbers.
#pragma once

#include "graph/aten/recorder.h"

namespace framejit::graph {

inline bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

template <class F> void each_tensor(const c10::IValue& value, F&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorList())
      if (t.defined()) visit(t);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef())
      if (item.isTensor() && item.toTensor().defined()) visit(item.toTensor());
  }
}

// What an op that is run for its shapes is given: matrices of zeros and of ones have no inverse.
enum class Filling : uint8_t { kZeros, kOnes, kIdentity };

class MetaCall {
 public:
  MetaCall(Recorder& recorder, OpCall& call) : recorder_(recorder), call_(call) {}
  ShapeOrigin run();
  // With twins of symbolic shape; nullopt if the result says nothing about other sizes.
  std::optional<ShapeOrigin> run_with_symbols();
  // The results of one of torch's own ops on zeros, ones or unit matrices. nullopt if the op must not or cannot be run:
  // its tensors may be large; a user's kernel may have effects, and may not accept such values. If the op raises for
  // all of them, eager raises too. Then the recording ends here, and plain Python raises the error.
  std::optional<torch::jit::Stack> execute() const;

 private:
  struct Twin { at::Tensor argument, meta; };

  c10::IValue meta_argument(size_t index);
  c10::IValue symbolic_argument(size_t index);
  bool may_hold_for_other_sizes(const torch::jit::Stack& results) const;
  at::Tensor twin_of(const at::Tensor& tensor);
  ShapeOrigin call_meta(torch::jit::Stack& stack);
  ShapeOrigin meta_or_break(torch::jit::Stack& stack);
  TensorMeta meta_of_argument(const at::Tensor& tensor) const;
  torch::jit::Stack run_on(Filling filling, std::vector<Twin>& made) const;
  std::optional<torch::jit::Stack> run_on_fillings(std::vector<Twin>& made) const;
  std::optional<ShapeOrigin> run_in_place_of_shape_function();
  bool may_execute() const;
  void correct_by_execution(torch::jit::Stack& metas) const;
  void apply_shape_changes();
  void add_results(torch::jit::Stack& stack);
  at::Tensor result_of(const at::Tensor& meta);
  void name_result(const at::Tensor& result);

  Recorder& recorder_;
  OpCall& call_;
  std::vector<Twin> twins_;
  bool with_symbols_ = false, is_executed_ = false;
};

}  // namespace framejit::graph
