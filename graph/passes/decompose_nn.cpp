// graph/passes/decompose_nn.cpp — losses, gates and backward formulas of normalisations, in elementwise ops and sums.
#include "graph/ops/rule_kit.h"
#include "graph/passes/decompose.h"

namespace framejit::graph {
namespace {

SymSizes all_dims(const TensorMeta& meta) {
  SymSizes dims;
  for (size_t i = 0; i < meta.ndim(); ++i) dims.emplace_back(static_cast<int64_t>(i));
  return dims;
}

SymSizes dims_from(size_t first, size_t end) {
  SymSizes dims;
  for (size_t i = first; i < end; ++i) dims.emplace_back(static_cast<int64_t>(i));
  return dims;
}

bool is_nonempty(Decomposing& d, const SymExpr& numel) { return d.out.shapes().known(1, Relation::kLe, numel) == true; }

// In float16, eager's composites overflow between two steps; bfloat16 has the range of float32.
ValueId step(Decomposing& d, ValueId v) {
  return d.metas[0].dtype == DType::kFloat16 ? converted(d.out, converted(d.out, v, DType::kFloat16), DType::kFloat32)
                                             : v;
}

// at::Reduction: 0 keeps the elements, 1 their mean, 2 their sum.
ValueId reduced_loss(Decomposing& d, ValueId loss, int64_t reduction) {
  if (reduction == 0) return d.narrow(loss, 0);
  loss = step(d, loss);
  const SymExpr count = d.meta(loss).numel();
  ValueId total = d.sum(loss, all_dims(d.meta(loss)), false);
  if (reduction == 1) total = d.div(total, count);
  return d.narrow(total, 0);
}

// The operands of a loss, widened: tensors of one floating-point dtype, with at least one element for the mean.
struct LossOperands {
  ValueId self, target;
  int64_t reduction;
};
std::optional<LossOperands> loss_operands(Decomposing& d, size_t reduction_at) {
  const TensorMeta &self = d.meta(d.value(0)), &target = d.meta(d.value(1));
  const auto reduction = d.args.size() > reduction_at ? d.rule().integer(reduction_at) : std::optional<int64_t>(1);
  if (!reduction || !is_float(self.dtype) || self.dtype != target.dtype || self.sizes != target.sizes ||
      !is_nonempty(d, self.numel()))
    return std::nullopt;
  return LossOperands{d.wide(d.value(0)), d.wide(d.value(1)), *reduction};
}

std::optional<double> number_at(const Decomposing& d, size_t i, double otherwise) {
  if (i >= d.args.size() || d.args[i].is_none()) return otherwise;
  if (const double* f = d.args[i].get<double>()) return *f;
  const auto n = d.rule().integer(i);
  return n ? std::optional<double>(static_cast<double>(*n)) : std::nullopt;
}

ValueId where(Decomposing& d, ValueId condition, Arg yes, Arg no) {
  return d.emit("where.self", {condition, std::move(yes), std::move(no)});
}

bool mse_loss(Decomposing& d) {  // self, target, reduction
  const auto o = loss_operands(d, 2);
  if (!o) return false;
  const ValueId distance = d.sub(o->self, o->target);
  d.results = {reduced_loss(d, d.mul(distance, distance), o->reduction)};
  return true;
}

bool smooth_l1_loss(Decomposing& d) {  // self, target, reduction, beta
  const auto beta = number_at(d, 3, 1.0);
  if (!beta || !(*beta > 0)) return false;  // the op itself refuses NaN when it runs
  const auto o = loss_operands(d, 2);
  if (!o) return false;
  const ValueId z = step(d, d.emit("abs", {d.sub(o->self, o->target)}));
  ValueId inner = d.mul(d.mul(z, 0.5), z);
  if (d.metas[0].device.is_cpu()) inner = step(d, inner);  // a GPU squares in float32
  inner = d.div(inner, *beta);
  d.results = {reduced_loss(d, where(d, d.emit("lt.Scalar", {z, *beta}), inner, d.sub(z, 0.5 * *beta)), o->reduction)};
  return true;
}

bool huber_loss(Decomposing& d) {  // self, target, reduction, delta
  const auto delta = number_at(d, 3, 1.0);
  if (!delta || !(*delta > 0)) return false;
  const auto o = loss_operands(d, 2);
  if (!o) return false;
  const ValueId z = step(d, d.emit("abs", {d.sub(o->self, o->target)}));
  const ValueId inner = d.mul(d.mul(z, 0.5), z), outer = d.mul(d.sub(z, 0.5 * *delta), *delta);
  d.results = {reduced_loss(d, where(d, d.emit("le.Scalar", {z, *delta}), inner, outer), o->reduction)};
  return true;
}

bool soft_margin_loss(Decomposing& d) {  // self, target, reduction
  const auto o = loss_operands(d, 2);
  if (!o) return false;
  const ValueId power = step(d, d.emit("exp", {step(d, d.mul(d.emit("neg", {o->target}), o->self))}));
  const ValueId loss = d.emit("log1p", {power});
  d.results = {reduced_loss(d, loss, o->reduction)};
  return true;
}

// log(sigmoid(x)) = min(x, 0) - log1p(exp(-|x|)); the CPU kernel keeps the exp for the backward.
struct LogSigmoid {
  ValueId value, kept;
};
LogSigmoid log_sigmoid(Decomposing& d, ValueId x) {
  const ValueId kept = d.emit("exp", {d.emit("neg", {d.emit("abs", {x})})});
  return {d.sub(d.emit("clamp_max", {x, SymExpr(0)}), d.emit("log1p", {kept})), kept};
}

bool log_sigmoid_forward(Decomposing& d) {  // self -> (value, buffer)
  if (!is_float(d.metas[0].dtype) || d.metas[1].sizes != d.metas[0].sizes) return false;
  const LogSigmoid made = log_sigmoid(d, d.wide(d.value(0)));
  d.results = {d.narrow(made.value, 0), d.narrow(made.kept, 1)};
  return true;
}

// A kernel checks the operands of an elementwise loss (inductor/lowering/loss.cpp); here the results are combined.
bool binary_cross_entropy(Decomposing& d) {  // self, target, weight, reduction
  const auto o = loss_operands(d, 3);
  if (!o || o->reduction == 0) return false;
  const ValueId loss =
      d.emit("binary_cross_entropy", {d.args[0], d.args[1], d.args.size() > 2 ? d.args[2] : Arg{}, SymExpr(0)});
  d.results = {reduced_loss(d, d.wide(loss), o->reduction)};
  return true;
}

bool binary_cross_entropy_with_logits(Decomposing& d) {  // self, target, weight, pos_weight, reduction
  const auto o = loss_operands(d, 4);
  if (!o) return false;
  ValueId likely = step(d, log_sigmoid(d, o->self).value);
  if (d.has(3))
    likely =
        step(d, d.mul(likely, step(d, d.add(step(d, d.mul(step(d, d.sub(d.wide(d.value(3)), 1.0)), o->target)), 1.0))));
  const ValueId unlikely = step(d, d.mul(step(d, d.emit("rsub.Scalar", {o->target, SymExpr(1), SymExpr(1)})), o->self));
  ValueId loss = d.sub(unlikely, likely);
  if (d.has(2)) loss = d.mul(step(d, loss), d.wide(d.value(2)));
  if (d.meta(loss).sizes != d.meta(o->self).sizes) return false;
  d.results = {reduced_loss(d, loss, o->reduction)};
  return true;
}

bool glu(Decomposing& d) {  // self, dim: the first half times the sigmoid of the second
  const TensorMeta& self = d.meta(d.value(0));
  const auto dim = wrap_dim(d.rule().integer_or(1, -1), self.ndim());
  if (!dim || self.ndim() == 0 || !is_float(self.dtype)) return false;
  const SymExpr size = self.sizes[*dim], half = d.metas[0].sizes[*dim];
  const auto part = [&](const SymExpr& from, const SymExpr& to) {
    return d.wide(d.emit("slice.Tensor", {d.args[0], static_cast<int64_t>(*dim), from, to, SymExpr(1)}));
  };
  const ValueId first = part(0, half), second = part(half, size);
  d.results = {d.narrow(d.mul(first, d.emit("sigmoid", {second})), 0)};
  return true;
}

template <bool logarithm>
bool softmax_backward(Decomposing& d) {  // grad, output, dim, input_dtype
  const auto given = d.rule().integer(2);
  const TensorMeta& output = d.meta(d.value(1));
  const auto dim = given ? wrap_dim(*given, output.ndim()) : std::nullopt;
  if (!dim || output.ndim() == 0 || !is_float(output.dtype) || d.meta(d.value(0)).sizes != output.sizes) return false;
  const SymSizes dims{SymExpr(static_cast<int64_t>(*dim))};
  const ValueId grad = d.wide(d.value(0)), y = d.wide(d.value(1));
  if (logarithm) {
    d.results = {d.narrow(d.sub(grad, d.mul(d.emit("exp", {y}), d.sum(grad, dims, true))), 0)};
  } else {
    d.results = {d.narrow(d.mul(d.sub(grad, d.sum(d.mul(grad, y), dims, true)), y), 0)};
  }
  return true;
}

// grad, input, normalized_shape, mean, rstd, weight, bias, output_mask -> (d input, d weight, d bias)
bool layer_norm_backward(Decomposing& d) {
  SymSizes normalized;
  const TensorMeta input = d.meta(d.value(1));
  if (!d.rule().sizes(2, normalized) || !is_float(input.dtype) || !is_nonempty(d, input.numel())) return false;
  const size_t first = input.ndim() - normalized.size();
  const SymSizes row = dims_from(first, input.ndim()), outer = dims_from(0, first);
  SymExpr count = 1;
  for (const SymExpr& e : normalized) count = count * e;
  SymSizes statistics(input.sizes.begin(), input.sizes.begin() + static_cast<std::ptrdiff_t>(first));
  statistics.resize(input.ndim(), SymExpr(1));
  const ValueId grad = d.wide(d.value(0)), rstd = reshaped(d.out, d.wide(d.value(4)), statistics);
  const ValueId normal = d.mul(d.sub(d.wide(d.value(1)), reshaped(d.out, d.wide(d.value(3)), statistics)), rstd);
  d.results.assign(3, kNoValue);
  if (d.node.results[0] != kNoValue) {
    const ValueId scaled = d.has(5) ? d.mul(grad, d.wide(d.value(5))) : grad;
    const ValueId mean = d.div(d.sum(scaled, row, true), count),
                  along = d.div(d.sum(d.mul(scaled, normal), row, true), count);
    d.results[0] = d.narrow(d.mul(d.sub(d.sub(scaled, mean), d.mul(normal, along)), rstd), 0);
  }
  const auto summed = [&](ValueId v, size_t k) { return d.narrow(outer.empty() ? v : d.sum(v, outer, false), k); };
  if (d.node.results[1] != kNoValue) d.results[1] = summed(d.mul(grad, normal), 1);
  if (d.node.results[2] != kNoValue) d.results[2] = summed(grad, 2);
  return true;
}

bool addr(Decomposing& d) {  // self, vec1, vec2, beta, alpha
  const auto beta = number_at(d, 3, 1.0), alpha = number_at(d, 4, 1.0);
  if (!beta || !alpha || !is_float(d.metas[0].dtype)) return false;
  for (size_t i = 0; i < 3; ++i)
    if (d.meta(d.value(i)).dtype != d.metas[0].dtype) return false;
  const SymSizes& sizes = d.metas[0].sizes;
  ValueId product =
      d.mul(reshaped(d.out, d.wide(d.value(1)), {sizes[0], 1}), reshaped(d.out, d.wide(d.value(2)), {1, sizes[1]}));
  if (*alpha != 1) product = d.mul(product, *alpha);
  if (*beta != 0) product = d.add(*beta == 1 ? d.wide(d.value(0)) : d.mul(d.wide(d.value(0)), *beta), product);
  d.results = {d.narrow(product, 0)};
  return true;
}

}  // namespace

void add_nn_decompositions(Decompositions& table) {
  table.insert({{"mse_loss", mse_loss},
                {"smooth_l1_loss", smooth_l1_loss},
                {"huber_loss", huber_loss},
                {"soft_margin_loss", soft_margin_loss},
                {"binary_cross_entropy", binary_cross_entropy},
                {"binary_cross_entropy_with_logits", binary_cross_entropy_with_logits},
                {"log_sigmoid_forward", log_sigmoid_forward},
                {"glu", glu},
                {"_softmax_backward_data", softmax_backward<false>},
                {"_log_softmax_backward_data", softmax_backward<true>},
                {"native_layer_norm_backward", layer_norm_backward},
                {"addr", addr}});
}

}  // namespace framejit::graph
