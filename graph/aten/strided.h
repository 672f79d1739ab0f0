// graph/aten/strided.h — as_strided may leave the storage of its argument, which is an error in the program.
#pragma once

#include <cstdint>

#include "graph/shape_env.h"
#include "graph/tensor_meta.h"

namespace framejit::graph {

// Whether as_strided may make a tensor of this layout in a storage of `bytes`, for the hints. A tensor without elements
// reaches nothing.
bool is_within(int64_t bytes, const TensorMeta& meta, const ShapeEnv& env);

}  // namespace framejit::graph
