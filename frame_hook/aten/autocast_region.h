// frame_hook/aten/autocast_region.h — weights that are written inside an autocast region.
//
// Eager casts a weight that needs a gradient once per region, and keeps using that cast, whatever is written to the
// weight. Compiled code casts it in each call. So in a program that trains inside one region, results differ from
// eager's, and a warning says so.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <unordered_map>
#include <vector>

namespace framejit::frame_hook {

class WeightsInRegion {
 public:
  // For a graph with these inputs, called in the current modes. Nothing if eager would keep no casts.
  static std::optional<WeightsInRegion> of(const std::vector<at::Tensor>& inputs);
  void look(const at::Tensor* const* inputs);  // before each call, with the GIL

 private:
  std::vector<uint32_t> weights_;  // among the inputs
  at::Tensor region_;              // what eager keeps in the region of the last call
  std::unordered_map<const void*, uint64_t> writes_;  // in that region, by the first weight: instances share a graph
};

}  // namespace framejit::frame_hook
