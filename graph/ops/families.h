// graph/ops/families.h — the op rows, one function per family file.
#pragma once

#include <vector>

#include "graph/shape_rule.h"

namespace framejit::graph {

std::vector<OpRow> pointwise_ops();
std::vector<OpRow> reduction_ops();
std::vector<OpRow> view_ops();
std::vector<OpRow> matmul_ops();
std::vector<OpRow> index_ops();
std::vector<OpRow> nn_ops();
std::vector<OpRow> convolution_ops();
std::vector<OpRow> pool_ops();
std::vector<OpRow> spectral_ops();
std::vector<OpRow> factory_ops();
std::vector<OpRow> backward_ops();
std::vector<OpRow> loss_ops();
std::vector<OpRow> linalg_ops();
std::vector<OpRow> packed_ops();

using OpFamily = std::vector<OpRow> (*)();
inline constexpr OpFamily kOpFamilies[] = {pointwise_ops, reduction_ops,   view_ops,   matmul_ops,   index_ops,
                                           nn_ops,        convolution_ops, pool_ops,   spectral_ops, factory_ops,
                                           backward_ops,  loss_ops,        linalg_ops, packed_ops};

}  // namespace framejit::graph
