// inductor/kernel/loop_shape.h — fewer and longer loops: splits, drops, merges and permutes the dimensions of a nest.
#pragma once

#include "inductor/loop/nest_builder.h"

namespace framejit::inductor {

inline bool is_address(const LoopInst& inst) { return inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore; }

// The nest with other dimensions; `dims[d]` expresses the old dimension d in terms of the new ones.
Nest with_dims(const Nest& nest, uint32_t symbol_count, SymSizes ranges, SymSizes reduced, std::vector<SymExpr> dims);

// None of these changes dimensions below `fixed`.
Nest split_divided_dims(Nest nest, uint32_t symbol_count,
                        size_t fixed);  // i // c and i % c become separate dimensions
Nest drop_unit_dims(Nest nest, uint32_t symbol_count, size_t fixed);
Nest merge_dims(Nest nest, uint32_t symbol_count, size_t fixed);  // for linear nests: neighbours that step together
bool can_merge(const Nest& nest, uint32_t symbol_count,
               size_t d);  // dimensions d and d + 1 step together in all accesses
Nest merge_two(const Nest& nest, uint32_t symbol_count, size_t d);   // one dimension for both
// How well lanes along a dimension suit the accesses: contiguous ones count for it, strided ones against it.
int vector_score(const Nest& nest, uint32_t symbol_count, size_t d, int64_t extent);
// A load without a mask, with an index that uses no values; the index steps by one along `tile`, and by something other
// than zero or one along `lanes`.
bool is_tiled_load(const LoopInst& inst, const NestSymbols& symbols, size_t tile, size_t lanes);
// The dimension among `candidates` along which most accesses of a linear nest are contiguous or constant; SIZE_MAX if
// there is none.
size_t choose_vector_dim(const Nest& nest, uint32_t symbol_count, const std::vector<size_t>& candidates,
                         const std::vector<int64_t>& extents);

}  // namespace framejit::inductor
