// graph/ops/packed.cpp — ops that no program calls: products with weights that the library has packed, casts of many
// tensors, and attention over few keys. Only the passes of a backend make them, and these passes give the metas of the
// results.
#include "graph/ops/families.h"

namespace framejit::graph {

std::vector<OpRow> packed_ops() {
  std::vector<OpRow> rows;
  for (const char* name :
       {"mkldnn::_reorder_linear_weight", "mkldnn::_linear_pointwise", "mkldnn::_reorder_convolution_weight",
        "mkldnn::_convolution_pointwise", "mkldnn::_convolution_pointwise.binary", "mkl::_mkl_reorder_linear_weight",
        "mkl::_mkl_linear", "framejit::cast_all", "framejit::cast_all_last", "framejit::short_attention"})
    rows.push_back({name, nullptr, 0});
  return rows;
}

}  // namespace framejit::graph
