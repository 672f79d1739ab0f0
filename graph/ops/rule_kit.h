// graph/ops/rule_kit.h — shared by shape rules: ATen's rules for dtypes, broadcasting and strides, over size
// expressions.
//
// Every answer about a symbolic size is proven or recorded in the ShapeEnv. Strides follow TensorIterator
// (aten/src/ATen/TensorIterator.cpp of torch 2.13): its fast set-ups first, then the permutation that sorts the
// operands' strides.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/shape_rule.h"

namespace framejit::graph {

inline constexpr int kPreserveFormat = 1, kChannelsLastFormat = 2, kChannelsLast3dFormat = 3;  // c10::MemoryFormat

// Comparisons with a recorded reason.
bool is_one(ShapeEnv& env, const SymExpr& e);
bool same_size(ShapeEnv& env, const SymExpr& a, const SymExpr& b);
bool any_negative(ShapeEnv& env, const SymSizes& sizes);

// A dimension counted from the end becomes one from the front; nullopt if out of range. 0-dim tensors have a dimension
// 0.
std::optional<size_t> wrap_dim(int64_t dim, size_t ndim);

TensorMeta dense(DType dtype, Device device, SymSizes sizes);  // contiguous, no offset, no grad
inline TensorMeta no_tensor() {
  return {.dtype = DType::kOther, .device = {}, .sizes = {}, .strides = {}, .offset = {}};
}  // an undefined result
TensorMeta dense_like(const TensorMeta& like, SymSizes sizes);
// channels_last_3d for 5 dimensions; contiguous for ranks other than 4 and 5.
SymSizes channels_last_strides(const SymSizes& sizes);
bool is_channels_last(const TensorMeta& meta);  // structurally: strides are those of channels_last, 4 dimensions
bool suggests_channels_last(const TensorMeta& meta, ShapeEnv& env);  // Tensor::suggest_memory_format, 4 or 5 dimensions
TensorMeta in_suggested_format(const TensorMeta& like, SymSizes sizes, ShapeEnv& env);
// The result of a kernel that pads with elements of `like`, or that adds them up again in a backward. On a GPU it is
// row-major.
TensorMeta with_edges(const TensorMeta& like, SymSizes sizes, ShapeEnv& env);
bool is_dense(const TensorMeta& meta, const ShapeEnv& env);          // non-overlapping and dense
SymSizes dense_strides(const SymSizes& sizes, const SymSizes& strides, ShapeEnv& env);  // at::infer_dense_strides
TensorMeta preserved(const TensorMeta& like, ShapeEnv& env);         // empty_like(like)
// Strides of channels_last and channels_last_3d, if that is the format; false: the sizes have another rank.
bool restride(SymSizes& strides, const SymSizes& sizes, int memory_format);
std::optional<TensorMeta> in_format(const TensorMeta& like, int memory_format,
                                    ShapeEnv& env);  // empty_like(like, memory_format); -1 preserves

// The sizes broadcast together; nullopt if they do not fit.
std::optional<SymSizes> broadcast(ShapeEnv& env, const std::vector<const TensorMeta*>& operands);
// Whether `from` can be expanded to these sizes.
bool expands_to(ShapeEnv& env, const TensorMeta& from, const SymSizes& to);
// Strides of what TensorIterator allocates for these operands. `has_number`: a wrapped number takes part.
SymSizes iterator_strides(ShapeEnv& env, const SymSizes& shape, const std::vector<const TensorMeta*>& operands,
                          bool has_number);
// Only the permuted strides, given each operand's strides over `shape` (0 where it is broadcast).
SymSizes permuted_strides(ShapeEnv& env, const SymSizes& shape, const std::vector<SymSizes>& operand_strides);

// at::result_type over tensors (0-dim ones yield to others) and numbers (which yield to all).
DType result_type(const std::vector<const TensorMeta*>& tensors, const std::vector<DType>& numbers,
                  DType default_dtype);
inline DType keep(DType d, DType) { return d; }
inline DType to_float(DType d, DType default_dtype) {
  return is_integral(d) || d == DType::kBool ? default_dtype : d;
}
// The dtype of magnitudes: for complex numbers, that of their parts.
inline DType to_real(DType d, DType = DType::kFloat32) {
  return d == DType::kComplex64 ? DType::kFloat32 : d == DType::kComplex128 ? DType::kFloat64 : d;
}
inline std::optional<DType> to_complex(DType d) {
  if (d == DType::kFloat32) return DType::kComplex64;
  return d == DType::kFloat64 ? std::optional(DType::kComplex128) : std::nullopt;
}
Device common_device(const std::vector<const TensorMeta*>& tensors);

// The elementwise result of arguments `operands` (tensors or numbers): broadcast sizes, strides, device. Its dtype is
// `dtype_of` the promoted dtype. The first `conditions` operands are tensors that take no part in the dtype.
using DTypeOf = DType (*)(DType promoted, DType default_dtype);
bool elementwise(const RuleArgs& args, ShapeEnv& env, std::initializer_list<size_t> operands, DTypeOf dtype_of,
                 TensorMeta& result, size_t conditions = 0);

// Adds one row per name.
void add_rows(std::vector<OpRow>& rows, ShapeRule rule, std::initializer_list<const char*> names, uint32_t flags = 0);
// The same, and the in-place form of each: "add.Tensor" also gives "add_.Tensor".
void add_rows_in_place(std::vector<OpRow>& rows, ShapeRule rule, std::initializer_list<const char*> names,
                       uint32_t flags = 0);

// Dimensions to reduce, from argument i: none or an empty list means all. Sorted, unique; false if not constant or out
// of range.
bool reduced_dims(const RuleArgs& args, size_t i, size_t ndim, std::vector<bool>& reduced);
SymSizes reduced_sizes(const TensorMeta& self, const std::vector<bool>& reduced, bool keepdim);

// One entry per spatial dimension from argument i. A single entry counts for all; no argument, or an empty list, means
// `otherwise`.
bool spatial(const RuleArgs& args, size_t i, size_t count, SymSizes otherwise, SymSizes& out);
// Whether result `which` of the mask of bools in argument `mask` is wanted; without a mask, all are.
bool is_wanted(const RuleArgs& args, size_t mask, size_t which);
// Appends the next result, or an undefined one if the mask does not want it.
void add_wanted(const RuleArgs& args, size_t mask, TensorMeta meta, std::vector<TensorMeta>& results);
// The result is like argument I, but contiguous, whatever the other arguments are.
template <size_t I>
bool dense_as(const RuleArgs& args, ShapeEnv&, std::vector<TensorMeta>& results) {
  const TensorMeta* like = args.tensor(I);
  if (like == nullptr) return false;
  results.push_back(dense_like(*like, like->sizes));
  return true;
}

// The result is like a clone of the first argument.
bool preserved_self(const RuleArgs& args, ShapeEnv& env, std::vector<TensorMeta>& results);
// In-place ops, and ops that write without out=: the result is the first argument.
bool same_as_self(const RuleArgs& args, ShapeEnv& env, std::vector<TensorMeta>& results);

// at::detail::computeStride: strides of a view with the new sizes, or nullopt if it needs a copy.
std::optional<SymSizes> view_strides(ShapeEnv& env, const TensorMeta& meta, const SymSizes& sizes);
// Replaces a -1 in a list of sizes.
bool infer_size(ShapeEnv& env, SymSizes& sizes, const SymExpr& numel);

}  // namespace framejit::graph
