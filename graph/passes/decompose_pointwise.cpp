// graph/passes/decompose_pointwise.cpp — elementwise composites and filled tensors.
#include "graph/number_range.h"
#include "graph/passes/decompose.h"

namespace framejit::graph {
namespace {

// If the op itself must check a number, the op is left whole.
bool surely_fits(Decomposing& d, const Arg& number) {
  const ValueId* tensor = number.get<ValueId>();
  return tensor != nullptr ? !fitting_range(d.meta(*tensor).dtype, d.metas[0].dtype)
                           : is_fitting_constant(number, d.metas[0].dtype);
}

bool masked_fill(Decomposing& d) {  // self, mask, value
  if (!surely_fits(d, d.args[2])) return false;
  const std::vector<Arg> args{d.args[1], d.args[2], d.args[0]};
  std::vector<TensorMeta> metas;
  if (!infer_metas(*find_op("where.self"), args, d.out.peek().values, d.out.shapes(), metas)) return false;
  if (metas[0].dtype != d.metas[0].dtype) return false;
  d.results = {d.out.emit("where.self", args, metas[0])};
  return true;
}

bool filled(Decomposing& d, const Arg& number) {
  d.results = {d.full(d.metas[0].sizes, number, d.metas[0].dtype, d.metas[0].device)};
  return true;
}
template <int64_t number>
bool filled_with(Decomposing& d) { return filled(d, SymExpr(number)); }
template <size_t at>
bool filled_by_argument(Decomposing& d) { return d.rule().number(at).has_value() && filled(d, d.args[at]); }

bool fill_tensor(Decomposing& d) {  // self, value
  if (!surely_fits(d, d.args[1])) return false;
  if (d.meta(d.value(1)).device != d.metas[0].device) return false;  // a number of the CPU in a tensor of a GPU
  const ValueId value = converted(d.out, d.value(1), d.metas[0].dtype);
  d.results = {d.emit("expand", {value, d.metas[0].sizes, false})};
  return true;
}

// Memory like that of a tensor does not depend on the contents of that tensor.
bool empty_like(Decomposing& d) {  // self, dtype, layout, device, pin_memory, memory_format
  if (d.has(4)) return false;
  d.results = {d.emit("empty_strided",
                      {d.metas[0].sizes, d.metas[0].strides, d.metas[0].dtype, Arg{}, d.metas[0].device, Arg{}})};
  return true;
}

// Dropout outside training: the input, and a mask of ones.
bool dropout(Decomposing& d) {  // input, p, train
  const bool* train = d.args.size() > 2 ? d.args[2].get<bool>() : nullptr;
  if (train == nullptr || *train) return false;
  d.results = {d.value(0), d.full(d.metas[1].sizes, true, d.metas[1].dtype, d.metas[1].device)};
  return true;
}

// arange, arange.start -> arange.start_step
template <bool has_start>
bool arange(Decomposing& d) {
  const size_t end = has_start ? 1 : 0;
  const bool floating = d.args[end].get<double>() != nullptr || (has_start && d.args[0].get<double>() != nullptr);
  auto number = [&](int64_t n) { return floating ? Arg(static_cast<double>(n)) : Arg(SymExpr(n)); };
  auto as_kind = [&](const Arg& a) {
    if (const bool* b = a.get<bool>()) return number(*b);
    const SymExpr* n = a.get<SymExpr>();
    return floating && n != nullptr && n->is_constant() ? Arg(static_cast<double>(n->constant())) : a;
  };
  d.results = {d.emit("arange.start_step", {has_start ? as_kind(d.args[0]) : number(0), as_kind(d.args[end]), number(1),
                                            d.metas[0].dtype, Arg{}, d.metas[0].device, Arg{}})};
  return true;
}

}  // namespace

void add_pointwise_decompositions(Decompositions& table) {
  table.insert({{"masked_fill.Scalar", masked_fill},
                {"masked_fill.Tensor", masked_fill},
                {"zeros", filled_with<0>},
                {"_efficientzerotensor", filled_with<0>},  // it has no memory
                {"ones", filled_with<1>},
                {"new_zeros", filled_with<0>},
                {"new_ones", filled_with<1>},
                {"zeros_like", filled_with<0>},
                {"ones_like", filled_with<1>},
                {"zero", filled_with<0>},
                {"full_like", filled_by_argument<1>},
                {"new_full", filled_by_argument<2>},
                {"fill.Scalar", filled_by_argument<1>},
                {"scalar_tensor", filled_by_argument<0>},
                {"fill.Tensor", fill_tensor},
                {"empty_like", empty_like},
                {"native_dropout", dropout},
                {"arange", arange<false>},
                {"arange.start", arange<true>}});
}

}  // namespace framejit::graph
