// graph/op_lists.h — which ops a rule singles out: rows of op_lists.def.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace framejit::graph {

enum class OpList : uint8_t {
  addresses_storage,
  copies_storage,
  moves_elements,
  of_shapes,
  row_passes,
  keeps_format,
  takes_columns,
  returns_lengths,
  casts_inside,
  of_masks,
  moves_indices,
  without_size,
  sizes_by_data,
  only_asserts,
  raises_by_data,
  divides_by_degrees,
  changes_shape,
  recurrent_layers,
  warns_of_symbols,
  sized_by_scales,
  in_order,
  linear_jointly,
  linear_selections,
  linear_in_each,
  linear_in_first,
  fills_result
};
bool is_in(OpList list, std::string_view op);  // op: as OpDef::name
std::vector<std::string_view> ops_of(OpList list);

}  // namespace framejit::graph
