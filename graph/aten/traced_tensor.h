// graph/aten/traced_tensor.h — the tensor without data that stands for a graph value while code is traced.
//
// A TracedTensorImpl has the device, dtype, sizes and strides of its value, the dispatch keys of its device plus Fake,
// and an empty storage: reading the data (data_ptr, numpy, foreign kernels) is a capture break. Values that alias share
// the storage object. Torch's shape functions see meta twins: plain meta tensors whose storages mirror the traced ones.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace framejit::graph {

class Recorder;
class SymOwner;

class TracedTensorImpl final : public c10::TensorImpl {
 public:
  TracedTensorImpl(std::shared_ptr<Recorder> recorder, c10::Storage storage, caffe2::TypeMeta dtype,
                   c10::Device device);
  // A view takes the key set of its base: in inference mode, a view of a normal tensor is a normal tensor.
  TracedTensorImpl(std::shared_ptr<Recorder> recorder, c10::Storage storage, c10::DispatchKeySet base_keys,
                   caffe2::TypeMeta dtype, c10::Device device);

  void set_shape(const TensorMeta& meta);
  void settle();  // sizes and strides that are symbols become constants, with facts
  Recorder& recorder() const { return *recorder_; }

  ValueId value = kNoValue;
  int32_t input = -1;   // index of the input that this object stands for; copies do not inherit it

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                              bool allow_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                              bool allow_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& source) override;
  const char* tensorimpl_type_name() const override { return "framejit::TracedTensorImpl"; }

 protected:
  // C++ code that calls these asks for numbers. A symbol becomes a constant, with a fact, unless SymbolsStay.
  c10::IntArrayRef sizes_custom() const override;
  c10::IntArrayRef strides_custom() const override;
  int64_t size_custom(int64_t d) const override;
  int64_t numel_custom() const override;
  // No guard checks the storage offset unless the trace depends on it, so every reader of it is noted here.
  int64_t storage_offset_custom() const override;
  c10::SymInt sym_storage_offset_custom() const override;

 private:
  template <class Version> c10::intrusive_ptr<c10::TensorImpl> copy(Version&& version, bool allow_change) const;
  bool is_open() const;  // has symbols, in a recording that is not finished
  std::shared_ptr<Recorder> recorder_;
};

// Null for everything else, undefined tensors included.
TracedTensorImpl* as_traced(const at::TensorBase& tensor);

// A storage without memory on `device`; asking it for a mutable pointer is a capture break.
c10::Storage make_traced_storage(int64_t bytes, c10::Device device);

// Storages of one recording. One traced storage stands for each real storage, so that inputs that alias still alias.
class TracedStorages {
 public:
  // The number of a traced storage; `fresh` gives that of a new one.
  uint32_t number_of(const c10::Storage& traced, const std::function<uint32_t()>& fresh);
  const c10::Storage& stand_in(const c10::Storage& real);
  // A meta-device companion of a traced storage, and back; the companion of nothing is null.
  const c10::Storage& twin_of(const c10::Storage& traced);

 private:
  std::unordered_map<const void*, uint32_t> numbers_;
  std::unordered_map<const void*, c10::Storage> stand_ins_, twins_;
  std::vector<c10::Storage> alive_;  // so that addresses are not reused
};

// A meta tensor of the given concrete shape on the companion storage.
at::Tensor make_meta_twin(c10::Storage twin_storage, caffe2::TypeMeta dtype, c10::IntArrayRef sizes,
                          c10::IntArrayRef strides, int64_t offset);
at::Tensor make_symbolic_meta_twin(c10::Storage twin_storage, caffe2::TypeMeta dtype, const TensorMeta& meta,
                                   const std::shared_ptr<SymOwner>& owner);

// While it lives, C++ code on this thread that asks a tensor of symbols for numbers gets torch's own error. Error texts
// name sizes, but that is no reason to make the sizes constants.
class SymbolsStay {
 public:
  SymbolsStay();
  ~SymbolsStay();
  SymbolsStay(const SymbolsStay&) = delete;

 private:
  bool outer_;
};

}  // namespace framejit::graph
