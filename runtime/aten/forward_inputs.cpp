#include "runtime/aten/forward_inputs.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <stdexcept>
#include <utility>

#include "runtime/aten/torch_version.h"

namespace framejit::runtime {

Showing::Showing(const at::Tensor& tensor)
    : keys_(tensor.key_set()), device_(tensor.device()), dtype_(tensor.dtype()), sizes_(tensor.sizes()) {
  if (tensor.layout() != c10::kStrided) return;
  strides_ = tensor.strides();
  offset_ = tensor.storage_offset();
}

Showing Showing::dense(const at::Tensor& tensor) {
  Showing made(tensor);
  if (!tensor.is_non_overlapping_and_dense()) made.strides_ = at::infer_dense_strides(tensor.sizes(), tensor.strides());
  return made;
}

bool Showing::is_of(const at::Tensor& tensor) const {
  return tensor.layout() == c10::kStrided && tensor.dtype() == dtype_ && tensor.device() == device_ &&
         tensor.sizes() == c10::IntArrayRef(sizes_) && tensor.strides() == c10::IntArrayRef(strides_) &&
         tensor.storage_offset() == offset_;
}

at::Tensor Showing::over(c10::Storage memory) const {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(memory), keys_, dtype_);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes_, strides_, offset_);
  return made;
}

at::Tensor Showing::fresh() const {
  const at::AutoDispatchBelowADInplaceOrView below;
  return at::_ops::empty_strided::call(c10::fromIntArrayRefSlow(sizes_), c10::fromIntArrayRefSlow(strides_),
                                       c10::typeMetaToScalarType(dtype_), c10::kStrided, device_, false);
}

at::Tensor Showing::laid(const at::Tensor& tensor) const {
  const at::Tensor plain = tensor.layout() == c10::kStrided ? tensor : tensor.to_dense();
  if (plain.sizes() != c10::IntArrayRef(sizes_))
    throw std::runtime_error("framejit: a saved-tensor hook returned a tensor whose sizes differ from the saved ones");
  if (plain.dtype() == dtype_ && plain.device() == device_ && !plain.is_conj() && !plain.is_neg() && lies_so(plain))
    return plain;
  at::Tensor made = fresh();
  const at::AutoDispatchBelowADInplaceOrView below;
  at::_ops::copy_::call(made, plain, false);
  return made;
}

bool Showing::lies_so(const at::Tensor& tensor) const {
  for (size_t d = 0; d < sizes_.size(); ++d)
    if (tensor.stride(static_cast<int64_t>(d)) != strides_[d] && sizes_[d] > 1) return tensor.numel() == 0;
  return true;
}

InputHistory::InputHistory(const at::Tensor& input)
    : leaf_(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()) {
  if (!input.requires_grad()) return;
  if (input.is_leaf()) leaf_ = input.getIntrusivePtr();
  else edge_ = torch::autograd::impl::gradient_edge(input);
}

at::Tensor InputHistory::given_to(at::Tensor tensor) const {
  torch::autograd::Edge edge = edge_;
  if (auto leaf = leaf_.lock()) edge = torch::autograd::impl::gradient_edge(at::Tensor(std::move(leaf)));
  if (edge.is_valid()) torch::autograd::impl::set_gradient_edge(tensor, edge);
  return tensor;
}

static at::Tensor zeros(const Showing& shown) {
  const at::Tensor made = shown.fresh();
  const at::AutoDispatchBelowADInplaceOrView below;
  return made.zero_();
}

namespace {

// Stands in for the node that made a tensor. SavedVariable looks for that node in the tensor, but detach_() has dropped
// it there.
struct NoNode final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
};

}  // namespace

at::Tensor KeptInput::even_detached() const {
  static const auto node = make_autograd_node<NoNode>();
  return saved_.unpack(node);
}

KeptInput::KeptInput(const at::Tensor& input, bool has_hooks) : saved_(input, false), history_(input), shown_(input) {
  if (!has_hooks && input.has_storage()) memory_ = input.storage();
}

bool KeptInput::is_there() const {
  try {
    even_detached();
    return true;
  } catch (const std::exception&) { return false; }
}

at::Tensor KeptInput::stand_in() const { return history_.given_to(zeros(shown_)); }

bool KeptInput::has_other_data(const at::Tensor& now) const {
  if (!memory_) return false;
  return !now.has_storage() || now.storage().unsafeGetStorageImpl() != memory_.unsafeGetStorageImpl() ||
         !shown_.is_of(now);
}

at::Tensor KeptInput::other_data() const {
  if (!memory_) return {};
  at::Tensor found = even_detached();
  return has_other_data(found) ? found : at::Tensor();
}

at::Tensor KeptInput::before() const {
  at::Tensor found = even_detached();
  const bool is_another = memory_ && (has_other_data(found) || history_.was_lost_by(found));
  return is_another ? history_.given_to(shown_.over(memory_)) : found;
}

OtherInput::OtherInput(const at::Tensor& input)
    : tensor_(input.getIntrusivePtr()),
      memory_(c10::intrusive_ptr<c10::StorageImpl>()),
      shown_(input),
      history_(input) {
  has_memory_ = input.has_storage();
  if (has_memory_) memory_ = input.storage().getWeakStorageImpl();
  if (input.dim() == 0 && !input.requires_grad()) {
    number_ = input;
    if (has_memory_) memory_of_number_ = input.storage();
  }
  if (input.is_inference()) return;
  counter_ = torch::autograd::impl::version_counter(input);
  version_ = input._version();
}

at::Tensor OtherInput::found() const {
  auto memory = memory_.lock();
  if (const auto tensor = tensor_.lock()) {
    at::Tensor input(tensor);
    if (!has_memory_) return input;
    if (memory && input.has_storage() && input.storage().unsafeGetStorageImpl() == memory.get() &&
        shown_.is_of(input) && !history_.was_lost_by(input))
      return input;
  }
  return memory ? history_.given_to(shown_.over(c10::Storage(std::move(memory)))) : at::Tensor();
}

bool OtherInput::was_written() const { return counter_.enabled() && counter_.current_version() != version_; }

bool OtherInput::is_there() const { return !was_written() && found().defined(); }

at::Tensor OtherInput::stand_in() const { return history_.given_to(zeros(shown_)); }

at::Tensor OtherInput::get(const std::string& name, const std::string& asker) const {
  const at::Tensor input = found();
  if (!input.defined())
    throw std::runtime_error("framejit: " + asker + " needs the input " + name +
                             " of the compiled forward, and it is gone; keep it until the backward has run");
  if (was_written())
    throw std::runtime_error("framejit: " + asker + " needs the input " + name +
                             " of the compiled forward as it was, and it was written to in between");
  return input;
}

}  // namespace framejit::runtime
