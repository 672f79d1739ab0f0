// inductor/cpu/plan/wide_ops.h — functions of float32 that are computed in float64 (inductor/cpu/wide_math.cpp).
#pragma once

#include <algorithm>
#include <iterator>

#include "graph/scalar_op.h"

namespace framejit::inductor {

inline constexpr graph::ScalarOp kWideOps[] = {
    graph::ScalarOp::k_expm1, graph::ScalarOp::k_log2,  graph::ScalarOp::k_log10, graph::ScalarOp::k_sinh,
    graph::ScalarOp::k_cosh,  graph::ScalarOp::k_asinh, graph::ScalarOp::k_acosh, graph::ScalarOp::k_atanh,
    graph::ScalarOp::k_atan,  graph::ScalarOp::k_asin,  graph::ScalarOp::k_acos,  graph::ScalarOp::k_erfc,
    graph::ScalarOp::k_sin,   graph::ScalarOp::k_cos,   graph::ScalarOp::k_tan,   graph::ScalarOp::k_pow,
    graph::ScalarOp::k_atan2, graph::ScalarOp::k_hypot, graph::ScalarOp::k_fmod};

constexpr bool is_widened(graph::ScalarOp op) {
  return std::find(std::begin(kWideOps), std::end(kWideOps), op) != std::end(kWideOps);
}

}  // namespace framejit::inductor
