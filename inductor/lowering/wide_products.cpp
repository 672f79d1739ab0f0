#include "inductor/lowering/wide_products.h"

#include <algorithm>
#include <unordered_map>

#include "graph/passes/rebuild.h"
#include "inductor/lowering/bare_products.h"
#include "inductor/lowering/lower.h"
#include "runtime/base/config.h"

namespace framejit::inductor {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::Rebuild;
using graph::SymExpr;
using graph::SymSizes;
using graph::TensorMeta;
using graph::ValueId;

namespace {

// Arguments of a product: its operands, and its addend (kNoAddend: none).
constexpr size_t kNoAddend = SIZE_MAX;
struct ProductRow {
  size_t left, right, added;
};

const std::unordered_map<std::string_view, ProductRow>& rows() {
  static const std::unordered_map<std::string_view, ProductRow> table = {
#define PRODUCT(op, left, right, added, bare) {op, {left, right, added}},
#include "inductor/lowering/products.def"
#undef PRODUCT
  };
  return table;
}

double count(const Graph& graph, const SymSizes& sizes) {
  std::vector<int64_t> hints;
  for (size_t s = 0; s < graph.shapes.symbol_count(); ++s)
    hints.push_back(graph.shapes.symbol(static_cast<graph::SymbolId>(s)).hint);
  double n = 1;
  for (const SymExpr& e : sizes) n *= static_cast<double>(e.eval(hints));
  return n;
}

// The wide product's gain grows with its multiplications, its cost with the elements that pass through memory once
// more.
bool pays(const Graph& graph, const TargetInfo& target, const Node& node, const ProductRow& row) {
  const TensorMeta &left = graph.meta(*node.args[row.left].get<ValueId>()),
                   &right = graph.meta(*node.args[row.right].get<ValueId>());
  const TensorMeta& result = graph.meta(node.results[0]);
  const double results = count(graph, result.sizes),
               elements = count(graph, left.sizes) + count(graph, right.sizes) + results;
  SymSizes joined(right.sizes.begin() + 1, right.sizes.end());  // convolution: channels of a group and window
  if (!node.op->is(graph::KnownOp::convolution)) joined = {left.sizes.back()};
  return results * count(graph, joined) >= static_cast<double>(target.costs.wide_products) * elements;
}

}  // namespace

bool is_widened_product(std::string_view op) { return rows().contains(op); }

namespace {

bool applies(const Graph& graph, const TargetInfo& target, const Node& node, const ProductRow& row) {
  const graph::Device device = kernel_device(graph);
  for (const size_t operand : {row.left, row.right}) {
    const ValueId* v = node.args[operand].get<ValueId>();
    if (v == nullptr || *v == graph::kNoValue || graph.meta(*v).dtype != DType::kBFloat16 ||
        !(graph.meta(*v).device == device))
      return false;
  }
  if (!without_addition(node.op->name).empty() &&
      !std::all_of(node.args.begin() + 3, node.args.end(), [](const graph::Arg& arg) { return graph::is_one(arg); }))
    return false;
  return pays(graph, target, node, row);
}

// The bias of a convolution lies along its second dimension.
ValueId bias_of(graph::GraphBuilder& out, ValueId bias, bool of_convolution, ValueId product) {
  const ValueId wide = graph::converted(out, bias, DType::kFloat32);
  if (!of_convolution) return wide;
  const TensorMeta& made = out.meta(product);
  SymSizes sizes(made.ndim() - 1, SymExpr(1));
  sizes[0] = made.sizes[1];
  return graph::reshaped(out, wide, sizes);
}

void widen(Rebuild& r, const Node& node, const ProductRow& row) {
  std::vector<Arg> args = r.map_args(node);
  for (const size_t operand : {row.left, row.right})
    args[operand] = graph::converted(r.out(), *args[operand].get<ValueId>(), DType::kFloat32);
  const bool is_convolution = node.op->is(graph::KnownOp::convolution);
  const ValueId* given = row.added < args.size() ? args[row.added].get<ValueId>() : nullptr;
  const ValueId added = given != nullptr ? *given : graph::kNoValue;
  ValueId product{};
  if (is_convolution) {
    args[row.added] = Arg{};
    TensorMeta meta = r.from().meta(node.results[0]);
    meta.dtype = DType::kFloat32;
    product = r.out().emit("convolution", std::move(args), std::move(meta));
  } else {
    const std::string_view alone = without_addition(node.op->name);
    product = r.out().emit(alone.empty() ? node.op->name : alone, {args[row.left], args[row.right]});
  }
  if (added != graph::kNoValue) {
    const ValueId bias = bias_of(r.out(), added, is_convolution, product);
    product = r.out().emit("add.Tensor", {product, bias, SymExpr(1)});
  }
  r.adopt(node.results[0], graph::converted(r.out(), product, DType::kBFloat16));
}

}  // namespace

bool wants_wide_products(const TargetInfo& target) {
  return config().bf16_products == "auto" ? !target.multiplies_bf16 : config().bf16_products == "wide";
}

Graph widen_products(const Graph& functional, const TargetInfo& target) {
  if (!target.traits.may_widen_bf16) return functional;
  Rebuild r(functional, true);
  for (const Node& node : functional.nodes) {
    const auto row = rows().find(node.op->name);
    if (row == rows().end() || !applies(functional, target, node, row->second)) {
      r.copy_node(node);
      continue;
    }
    r.begin(node);
    widen(r, node, row->second);
  }
  return r.build();
}

}  // namespace framejit::inductor
