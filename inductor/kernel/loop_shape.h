// inductor/kernel/loop_shape.h — fewer and longer loops: dimensions of a nest split, dropped, merged, permuted.
#pragma once

#include "inductor/loop/nest_builder.h"

namespace framejit::inductor {

inline bool is_address(const LoopInst& inst) { return inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore; }

// The nest with other dimensions; `dims[d]` is the old dimension d in terms of the new ones.
Nest with_dims(const Nest& nest, uint32_t symbol_count, SymSizes ranges, SymSizes reduced, std::vector<SymExpr> dims);

// Dimensions below `fixed` are left alone by all of these.
Nest split_divided_dims(Nest nest, uint32_t symbol_count,
                        size_t fixed);  // i // c and i % c become dimensions of their own
Nest drop_unit_dims(Nest nest, uint32_t symbol_count, size_t fixed);
Nest merge_dims(Nest nest, uint32_t symbol_count, size_t fixed);  // of linear nests: neighbours that step as one
bool can_merge(const Nest& nest, uint32_t symbol_count,
               size_t d);  // dimensions d and d + 1 step as one in all accesses
Nest merge_two(const Nest& nest, uint32_t symbol_count, size_t d);   // one dimension for both
// How well lanes along a dimension suit the accesses: contiguous ones count for it, strided ones against.
int vector_score(const Nest& nest, uint32_t symbol_count, size_t d, int64_t extent);
// A load without a mask and with an index free of values that steps by one along `tile`, and along `lanes` by something
// else than zero or one.
bool is_tiled_load(const LoopInst& inst, const NestSymbols& symbols, size_t tile, size_t lanes);
// The dimension among `candidates` along which most accesses of a linear nest are contiguous or constant; SIZE_MAX if
// there is none.
size_t choose_vector_dim(const Nest& nest, uint32_t symbol_count, const std::vector<size_t>& candidates,
                         const std::vector<int64_t>& extents);

}  // namespace framejit::inductor
