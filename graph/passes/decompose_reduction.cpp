// graph/passes/decompose_reduction.cpp — reductions that are sums and extrema of simpler ops.
#include <limits>

#include "graph/ops/rule_kit.h"
#include "graph/passes/decompose.h"

namespace framejit::graph {
namespace {

// The reduced dimensions of argument i as a list. nullopt if they are not constant, or if `over_something` and the
// reduction may be over no elements.
std::optional<SymSizes> reduced_list(Decomposing& d, size_t i, bool over_something) {
  const TensorMeta& self = d.meta(d.value(0));
  std::vector<bool> reduced;
  if (!reduced_dims(d.rule(), i, self.ndim(), reduced)) return std::nullopt;
  if (over_something && d.out.shapes().known(1, Relation::kLe, reduced_count(self, reduced)) != true)
    return std::nullopt;
  SymSizes dims;
  for (size_t k = 0; k < reduced.size(); ++k)
    if (reduced[k]) dims.emplace_back(static_cast<int64_t>(k));
  return dims;
}

bool aminmax(Decomposing& d) {  // self, *, dim, keepdim
  const auto dims = reduced_list(d, 1, true);
  if (!dims) return false;
  const bool keepdim = d.rule().flag(2);
  d.results = {d.emit("amin", {d.args[0], *dims, keepdim}), d.emit("amax", {d.args[0], *dims, keepdim})};
  return true;
}

// log(sum(exp(x - m))) + m with the maximum m, or 0 if that is infinite.
bool logsumexp(Decomposing& d) {  // self, dim, keepdim
  const auto dims = reduced_list(d, 1, true);
  if (!dims || !is_float(d.meta(d.value(0)).dtype)) return false;
  const ValueId x = d.wide(d.value(0)), most = d.emit("amax", {x, *dims, true});
  const ValueId shift =
      d.emit("where.self",
             {d.emit("eq.Scalar", {d.emit("abs", {most}), std::numeric_limits<double>::infinity()}), SymExpr(0), most});
  const ValueId sum = d.sum(d.emit("exp", {d.sub(x, shift)}), *dims, true);
  d.results = {d.narrow(reshaped(d.out, d.add(d.emit("log", {sum}), shift), d.metas[0].sizes), 0)};
  return true;
}

bool count_nonzero(Decomposing& d) {  // self, dim
  const auto dims = reduced_list(d, 1, false);
  if (!dims) return false;
  d.results = {d.sum(d.emit("ne.Scalar", {d.args[0], SymExpr(0)}), *dims, false)};
  return true;
}

bool nansum(Decomposing& d) {  // self, dim, keepdim, dtype
  const auto dims = reduced_list(d, 1, false);
  if (!dims || d.has(3) || !is_float(d.metas[0].dtype) || d.metas[0].dtype != d.meta(d.value(0)).dtype) return false;
  const ValueId x = d.wide(d.value(0));
  const ValueId numbers = d.emit("where.self", {d.emit("isnan", {x}), SymExpr(0), x});
  d.results = {d.narrow(d.sum(numbers, *dims, d.rule().flag(2)), 0)};
  return true;
}

bool distance(Decomposing& d) {  // self, other, p
  if (!is_float(d.metas[0].dtype) || d.meta(d.value(0)).dtype != d.meta(d.value(1)).dtype) return false;
  const Arg order = d.args.size() > 2 ? d.args[2] : Arg(2.0);
  const ValueId difference = d.sub(d.wide(d.value(0)), d.wide(d.value(1)));
  d.results = {d.narrow(d.emit("linalg_vector_norm", {difference, order, Arg{}, false, Arg{}}), 0)};
  return true;
}

bool trace(Decomposing& d) {
  if (d.meta(d.value(0)).ndim() != 2) return false;
  const ValueId line = d.emit("diagonal", {d.args[0], SymExpr(0), SymExpr(0), SymExpr(1)});
  d.results = {d.narrow(d.sum(d.wide(line), {SymExpr(0)}, false), 0)};
  return true;
}

}  // namespace

void add_reduction_decompositions(Decompositions& table) {
  table.insert({{"aminmax", aminmax},
                {"logsumexp", logsumexp},
                {"count_nonzero", count_nonzero},
                {"count_nonzero.dim_IntList", count_nonzero},
                {"nansum", nansum},
                {"dist", distance},
                {"trace", trace}});
}

}  // namespace framejit::graph
