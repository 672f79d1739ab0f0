// graph/aten/traced_tensor.cpp — traced tensors, their storages, meta twins.
#include "graph/aten/traced_tensor.h"

#include "graph/aten/capture_break.h"
#include "graph/aten/composites.h"
#include "graph/aten/recorder.h"
#include "runtime/aten/torch_version.h"
#include "graph/aten/torch_values.h"

namespace framejit::graph {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

DispatchKeySet traced_keys(c10::Device device) {
  return DispatchKeySet(device.is_cuda() ? DispatchKey::CUDA : DispatchKey::CPU)
      .add(DispatchKey::Fake)
      .add(kCompositesKey);
}

// Returns null pointers; kernels that only look at sizes never notice.
struct NullAllocator final : c10::Allocator {
  static void release(void*) {}
  c10::DataPtr allocate(size_t) override { return {nullptr, nullptr, &release, c10::Device(c10::kMeta)}; }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, size_t) const override {}
};
NullAllocator g_null_allocator;

thread_local bool t_symbols_stay = false;

c10::intrusive_ptr<c10::StorageImpl> empty_storage(int64_t bytes, c10::Device device) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(bytes),
                                               c10::DataPtr(nullptr, device), &g_null_allocator,
                                               /*resizable=*/true);
}

// Only mutable access is guarded: meta functions read const pointers (is_alias_of) but do not use them.
void data_was_read(c10::StorageImpl*) {
  note_break_on_thread({Reason::data_dependent_value, "code that reads the memory of a tensor"});
}

struct MetaTwinImpl final : c10::TensorImpl {
  MetaTwinImpl(c10::Storage storage, caffe2::TypeMeta dtype)
      : c10::TensorImpl(DispatchKeySet(DispatchKey::Meta), dtype, c10::Device(c10::kMeta)) {
    storage_ = std::move(storage);
  }
};

}  // namespace

TracedTensorImpl::TracedTensorImpl(std::shared_ptr<Recorder> recorder, c10::Storage storage, caffe2::TypeMeta dtype,
                                   c10::Device device)
    : c10::TensorImpl(traced_keys(device), dtype, device), recorder_(std::move(recorder)) {
  storage_ = std::move(storage);
  set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
}

TracedTensorImpl::TracedTensorImpl(std::shared_ptr<Recorder> recorder, c10::Storage storage, DispatchKeySet base_keys,
                                   caffe2::TypeMeta dtype, c10::Device device)
    : c10::TensorImpl(ImplType::VIEW, std::move(storage), base_keys.add(DispatchKey::Fake).add(kCompositesKey), dtype),
      recorder_(std::move(recorder)) {
  device_opt_ = device;
  set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
}

SymbolsStay::SymbolsStay() : outer_(t_symbols_stay) { t_symbols_stay = true; }

SymbolsStay::~SymbolsStay() { t_symbols_stay = outer_; }

bool TracedTensorImpl::is_open() const { return has_symbolic_sizes_strides() && recorder_->live() && !t_symbols_stay; }

void TracedTensorImpl::settle() {
  if (!is_open()) return;
  std::vector<int64_t> sizes, strides;
  for (const c10::SymInt& size : sym_sizes()) sizes.push_back(size.guard_int(__FILE__, __LINE__));
  for (const c10::SymInt& stride : sym_strides()) strides.push_back(stride.guard_int(__FILE__, __LINE__));
  const int64_t offset = TensorImpl::sym_storage_offset_custom().guard_int(__FILE__, __LINE__);
  has_symbolic_sizes_strides_ = false;
  set_sizes_and_strides(sizes, strides, offset);
}

c10::IntArrayRef TracedTensorImpl::sizes_custom() const {
  const_cast<TracedTensorImpl*>(this)->settle();
  return TensorImpl::sizes_custom();
}

c10::IntArrayRef TracedTensorImpl::strides_custom() const {
  const_cast<TracedTensorImpl*>(this)->settle();
  return TensorImpl::strides_custom();
}

int64_t TracedTensorImpl::size_custom(int64_t d) const {
  return is_open() ? sym_size(d).guard_int(__FILE__, __LINE__) : TensorImpl::size_custom(d);
}

int64_t TracedTensorImpl::numel_custom() const {
  return is_open() ? sym_numel().guard_int(__FILE__, __LINE__) : TensorImpl::numel_custom();
}

int64_t TracedTensorImpl::storage_offset_custom() const {
  recorder_->offset_is_read(storage_);
  return is_open() ? TensorImpl::sym_storage_offset_custom().guard_int(__FILE__, __LINE__) : storage_offset_default();
}

