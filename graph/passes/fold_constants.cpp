// graph/passes/fold_constants.cpp — a tensor that is one known number everywhere becomes a fill.
//
// In: a functional graph.  Out: the same values; pointwise ops over fills, casts of them and choices by them become
// fills or disappear. Only ops that every machine computes alike are folded. A number that half precision rounds stays,
// because a kernel may read it unrounded. Views are looked through, but stay: this pass must not change aliasing.
#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "graph/number_range.h"
#include "graph/ops/rule_kit.h"
#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"
#include "graph/scalar_op.h"
#include "graph/shape_rule.h"

namespace framejit::graph {
namespace {

struct Known {
  ScalarValue value;
  DType dtype;
};

struct PointwiseRow {
  ScalarOp op;
  size_t operands;
  bool has_alpha = false;  // argument 2 multiplies the second operand
};

const std::unordered_map<std::string_view, PointwiseRow>& pointwise_rows() {
  static const std::unordered_map<std::string_view, PointwiseRow> rows = {
      {"add.Tensor", {ScalarOp::k_add, 2, true}}, {"sub.Tensor", {ScalarOp::k_sub, 2, true}},
      {"mul.Tensor", {ScalarOp::k_mul, 2}},       {"div.Tensor", {ScalarOp::k_div, 2}},
      {"neg", {ScalarOp::k_neg, 1}},              {"abs", {ScalarOp::k_abs, 1}},
      {"maximum", {ScalarOp::k_maximum, 2}},      {"minimum", {ScalarOp::k_minimum, 2}},
      {"eq.Tensor", {ScalarOp::k_eq, 2}},         {"eq.Scalar", {ScalarOp::k_eq, 2}},
      {"ne.Tensor", {ScalarOp::k_ne, 2}},         {"ne.Scalar", {ScalarOp::k_ne, 2}},
      {"lt.Tensor", {ScalarOp::k_lt, 2}},         {"lt.Scalar", {ScalarOp::k_lt, 2}},
      {"le.Tensor", {ScalarOp::k_le, 2}},         {"le.Scalar", {ScalarOp::k_le, 2}},
      {"gt.Tensor", {ScalarOp::k_gt, 2}},         {"gt.Scalar", {ScalarOp::k_gt, 2}},
      {"ge.Tensor", {ScalarOp::k_ge, 2}},         {"ge.Scalar", {ScalarOp::k_ge, 2}}};
  return rows;
}

bool has_scalar_form(DType dtype) { return is_float(dtype) || is_integral(dtype) || dtype == DType::kBool; }
std::optional<Known> known_number(const Arg& arg) {
  if (const bool* truth = arg.get<bool>()) return Known{{.i = *truth}, DType::kBool};
  if (const double* real = arg.get<double>()) return Known{{.f = *real}, DType::kFloat64};
  if (const SymExpr* size = arg.get<SymExpr>(); size != nullptr && size->is_constant())
    return Known{{.i = size->constant()}, DType::kInt64};
  return std::nullopt;
}

Arg argument_of(const Known& known) {
  if (is_float(known.dtype)) return known.value.f;
  if (known.dtype == DType::kBool) return known.value.i != 0;
  return SymExpr(known.value.i);
}

// The known values of a graph, by the graph's own ids.
class Folder {
 public:
  explicit Folder(const Graph& graph) : graph_(graph), known_(graph.values.size()) {}

  void note_fill(const Node& node) {
    const DType dtype = meta(node).dtype;
    Arg number = node.op->is(KnownOp::full) ? node.args[1] : Arg(SymExpr(node.op->is(KnownOp::ones) ? 1 : 0));
    if (!has_scalar_form(dtype) || !is_fitting_constant(number, dtype)) return;
    const std::optional<Known> given = known_number(number);
    if (given) set(node, {convert(given->value, given->dtype, dtype), dtype});
  }
  void note_view(const Node& node) {
    if (const ValueId* base = node.args[0].get<ValueId>(); base != nullptr && known(*base)) set(node, *known(*base));
  }

  std::optional<Known> fold(const Node& node) const {
    if (node.op->is(KnownOp::to_copy)) return fold_cast(node);
    const auto row = pointwise_rows().find(node.op->name);
    return row == pointwise_rows().end() ? std::nullopt : fold_pointwise(node, row->second);
  }
  void set(const Node& node, const Known& value) { known_[index_of(node.results[0])] = value; }
  const std::optional<Known>& known(ValueId v) const { return v == kNoValue ? nothing_ : known_[index_of(v)]; }

 private:
  const TensorMeta& meta(const Node& node) const { return graph_.meta(node.results[0]); }

