#include "runtime/aten/own_tensor.h"

#include <c10/core/InferenceMode.h>

namespace framejit::runtime {

at::Tensor own_tensor(const at::Tensor& tensor, bool inference) {
  const c10::InferenceMode mode(inference);
  const c10::DispatchKeySet keys(c10::computeDispatchKey(tensor.scalar_type(), tensor.layout(), tensor.device()));
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), keys, tensor.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) alias._set_conj(true);
  if (tensor.is_neg()) alias._set_neg(true);
  return alias;
}

}  // namespace framejit::runtime
