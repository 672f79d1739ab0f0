// graph/passes/decompose_lists.cpp — the _foreach ops: each becomes its single op, once for every tensor of the list.
#include <algorithm>
#include <deque>

#include "graph/passes/decompose.h"

namespace framejit::graph {
namespace {

struct ListRow {
  std::string_view op, single;
  bool number_first = false;
};

constexpr ListRow kRows[] = {
#define FJ_UNARY(name) {"_foreach_" name, name},
    FJ_UNARY("abs") FJ_UNARY("acos") FJ_UNARY("asin") FJ_UNARY("atan") FJ_UNARY("ceil") FJ_UNARY("clone") FJ_UNARY(
        "cos") FJ_UNARY("cosh") FJ_UNARY("erf") FJ_UNARY("erfc") FJ_UNARY("exp") FJ_UNARY("expm1") FJ_UNARY("floor")
        FJ_UNARY("frac") FJ_UNARY("log") FJ_UNARY("log10") FJ_UNARY("log1p") FJ_UNARY("log2") FJ_UNARY("max") FJ_UNARY(
            "neg") FJ_UNARY("reciprocal") FJ_UNARY("round") FJ_UNARY("rsqrt") FJ_UNARY("sigmoid") FJ_UNARY("sign")
            FJ_UNARY("sin") FJ_UNARY("sinh") FJ_UNARY("sqrt") FJ_UNARY("tan") FJ_UNARY("tanh") FJ_UNARY("trunc")
#undef FJ_UNARY
#define FJ_BINARY(name) \
  {"_foreach_" name ".List", name ".Tensor"}, {"_foreach_" name ".Scalar", name ".Tensor"}, \
  {"_foreach_" name ".ScalarList", name ".Tensor"}, {"_foreach_" name ".Tensor", name ".Tensor"},
                FJ_BINARY("add") FJ_BINARY("sub") FJ_BINARY("mul") FJ_BINARY("div")
#undef FJ_BINARY
#define FJ_BOUND(name, tensor, number) \
  {"_foreach_" name ".List", tensor}, {"_foreach_" name ".Scalar", number}, {"_foreach_" name ".ScalarList", number},
                    FJ_BOUND("clamp_min", "maximum", "clamp_min") FJ_BOUND("maximum", "maximum", "clamp_min")
                        FJ_BOUND("clamp_max", "minimum", "clamp_max") FJ_BOUND("minimum", "minimum", "clamp_max")
                            FJ_BOUND("pow", "pow.Tensor_Tensor", "pow.Tensor_Scalar")
#undef FJ_BOUND
                                {"_foreach_pow.ScalarAndTensor", "pow.Scalar", true},
    {"_foreach_copy", "copy"},
    {"_foreach_addcmul.Scalar", "addcmul"},
    {"_foreach_addcmul.ScalarList", "addcmul"},
    {"_foreach_addcdiv.Scalar", "addcdiv"},
    {"_foreach_addcdiv.ScalarList", "addcdiv"},
    {"_foreach_lerp.List", "lerp.Tensor"},
    {"_foreach_lerp.Scalar", "lerp.Scalar"},
    {"_foreach_lerp.ScalarList", "lerp.Scalar"},
};

constexpr std::string_view kNumberIsTensor = "framejit::";  // twins of ATen's ops

std::string_view without_prefix(std::string_view op) {
  if (op.starts_with(kNumberIsTensor)) op.remove_prefix(kNumberIsTensor.size());
  return op;
}

const ListRow* find_row(std::string_view op) {
  const auto row = std::ranges::find(kRows, without_prefix(op), &ListRow::op);
  return row == std::end(kRows) ? nullptr : row;
}

// Which argument of the single op is a number that its twin takes as a tensor.
std::optional<size_t> number_argument(std::string_view single) {
  static constexpr std::pair<std::string_view, size_t> kNumbers[] = {
      {"add.Tensor", 2}, {"sub.Tensor", 2},        {"addcmul", 3},   {"addcdiv", 3},  {"lerp.Scalar", 2},
      {"pow.Scalar", 0}, {"pow.Tensor_Scalar", 1}, {"clamp_min", 1}, {"clamp_max", 1}};
  for (const auto& [op, argument] : kNumbers)
    if (op == single) return argument;
  return std::nullopt;
}

// The k-th number of a list, or the argument that all share.
std::optional<Arg> number_for(const Arg& arg, size_t k) {
  if (const auto* sizes = arg.get<SymSizes>())
    return k < sizes->size() ? std::optional<Arg>((*sizes)[k]) : std::nullopt;
  if (const auto* floats = arg.get<std::vector<double>>())
    return k < floats->size() ? std::optional<Arg>((*floats)[k]) : std::nullopt;
  if (const auto* flags = arg.get<std::vector<bool>>())
    return k < flags->size() ? std::optional<Arg>(Arg(static_cast<bool>((*flags)[k]))) : std::nullopt;
  return arg;
}

// The arguments of the single op for element k; nullopt if the lists do not fit.
std::optional<std::vector<Arg>> single_args(Decomposing& d, const ListRow& row, size_t k) {
  std::vector<Arg> args;
  for (size_t i = 0; i < d.args.size(); ++i) {
    if (const auto* list = d.args[i].get<std::vector<ValueId>>()) {
      if (k >= list->size() || (*list)[k] == kNoValue) return std::nullopt;
      args.emplace_back((*list)[k]);
    } else if (auto number = number_for(d.args[i], k)) {
      args.push_back(std::move(*number));
    } else {
      return std::nullopt;
    }
  }
  // Next to a 0-dim tensor, a tensor in place of a number would promote differently than the number.
  const bool is_twin = d.node.op->name.starts_with(kNumberIsTensor) && args.size() > 1;
  if (is_twin && d.args[1].get<ValueId>() != nullptr && args[0].get<ValueId>() != nullptr &&
      d.meta(*args[0].get<ValueId>()).sizes.empty())
    args[1] = converted(d.out, *args[1].get<ValueId>(), d.metas[k].dtype);
  const bool takes_alpha = find_op(row.single)->has(kTakesAlpha);
  if (takes_alpha && args.size() == 2) args.emplace_back(SymExpr(1));
  return args;
}

bool each_of_list(Decomposing& d) {
  const ListRow* const found = find_row(d.node.op->name);
  FJ_ASSERT(found != nullptr, "a row of the list ops: " + d.node.op->name);
  const ListRow& row = *found;
  const OpDef* single = find_op(row.single);
  const auto* lengths = d.args[row.number_first ? 1 : 0].get<std::vector<ValueId>>();
  if (single == nullptr || lengths == nullptr || lengths->size() != d.metas.size()) return false;
  const OpDef* op = single;
  std::vector<std::vector<Arg>> calls;
  std::vector<TensorMeta> metas, shapes;
  for (size_t k = 0; k < d.metas.size(); ++k) {
    auto args = single_args(d, row, k);
    if (!args) return false;
    std::vector<Arg> plain = *args;
    const auto number = number_argument(row.single);
    if (number && *number < plain.size() && plain[*number].get<ValueId>() != nullptr) {
      plain[*number] = 1.0;  // the shape does not depend on it
      op = find_op(std::string(kNumberIsTensor) + std::string(row.single));
    }
    if (op == nullptr || !infer_metas(*single, plain, d.out.peek().values, d.out.shapes(), metas) ||
        metas.size() != 1 || metas[0].dtype != d.metas[k].dtype)
      return false;
    calls.push_back(std::move(*args));
    shapes.push_back(std::move(metas[0]));
  }
  for (size_t k = 0; k < calls.size(); ++k)
    d.results.push_back(d.out.emit(op->name, std::move(calls[k]), std::move(shapes[k])));
  return true;
}

// _foreach_norm(self, ord, dtype)
bool norm_of_list(Decomposing& d) {
  const auto* tensors = d.args[0].get<std::vector<ValueId>>();
  if (tensors == nullptr || tensors->size() != d.metas.size()) return false;
  const auto given = [&](size_t i, Arg otherwise) { return i < d.args.size() ? d.args[i] : std::move(otherwise); };
  for (size_t k = 0; k < tensors->size(); ++k)
    d.results.push_back(
        d.out.emit("linalg_vector_norm", {(*tensors)[k], given(1, 2.0), Arg{}, false, given(2, Arg{})}, d.metas[k]));
  return true;
}

bool zeros_of_list(Decomposing& d) {
  for (const TensorMeta& meta : d.metas) d.results.push_back(d.full(meta.sizes, SymExpr(0), meta.dtype, meta.device));
  return true;
}

}  // namespace

std::string_view single_of_list_op(std::string_view op) {
  const ListRow* const row = find_row(op);
  return row == nullptr ? std::string_view() : row->single;
}

void add_list_decompositions(Decompositions& table) {
  table.emplace("_foreach_zero", zeros_of_list);
  table.emplace("_foreach_norm.Scalar", norm_of_list);
  static std::deque<std::string> twins;
  for (const ListRow& row : kRows) {
    table.emplace(row.op, each_of_list);
    table.emplace(twins.emplace_back(std::string(kNumberIsTensor) + std::string(row.op)), each_of_list);
  }
}

}  // namespace framejit::graph
