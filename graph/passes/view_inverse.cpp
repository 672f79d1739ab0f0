// graph/passes/view_inverse.cpp — one row per kind of view.
//
// The opposite view undoes a view that reorders, the scatter of a part undoes a view that takes that part, and a
// reshape undoes a view that keeps all elements in order. A new row must return a value with the sizes and dtype of the
// base.
#include "graph/passes/view_inverse.h"

#include <unordered_map>

#include "graph/passes/rebuild.h"

namespace framejit::graph {
namespace {

struct Undo {
  GraphBuilder& out;
  const Node& view;
  size_t result;
  ValueId base, written;

  const Arg& arg(size_t i) const { return view.args[i]; }
  Arg arg_or(size_t i, Arg otherwise) const {
    return i < view.args.size() && !view.args[i].is_none() ? view.args[i] : otherwise;
  }
  SymExpr size_or(size_t i, SymExpr otherwise) const {
    const SymExpr* e = i < view.args.size() ? view.args[i].get<SymExpr>() : nullptr;
    return e != nullptr ? *e : otherwise;
  }
};
using UndoFn = ValueId (*)(const Undo&);

ValueId same(const Undo& u) { return u.written; }
ValueId reshape(const Undo& u) { return reshaped(u.out, u.written, u.out.meta(u.base).sizes); }
ValueId transpose(const Undo& u) { return u.out.emit("transpose.int", {u.written, u.arg(1), u.arg(2)}); }
ValueId t(const Undo& u) { return u.out.emit("t", {u.written}); }
ValueId slice(const Undo& u) {
  return u.out.emit("slice_scatter", {u.base, u.written, u.arg_or(1, SymExpr(0)), u.arg_or(2, Arg{}),
                                      u.arg_or(3, Arg{}), u.arg_or(4, SymExpr(1))});
}
ValueId select(const Undo& u) { return u.out.emit("select_scatter", {u.base, u.written, u.arg(1), u.arg(2)}); }
ValueId diagonal(const Undo& u) {
  return u.out.emit("diagonal_scatter",
                    {u.base, u.written, u.arg_or(1, SymExpr(0)), u.arg_or(2, SymExpr(0)), u.arg_or(3, SymExpr(1))});
}
ValueId as_strided(const Undo& u) {
  return u.out.emit("as_strided_scatter", {u.base, u.written, u.arg(1), u.arg(2), u.arg_or(3, Arg{})});
}
ValueId unbind(const Undo& u) {
  return u.out.emit("select_scatter",
                    {u.base, u.written, u.arg_or(1, SymExpr(0)), SymExpr(static_cast<int64_t>(u.result))});
}

ValueId permute(const Undo& u) {
  const auto* order = u.arg(1).get<SymSizes>();
  SymSizes back(order->size());
  for (size_t i = 0; i < order->size(); ++i) {
    const int64_t dim = (*order)[i].constant();
    back[static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(order->size()) : dim)] = static_cast<int64_t>(i);
  }
  return u.out.emit("permute", {u.written, back});
}

ValueId part(const Undo& u, const SymExpr& start, const SymExpr& length) {
  return u.out.emit("slice_scatter", {u.base, u.written, u.size_or(2, 0), start, start + length, SymExpr(1)});
}

ValueId split(const Undo& u) {
  const SymExpr length = u.size_or(1, 1);
  const SymExpr start = length * SymExpr(static_cast<int64_t>(u.result));
  const auto dim = u.size_or(2, 0).constant();
  const TensorMeta& meta = u.out.meta(u.written);
  return part(u, start, meta.sizes[static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(meta.ndim()) : dim)]);
}

ValueId split_with_sizes(const Undo& u) {
  const auto* lengths = u.arg(1).get<SymSizes>();
  SymExpr start = 0;
  for (size_t i = 0; i < u.result; ++i) start = start + (*lengths)[i];
  return part(u, start, (*lengths)[u.result]);
}

const std::unordered_map<std::string_view, UndoFn>& undo_rows() {
  static const std::unordered_map<std::string_view, UndoFn> table = {
      {"alias", same},
      {"detach", same},
      {"lift_fresh", same},
      {"lift", same},
      {"view", reshape},
      {"_reshape_alias", reshape},
      {"reshape", reshape},
      {"_unsafe_view", reshape},
      {"unsqueeze", reshape},
      {"unsqueeze_", reshape},
      {"squeeze", reshape},
      {"squeeze.dim", reshape},
      {"squeeze.dims", reshape},
      {"squeeze_", reshape},
      {"squeeze_.dim", reshape},
      {"t", t},
      {"t_", t},
      {"transpose.int", transpose},
      {"transpose_", transpose},
      {"permute", permute},
      {"slice.Tensor", slice},
      {"select.int", select},
      {"diagonal", diagonal},
      {"as_strided", as_strided},
      {"as_strided_", as_strided},
      {"unbind.int", unbind},
      {"split.Tensor", split},
      {"unsafe_split.Tensor", split},
      {"split_with_sizes", split_with_sizes},
      {"unsafe_split_with_sizes", split_with_sizes},
  };
  return table;
}

}  // namespace

Result<ValueId> inverse_of_view(GraphBuilder& out, const Node& view, size_t result, ValueId base, ValueId written) {
  const Undo undo{out, view, result, base, written};
  const auto row = undo_rows().find(view.op->name);
  if (row != undo_rows().end()) return row->second(undo);
  // An expansion that repeats nothing only adds dimensions of size 1.
  if (out.meta(base).numel() == out.meta(written).numel() && view.op->is(KnownOp::expand)) return reshape(undo);
  return Error{Reason::no_functional_form, "a write through " + view.op->name + " has no inverse"};
}

bool is_identity_view(const OpDef& op) {
  const auto row = undo_rows().find(op.name);
  return row != undo_rows().end() && row->second == same;
}

}  // namespace framejit::graph
