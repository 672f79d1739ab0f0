// graph/aten/strided.cpp — as_strided and related ops, whose offset counts from the beginning of the storage.
//
// A plan addresses an input from its first element, and a copy may stand for the input. So as_strided of an input with
// an offset is recorded as as_strided of the element at that offset, without an offset. A guard fixes where the input
// begins.
#include "graph/aten/strided.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/select.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "graph/aten/recorder.h"
#include "graph/shape_rule.h"

namespace framejit::graph {
namespace {

// The index of the element that lies `distance` elements of memory after the first one; nullopt if there is none.
std::optional<std::vector<int64_t>> element_at(const TensorMeta& meta, int64_t distance, ShapeEnv& env) {
  std::vector<size_t> order(meta.ndim());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t d) { return env.hint(meta.strides[d]); });
  std::vector<int64_t> index(meta.ndim(), 0);
  if (distance < 0) return std::nullopt;
  for (size_t d : order) {
    const int64_t stride = env.hint(meta.strides[d]), size = env.hint(meta.sizes[d]);
    if (size == 0) return std::nullopt;
    if (stride == 0) continue;
    index[d] = std::min(distance / stride, size - 1);
    distance -= index[d] * stride;
  }
  if (distance != 0) return std::nullopt;
  for (size_t d : order)
    if (index[d] != 0) env.specialise(meta.strides[d], "as_strided with an offset");
  return index;
}

// Where the last element of a tensor lies in its storage.
SymExpr last_of(SymExpr first, const SymSizes& sizes, const SymSizes& strides) {
  for (size_t d = 0; d < sizes.size(); ++d) first = first + (sizes[d] - 1) * strides[d];
  return first;
}

// Whether the storage is that of an input or a constant: then another tensor of the same layout may stand for it.
bool is_given(const Graph& graph, uint32_t storage) {
  const auto lies_there = [&](ValueId v) { return graph.values[index_of(v)].storage == storage; };
  return std::ranges::any_of(graph.inputs, lies_there) || std::ranges::any_of(graph.constants, lies_there);
}

// as_strided_scatter(self, src, sizes, strides, offset) writes to a copy of its argument. Whether the argument has all
// elements that it writes.
bool writes_inside(const TensorMeta& self, std::span<const c10::IValue> args, ShapeEnv& env) {
  SymSizes sizes, strides;
  for (const c10::SymInt& size : args[2].toSymIntVector()) sizes.push_back(expr_of(size));
  for (const c10::SymInt& stride : args[3].toSymIntVector()) strides.push_back(expr_of(stride));
  if (sizes.size() != strides.size()) return true;  // an error, which torch raises
  const SymExpr first = expr_of(args[4].toSymInt()), last = last_of(first, sizes, strides);
  const std::string why = "as_strided_scatter with an offset";
  return env.decide(self.offset, Relation::kLe, first, why) &&
         env.decide(last, Relation::kLe, last_of(self.offset, self.sizes, self.strides), why);
}

}  // namespace

void Recorder::settle_offset(const OpInfo& info, torch::jit::Stack* stack) {
  const OpDef& op = *info.def;
  if (!is_as_strided(op) || open_scopes_ == 0 || !live()) return;
  const size_t first = stack->size() - info.arg_classes.size(), at_offset = op.has(kKeepsPlace) ? 4 : 3;
  const std::span<c10::IValue> args(stack->data() + first, info.arg_classes.size());
  const at::Tensor self = args[0].toTensor();
  if (args[at_offset].isNone()) return;
  const ValueId value = value_of(self);
  if (!is_given(graph(), graph().values[index_of(value)].storage)) return;
  if (op.has(kMutates)) fail({Reason::unsupported_op, op.name + " with a storage offset on an input"});
  const TensorMeta meta = graph().meta(value);
  if (op.has(kKeepsPlace)) {
    if (!writes_inside(meta, args, shapes()))
      fail({Reason::unsupported_op, op.name + " that writes outside of its argument"});
    return;
  }
  offset_is_read(traced_storage_of(self));
  const auto distance = (expr_of(args[at_offset].toSymInt()) - meta.offset).as_constant();
  at::Tensor start = self;
  if (distance != 0) {
    const auto index = distance ? element_at(meta, *distance, shapes()) : std::nullopt;
    if (!index) fail({Reason::unsupported_op, op.name + " that begins outside of its argument"});
    const at::AutoDispatchBelowADInplaceOrView below;
    for (int64_t i : *index) start = at::select(start, 0, i);
  }
  args[0] = start;
  args[at_offset] = c10::IValue();
}

bool is_within(int64_t bytes, const TensorMeta& meta, const ShapeEnv& env) {
  const auto is_negative = [&](const SymExpr& e) { return env.hint(e) < 0; };
  if (is_negative(meta.offset) || std::ranges::any_of(meta.strides, is_negative)) return false;
  const SymExpr end = last_of(meta.offset, meta.sizes, meta.strides) + SymExpr(1);
  return meta.numel() == SymExpr(0) || env.hint(end) * row_of(meta.dtype).bytes <= bytes;
}

}  // namespace framejit::graph
