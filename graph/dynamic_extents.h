// graph/dynamic_extents.h — which sizes and strides of an input are symbols; those beyond a vector's end are constant.
#pragma once

#include <vector>

namespace framejit::graph {

struct DynamicExtents {
  std::vector<bool> sizes, strides;
  bool empty() const { return sizes.empty() && strides.empty(); }
};

}  // namespace framejit::graph
