#include "inductor/lowering/bare_products.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "graph/passes/rebuild.h"
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::Rebuild;
using graph::SymExpr;
using graph::TensorMeta;

std::string_view without_addition(std::string_view op) {
  static constexpr std::pair<std::string_view, std::string_view> kProducts[] = {
#define PRODUCT(op, left, right, added, bare) {op, bare},
#include "inductor/lowering/products.def"
#undef PRODUCT
  };
  const auto* row =
      std::find_if(std::begin(kProducts), std::end(kProducts), [&](const auto& p) { return p.first == op; });
  return row == std::end(kProducts) ? "" : row->second;
}

namespace {

// The product without the addition, if the node is a product that adds, on the kernels' device; "" otherwise.
std::string_view product_of(const Graph& graph, const Node& node, graph::Device device) {
  const std::string_view alone = without_addition(node.op->name);
  if (alone.empty()) return "";
  const TensorMeta& result = graph.meta(node.results[0]);
  const bool is_wide_enough = result.dtype == DType::kFloat32 || result.dtype == DType::kFloat64;
  const bool applies =
      is_wide_enough && result.device == device && std::all_of(node.args.begin() + 3, node.args.end(), graph::is_one);
  return applies ? alone : "";
}

}  // namespace

Graph bare_products(const Graph& functional, const TargetInfo& target) {
  const graph::Device device = kernel_device(functional);
  const auto adds = [&](const Node& node) { return !product_of(functional, node, device).empty(); };
  if (!target.traits.addmm_copies_first || std::none_of(functional.nodes.begin(), functional.nodes.end(), adds))
    return functional;
  Rebuild r(functional, true);
  for (const Node& node : functional.nodes) {
    const std::string_view op = product_of(functional, node, device);
    if (op.empty()) {
      r.copy_node(node);
      continue;
    }
    r.begin(node);
    const std::vector<Arg> args = r.map_args(node);
    const graph::ValueId product = r.out().emit(op, {args[1], args[2]});
    r.adopt(node.results[0], r.out().emit("add.Tensor", {product, args[0], SymExpr(1)}));
  }
  return r.build();
}

}  // namespace framejit::inductor
