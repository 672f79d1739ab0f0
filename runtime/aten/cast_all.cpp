// runtime/aten/cast_all.cpp — the op "framejit::cast_all": casts many dense tensors in as few kernels as torch needs.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <vector>

namespace framejit::runtime {
namespace {

// Result k holds the next counts[k] tensors: a single tensor with its strides, several as rows, one below the other.
std::vector<at::Tensor> cast_all(at::TensorList tensors, at::IntArrayRef counts, at::ScalarType dtype) {
  std::vector<at::Tensor> results, parts;
  size_t at = 0;
  for (const int64_t count : counts) {
    TORCH_CHECK(count > 0 && at + static_cast<size_t>(count) <= tensors.size(), "cast_all: counts of other tensors");
    const at::Tensor& first = tensors[at];
    std::vector<int64_t> sizes = first.sizes().vec();
    for (int64_t k = 1; k < count; ++k) sizes[0] += tensors[at + static_cast<size_t>(k)].size(0);
    results.push_back(at::empty_strided(sizes, first.strides(), first.options().dtype(dtype)));
    int64_t row = 0;
    for (int64_t k = 0; k < count; ++k, ++at) {
      const int64_t rows = count == 1 ? 0 : tensors[at].size(0);
      parts.push_back(count == 1 ? results.back() : results.back().narrow(0, row, rows));
      row += rows;
    }
  }
  TORCH_CHECK(at == tensors.size(), "cast_all: counts of other tensors");
  at::_foreach_copy_(parts, tensors);
  return results;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(framejit, library) {
  library.def("cast_all(Tensor[] tensors, int[] counts, ScalarType dtype) -> Tensor[]");
  library.impl("cast_all", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(cast_all));
}

}  // namespace framejit::runtime
