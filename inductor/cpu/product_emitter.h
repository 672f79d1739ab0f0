// inductor/cpu/product_emitter.h — matrix products: sums of left[m, k] * right[n, k], both contiguous along k.
//
// Lanes lie along k. A register tile of some rows and columns is summed at once, so that each vector that is loaded
// serves all columns (rows) of the tile: as many as registers hold beside one vector of each column and one of a row.
// Nothing is packed.
// Where tiles lie changes no result: each element has its own lanes, which meet in a fixed tree.
#pragma once

#include "inductor/cpu/emitter.h"
#include "inductor/cpu/function_state.h"

namespace framejit::inductor {

// All rows of the columns from s.outer.back() to s.tile_end.
void emit_product(FunctionState& s, const Kernel& kernel, const EmitOptions& options);

}  // namespace framejit::inductor
