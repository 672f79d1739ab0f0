// inductor/cpu/product_emitter.h — matrix products: sums of left[m, k] * right[n, k], both contiguous along k.
//
// Lanes lie along k. A register tile of some rows and columns is summed at once, so that each loaded vector serves all
// columns (rows) of the tile. Registers hold its sums, one vector of each column and one of a row. Nothing is packed.
// The places of tiles do not change results: each element has its own lanes, which are combined in a fixed tree.
#pragma once

#include "inductor/cpu/emitter.h"
#include "inductor/cpu/function_state.h"

namespace framejit::inductor {

// Emits all rows of the columns from s.outer.back() to s.tile_end.
void emit_product(FunctionState& s, const Kernel& kernel, const EmitOptions& options);

}  // namespace framejit::inductor