c10::SymInt TracedTensorImpl::sym_storage_offset_custom() const {
  recorder_->offset_is_read(storage_);
  return TensorImpl::sym_storage_offset_custom();
}

void TracedTensorImpl::set_shape(const TensorMeta& meta) {
  bool symbolic = !meta.offset.is_constant();
  for (size_t i = 0; i < meta.ndim(); ++i)
    symbolic = symbolic || !meta.sizes[i].is_constant() || !meta.strides[i].is_constant();
  if (symbolic) {
    const auto sizes = sym_ints_of(meta.sizes, recorder_), strides = sym_ints_of(meta.strides, recorder_);
    set_sizes_and_strides(c10::SymIntArrayRef(sizes), c10::SymIntArrayRef(strides), sym_int_of(meta.offset, recorder_));
    // Torch's check for memory before a read looks at this field alone, and takes 0 for a tensor that needs none.
    numel_ = 1;
    return;
  }
  c10::SmallVector<int64_t, 5> sizes, strides;
  for (size_t i = 0; i < meta.ndim(); ++i) {
    sizes.push_back(meta.sizes[i].constant());
    strides.push_back(meta.strides[i].constant());
  }
  set_sizes_and_strides(sizes, strides, meta.offset.constant());
}

template <class Version>
c10::intrusive_ptr<c10::TensorImpl> TracedTensorImpl::copy(Version&& version, bool allow_change) const {
  auto result = c10::make_intrusive<TracedTensorImpl>(recorder_, storage_, data_type_, *device_opt_);
  copy_tensor_metadata(this, result.get(), std::forward<Version>(version), allow_change);
  result->value = value;
  return result;
}

c10::intrusive_ptr<c10::TensorImpl> TracedTensorImpl::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                              bool allow_change) const {
  return copy(version, allow_change);
}
c10::intrusive_ptr<c10::TensorImpl> TracedTensorImpl::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                              bool allow_change) const {
  return copy(std::move(version), allow_change);
}

void TracedTensorImpl::shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& source) {
  // x.data = y: the object now stands for something else, which no graph output can express.
  (void)source;
  note_break_on_thread({Reason::unsupported_op, "assignment to .data"});
}

TracedTensorImpl* as_traced(const at::TensorBase& tensor) {
  if (!tensor.defined()) return nullptr;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has(DispatchKey::Fake)) return nullptr;
  return dynamic_cast<TracedTensorImpl*>(impl);
}

c10::Storage make_traced_storage(int64_t bytes, c10::Device device) {
  auto storage = empty_storage(bytes, device);
  runtime::note_data_read(*storage, &data_was_read);
  return c10::Storage(std::move(storage));
}

uint32_t TracedStorages::number_of(const c10::Storage& traced, const std::function<uint32_t()>& fresh) {
  const auto [at, inserted] = numbers_.try_emplace(traced.unsafeGetStorageImpl(), 0);
  if (inserted) {
    at->second = fresh();
    alive_.push_back(traced);
  }
  return at->second;
}

const c10::Storage& TracedStorages::stand_in(const c10::Storage& real) {
  c10::Storage& traced = stand_ins_[real.unsafeGetStorageImpl()];
  if (!traced) {
    alive_.push_back(real);
    traced = make_traced_storage(static_cast<int64_t>(real.nbytes()), real.device());
  }
  return traced;
}

const c10::Storage& TracedStorages::twin_of(const c10::Storage& traced) {
  c10::Storage& twin = twins_[traced.unsafeGetStorageImpl()];
  if (!twin) {
    alive_.push_back(traced);
    twin = c10::Storage(empty_storage(static_cast<int64_t>(traced.nbytes()), c10::Device(c10::kMeta)));
  }
  return twin;
}

at::Tensor make_meta_twin(c10::Storage twin_storage, caffe2::TypeMeta dtype, c10::IntArrayRef sizes,
                          c10::IntArrayRef strides, int64_t offset) {
  auto impl = c10::make_intrusive<MetaTwinImpl>(std::move(twin_storage), dtype);
  impl->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(impl));
}

at::Tensor make_symbolic_meta_twin(c10::Storage twin_storage, caffe2::TypeMeta dtype, const TensorMeta& meta,
                                   const std::shared_ptr<SymOwner>& owner) {
  auto impl = c10::make_intrusive<MetaTwinImpl>(std::move(twin_storage), dtype);
  const auto sizes = sym_ints_of(meta.sizes, owner), strides = sym_ints_of(meta.strides, owner);
  impl->set_sizes_and_strides(c10::SymIntArrayRef(sizes), c10::SymIntArrayRef(strides), sym_int_of(meta.offset, owner));
  return at::Tensor(std::move(impl));
}

}  // namespace framejit::graph