  std::optional<Known> fold_cast(const Node& node) const {
    const ValueId* self = node.args[0].get<ValueId>();
    const std::optional<Known>& from = known(*self);
    const TensorMeta& made = meta(node);
    if (!from || !has_scalar_form(made.dtype) || !(made.device == graph_.meta(*self).device)) return std::nullopt;
    if (is_float(from->dtype) && !is_float(made.dtype) && made.dtype != DType::kBool &&
        !is_fitting_constant(from->value.f, made.dtype))
      return std::nullopt;
    return Known{convert(from->value, from->dtype, made.dtype), made.dtype};
  }

  std::optional<Known> fold_pointwise(const Node& node, const PointwiseRow& row) const {
    if (row.has_alpha && !(node.args[2] == Arg(SymExpr(1)))) return std::nullopt;
    std::vector<const TensorMeta*> tensors;
    std::vector<DType> numbers;
    std::vector<Known> operands;
    for (size_t i = 0; i < row.operands; ++i) {
      const ValueId* tensor = node.args[i].get<ValueId>();
      const std::optional<Known> operand = tensor != nullptr ? known(*tensor) : known_number(node.args[i]);
      if (!operand) return std::nullopt;
      if (tensor != nullptr) tensors.push_back(&graph_.meta(*tensor));
      else numbers.push_back(operand->dtype);
      operands.push_back(*operand);
    }
    const DType result = meta(node).dtype;
    const bool compares = row_of(row.op).result == ScalarResult::kBoolean;
    // Integers with a real number promote to the default dtype, which is not known here. So they are not folded.
    const DType common = compares ? result_type(tensors, numbers, DType::kOther) : result;
    const bool has_real_number = std::any_of(numbers.begin(), numbers.end(), [](DType d) { return is_float(d); });
    if (!is_float(common) && has_real_number) return std::nullopt;
    if (!has_scalar_form(common) || (common == DType::kBool && !compares)) return std::nullopt;
    std::vector<ScalarValue> values;
    for (const Known& operand : operands) {
      const ScalarValue value = convert(operand.value, operand.dtype, common);
      const ScalarValue again = convert(value, common, operand.dtype);
      const bool is_exact = is_float(operand.dtype) ? again.f == operand.value.f : again.i == operand.value.i;
      if (is_half(common) && !is_exact) return std::nullopt;
      values.push_back(value);
    }
    return Known{convert(evaluate(row.op, common, values), compares ? DType::kBool : common, result), result};
  }

  const Graph& graph_;
  std::vector<std::optional<Known>> known_;
  static inline const std::optional<Known> nothing_;
};

// The tensor that a choice by a known condition takes, if it is the whole result.
ValueId chosen(const Graph& graph, const Folder& folder, const Node& node) {
  if (!node.op->is(KnownOp::where_self)) return kNoValue;
  const std::optional<Known>& condition = folder.known(*node.args[0].get<ValueId>());
  if (!condition) return kNoValue;
  // Null: a number, as in masked_fill.
  const ValueId* const taken = node.args[condition->value.i != 0 ? 1 : 2].get<ValueId>();
  return taken != nullptr && same_layout(graph.meta(*taken), graph.meta(node.results[0])) ? *taken : kNoValue;
}

}  // namespace

Result<Graph> fold_constants(Graph graph) {
  Rebuild r(graph, false);
  Folder folder(graph);
  const std::set<ValueId> kept = addressed_memory(graph);
  for (const Node& node : graph.nodes) {
    r.begin(node);
    const bool is_single = node.results.size() == 1 && node.results[0] != kNoValue && !kept.contains(node.results[0]);
    if (is_single) {
      if (node.op->is(KnownOp::full) || node.op->is(KnownOp::ones) || node.op->is(KnownOp::zeros))
        folder.note_fill(node);
      else if (node.op->has(kView)) folder.note_view(node);
      else if (const std::optional<Known> known = folder.fold(node)) {
        const TensorMeta& meta = graph.meta(node.results[0]);
        const TensorMeta filled = dense(meta.dtype, meta.device, meta.sizes);
        if (same_layout(filled, meta)) {
          folder.set(node, *known);
          r.set(node.results[0],
                r.out().emit("full", {meta.sizes, argument_of(*known), meta.dtype, Arg{}, meta.device, Arg{}}, filled));
          continue;
        }
      } else if (const ValueId taken = chosen(graph, folder, node); taken != kNoValue) {
        r.set(node.results[0], r.get(taken));
        continue;
      }
    }
    r.copy_node(node);
  }
  return r.build();
}

}  // namespace framejit::graph
