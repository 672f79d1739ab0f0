// runtime/aten/forward_inputs.h — what a backward holds of its forward's inputs.
//
// `.data = ...`, model.half() and the like give a tensor other data without a new version. What was computed from the
// tensor before, views included, keeps the old data. So an input is more than a tensor object: it is the tensor, its
// memory at the time of the forward, and its sizes and strides over that memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <string>

namespace framejit::runtime {

// How a tensor is laid out in its memory.
class Showing {
 public:
  explicit Showing(const at::Tensor& tensor);
  static Showing dense(const at::Tensor& tensor);  // as empty_like(tensor)
  bool is_of(const at::Tensor& tensor) const;
  at::Tensor over(c10::Storage memory) const;  // without a history
  at::Tensor fresh() const;                    // in memory of its own, not initialised
  // The same elements, laid out as planned. An error if the sizes differ.
  at::Tensor laid(const at::Tensor& tensor) const;

 private:
  bool lies_so(const at::Tensor& tensor) const;  // where it matters

  c10::DispatchKeySet keys_;
  c10::Device device_;
  caffe2::TypeMeta dtype_;
  c10::SmallVector<int64_t, 5> sizes_, strides_;
  int64_t offset_ = 0;
};

// Where the gradient of an input goes.
class InputHistory {
 public:
  explicit InputHistory(const at::Tensor& input);
  at::Tensor given_to(at::Tensor tensor) const;
  bool was_lost_by(const at::Tensor& input) const { return edge_.is_valid() && input.is_leaf(); }  // by detach_()

 private:
  torch::autograd::Edge edge_;  // of an input that is not a leaf
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> leaf_;  // that needs a gradient
};

// An input that eager's formulas hold. They hold the tensor, and read the data that it has when they run. The memory
// that it had in the forward is held too, for values that were computed from it.
class KeptInput {
 public:
  // has_hooks: hooks of the program see what is saved, and may return something else.
  KeptInput(const at::Tensor& input, bool has_hooks);
  at::Tensor now() const { return saved_.unpack(); }  // checks the version, and that nobody has called detach_()
  at::Tensor even_detached() const;  // checks the version
  bool is_there() const;  // it still exists: even_detached() does not throw
  bool has_other_data(const at::Tensor& now) const;
  at::Tensor other_data() const;  // undefined: the input has the data of the forward
  at::Tensor before() const;      // what the forward saw, with the history of the input
  at::Tensor stand_in() const;  // zeros with the history that the input had
  const Showing& shown() const { return shown_; }

 private:
  torch::autograd::SavedVariable saved_;
  InputHistory history_;
  Showing shown_;
  c10::Storage memory_;  // null under hooks
};

// An input that eager would not keep alive, held weakly. If it has died, or shows other data, but another tensor still
// owns its memory, a new tensor over that memory, with the input's history, replaces it.
class OtherInput {
 public:
  explicit OtherInput(const at::Tensor& input);
  // Throws an error with its name if that is not possible, or if the input was written to. asker: what needs it.
  at::Tensor get(const std::string& name, const std::string& asker) const;
  bool is_there() const;        // it still exists: get() does not throw
  at::Tensor stand_in() const;  // zeros with the history that the input had

 private:
  at::Tensor found() const;
  bool was_written() const;

  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
  c10::weak_intrusive_ptr<c10::StorageImpl> memory_;
  at::Tensor number_;  // a 0-dim input without a gradient: kept alive
  c10::Storage memory_of_number_;
  Showing shown_;
  InputHistory history_;
  bool has_memory_ = false;
  c10::VariableVersion counter_;
  int64_t version_ = 0;
};

}  // namespace framejit::runtime
