// graph/passes/decompose_lists.cpp — the _foreach ops: each becomes its single op, once for every tensor of the list.
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

const ListRow& row_of_list(std::string_view op) {
  for (const ListRow& row : kRows)
    if (row.op == op) return row;
  throw_internal_error(__FILE__, __LINE__, "a row of the list ops", std::string(op));
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

// The arguments of the single op for element k; nothing if the lists do not fit.
std::optional<std::vector<Arg>> single_args(const Decomposing& d, const ListRow& row, size_t k) {
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
  const bool adds = row.single == "add.Tensor" || row.single == "sub.Tensor";
  if (adds && args.size() == 2) args.emplace_back(SymExpr(1));
  return args;
}

bool each_of_list(Decomposing& d) {
  const ListRow& row = row_of_list(d.node.op->name);
  const OpDef* single = find_op(row.single);
  const auto* lengths = d.args[row.number_first ? 1 : 0].get<std::vector<ValueId>>();
  if (single == nullptr || lengths == nullptr || lengths->size() != d.metas.size()) return false;
  std::vector<std::vector<Arg>> calls;
  std::vector<TensorMeta> metas;
  for (size_t k = 0; k < d.metas.size(); ++k) {
    auto args = single_args(d, row, k);
    if (!args || !infer_metas(*single, *args, d.out.peek().values, d.out.shapes(), metas) || metas.size() != 1 ||
        metas[0].dtype != d.metas[k].dtype)
      return false;
    calls.push_back(std::move(*args));
  }
  for (std::vector<Arg>& args : calls) d.results.push_back(d.out.emit(row.single, std::move(args)));
  return true;
}

bool zeros_of_list(Decomposing& d) {
  for (const TensorMeta& meta : d.metas) d.results.push_back(d.full(meta.sizes, SymExpr(0), meta.dtype, meta.device));
  return true;
}

}  // namespace

void add_list_decompositions(Decompositions& table) {
  table.emplace("_foreach_zero", zeros_of_list);
  for (const ListRow& row : kRows) table.emplace(row.op, each_of_list);
}

}  // namespace framejit::graph
