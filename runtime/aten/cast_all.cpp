// runtime/aten/cast_all.cpp — the ops "framejit::cast_all" and "framejit::cast_all_last": cast many dense tensors, the
// first in as few kernels as torch needs, the second into channels_last and in a kernel of our own.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <vector>

#include "runtime/aten/cast_last.h"

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

std::vector<at::Tensor> cast_all_last(at::TensorList tensors, at::ScalarType dtype) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& tensor : tensors)
    results.push_back(
        at::empty(tensor.sizes(), tensor.options().dtype(dtype).memory_format(at::MemoryFormat::ChannelsLast)));
  cast_last(tensors.vec(), results);
  return results;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(framejit, library) {
  library.def("cast_all(Tensor[] tensors, int[] counts, ScalarType dtype) -> Tensor[]");
  library.impl("cast_all", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(cast_all));
  library.def("cast_all_last(Tensor[] tensors, ScalarType dtype) -> Tensor[]");
  library.impl("cast_all_last", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(cast_all_last));
}

}  // namespace framejit::runtime
