// inductor/lowering/view.cpp — views as index maps: which element of the base is the element at `index` of the view?
//
// Rows use the metas of base and result where these are enough (reshapes, expand), otherwise the arguments.
#include <algorithm>
#include <array>
#include <numeric>

#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::TensorMeta;
using graph::ValueId;

namespace {

using Index = std::vector<SymExpr>;

struct ViewQuery {
  const Graph& graph;
  const Node& node;
  uint32_t result;
  const Index& index;
  const DimBounds& bounds;
  const TensorMeta& base() const { return graph.meta(*node.args[0].get<ValueId>()); }
  const TensorMeta& view() const { return graph.meta(node.results[result]); }
  const SymExpr* size(size_t i) const { return i < node.args.size() ? node.args[i].get<SymExpr>() : nullptr; }
  int64_t integer(size_t i, int64_t otherwise) const {
    const SymExpr* e = size(i);
    return e != nullptr && e->is_constant() ? e->constant() : otherwise;
  }
  size_t dim(size_t i, int64_t otherwise = 0) const {
    return static_cast<size_t>(wrap_dim(integer(i, otherwise), base().ndim()));
  }
};

using MapFn = std::optional<Index> (*)(const ViewQuery&);

std::optional<Index> map_identity(const ViewQuery& q) { return q.index; }

std::optional<Index> map_reshape(const ViewQuery& q) {
  return reshape_index(q.base().sizes, q.view().sizes, q.index, q.bounds);
}

std::optional<Index> map_permute(const ViewQuery& q) {
  const auto* dims = q.node.args[1].get<std::vector<SymExpr>>();
  if (dims == nullptr) return std::nullopt;
  Index out(q.index.size(), SymExpr(0));
  for (size_t k = 0; k < dims->size(); ++k) {
    if (!(*dims)[k].is_constant()) return std::nullopt;
    out[static_cast<size_t>(wrap_dim((*dims)[k].constant(), q.base().ndim()))] = q.index[k];
  }
  return out;
}

std::optional<Index> map_transpose(const ViewQuery& q) {
  Index out = q.index;
  if (!out.empty()) std::swap(out[q.dim(1)], out[q.dim(2)]);
  return out;
}

std::optional<Index> map_t(const ViewQuery& q) {
  Index out = q.index;
  std::reverse(out.begin(), out.end());
  return out;
}

std::optional<Index> map_expand(const ViewQuery& q) {
  const SymSizes& sizes = q.base().sizes;
  Index out(q.index.end() - static_cast<long>(sizes.size()), q.index.end());
  for (size_t k = 0; k < sizes.size(); ++k)
    if (is_size_one(q.graph, sizes[k])) out[k] = 0;
  return out;
}

// A start position as in Python's slices: from the end if negative, never outside.
SymExpr clamp_start(const SymExpr& start, const SymExpr& size) {
  if (start.is_constant() && start.constant() < 0) return SymExpr::max(start + size, 0);
  if (start.is_constant() && start.constant() == 0) return 0;
  return SymExpr::min(start, size);
}

std::optional<Index> map_slice(const ViewQuery& q) {
  const size_t d = q.dim(1);
  const SymExpr* start = q.size(2);
  Index out = q.index;
  out[d] = out[d] * SymExpr(q.integer(4, 1)) + (start == nullptr ? SymExpr(0) : clamp_start(*start, q.base().sizes[d]));
  return out;
}

std::optional<Index> map_select(const ViewQuery& q) {
  const size_t d = q.dim(1);
  const SymExpr* at = q.size(2);
  if (at == nullptr) return std::nullopt;
  Index out = q.index;
  const bool from_end = at->is_constant() && at->constant() < 0;
  out.insert(out.begin() + static_cast<long>(d), from_end ? *at + q.base().sizes[d] : *at);
  return out;
}

// split, split_with_sizes, chunk: a result begins where the previous one ends.
std::optional<Index> map_split(const ViewQuery& q) {
  const size_t d = q.dim(2);
  SymExpr start = 0;
  for (uint32_t k = 0; k < q.result; ++k) start = start + q.graph.meta(q.node.results[k]).sizes[d];
  Index out = q.index;
  out[d] = out[d] + start;
  return out;
}

std::optional<Index> map_unbind(const ViewQuery& q) {
  Index out = q.index;
  out.insert(out.begin() + static_cast<long>(q.dim(1)), SymExpr(q.result));
  return out;
}

std::optional<Index> map_diagonal(const ViewQuery& q) {
  const int64_t offset = q.integer(1, 0);
  const size_t first = q.dim(2, 0), second = q.dim(3, 1);
  Index out(q.index.begin(), q.index.end() - 1);
  const SymExpr row = q.index.back() + SymExpr(std::max<int64_t>(-offset, 0));
  const SymExpr column = q.index.back() + SymExpr(std::max<int64_t>(offset, 0));
  const auto put = [&](size_t d, const SymExpr& e) { out.insert(out.begin() + static_cast<long>(d), e); };
  put(std::min(first, second), first < second ? row : column);
  put(std::max(first, second), first < second ? column : row);
  return out;
}

std::optional<Index> map_unfold(const ViewQuery& q) {
  const size_t d = q.dim(1);
  Index out(q.index.begin(), q.index.end() - 1);
  if (out.empty()) return out;  // of a tensor without dimensions: its element
  out[d] = out[d] * SymExpr(q.integer(3, 1)) + q.index.back();
  return out;
}

struct ViewRow {
  std::string_view op;
  MapFn map;
};
constexpr std::array kViews = {
    ViewRow{"view", map_reshape},
    ViewRow{"_unsafe_view", map_reshape},
    ViewRow{"_reshape_alias", map_reshape},
    ViewRow{"reshape", map_reshape},
    ViewRow{"unsqueeze", map_reshape},
    ViewRow{"squeeze", map_reshape},
    ViewRow{"squeeze.dim", map_reshape},
    ViewRow{"squeeze.dims", map_reshape},
    ViewRow{"flatten.using_ints", map_reshape},
    ViewRow{"view_as", map_reshape},
    ViewRow{"unflatten.int", map_reshape},
    ViewRow{"permute", map_permute},
    ViewRow{"transpose.int", map_transpose},
    ViewRow{"t", map_t},
    ViewRow{"numpy_T", map_t},
    ViewRow{"expand", map_expand},
    ViewRow{"expand_as", map_expand},
    ViewRow{"broadcast_to", map_expand},
    ViewRow{"slice.Tensor", map_slice},
    ViewRow{"select.int", map_select},
    ViewRow{"split.Tensor", map_split},
    ViewRow{"split_with_sizes", map_split},
    ViewRow{"chunk", map_split},
    ViewRow{"unbind.int", map_unbind},
    ViewRow{"alias", map_identity},
    ViewRow{"detach", map_identity},
    ViewRow{"lift_fresh", map_identity},
    ViewRow{"diagonal", map_diagonal},
    ViewRow{"unfold", map_unfold},
};

const ViewRow* find_view(std::string_view op) {
  for (const ViewRow& row : kViews)
    if (row.op == op) return &row;
  return nullptr;
}

}  // namespace

bool is_mapped_view(std::string_view op) { return find_view(op) != nullptr; }

std::optional<Index> map_view(const Graph& graph, const Node& node, uint32_t result, const Index& index,
                              const DimBounds& bounds) {
  const ViewRow* row = find_view(node.op->name);
  if (row == nullptr || node.args.empty() || node.args[0].get<ValueId>() == nullptr) return std::nullopt;
  return row->map(ViewQuery{graph, node, result, index, bounds});
}

}  // namespace framejit::inductor
