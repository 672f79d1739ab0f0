// runtime/aten/cast_all.cpp — the op "framejit::cast_all": dense tensors as another dtype, all in as few kernels as
// torch makes of it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <vector>

namespace framejit::runtime {
namespace {

std::vector<at::Tensor> cast_all(at::TensorList tensors, at::ScalarType dtype) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& tensor : tensors)
    results.push_back(at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().dtype(dtype)));
  at::_foreach_copy_(results, tensors);
  return results;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(framejit, library) {
  library.def("cast_all(Tensor[] tensors, ScalarType dtype) -> Tensor[]");
  library.impl("cast_all", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(cast_all));
}

}  // namespace framejit::runtime
