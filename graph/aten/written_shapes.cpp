// graph/aten/written_shapes.cpp — shapes of ops that write: in-place forms and out= forms keep the shapes of the
// tensors that they write, if the functional form's rule says that the result fits. Otherwise the recorder finds the
// shapes in another way.
#include "graph/aten/eager_errors.h"
#include "graph/aten/recorder.h"
#include "graph/shape_rule.h"

namespace framejit::graph {
namespace {

bool broadcasts_to(const ShapeEnv& env, const TensorMeta& from, const TensorMeta& to) {
  if (from.ndim() > to.ndim()) return false;
  for (size_t i = 1; i <= from.ndim(); ++i) {
    const SymExpr &a = from.sizes[from.ndim() - i], &b = to.sizes[to.ndim() - i];
    if (!(a == b) && !(a == SymExpr(1)) && env.known(a, Relation::kEq, b) != true) return false;
  }
  return true;
}

// Equal for the hints, which then becomes a fact.
bool equal_sizes(ShapeEnv& env, const SymSizes& a, const SymSizes& b) {
  if (a.size() != b.size()) return false;
  for (size_t d = 0; d < a.size(); ++d)
    if (env.hint(a[d]) != env.hint(b[d])) return false;
  for (size_t d = 0; d < a.size(); ++d)
    if (!(a[d] == b[d])) env.decide(a[d], Relation::kEq, b[d], "out= has the size of the result");
  return true;
}

}  // namespace

bool Recorder::fits_in_place(const OpCall& call) const {
  const ValueId* self = call.node.args[0].get<ValueId>();
  if (self == nullptr || *self == kNoValue) return false;
  const TensorMeta& meta = graph().meta(*self);
  const bool fills = call.def().is(KnownOp::fill_in_place);
  if (overlaps_itself(meta) || call.def().has(kRefusesNumbers)) return false;
  if (call.def().has(kRequiresOperands)) return true;
  for (size_t i = 1; i < call.node.args.size(); ++i) {
    const Arg& arg = call.node.args[i];
    if (arg.get<std::vector<ValueId>>() != nullptr) return false;
    if (arg.get<double>() != nullptr && !is_float(meta.dtype) && !fills) return false;
    if (arg.get<SymExpr>() != nullptr && meta.dtype == DType::kBool && !fills) return false;
    const ValueId* v = arg.get<ValueId>();
    if (v == nullptr) continue;
    if ((graph().meta(*v).dtype != meta.dtype && !call.def().is(KnownOp::copy_in_place)) ||
        !broadcasts_to(builder_.peek().shapes, graph().meta(*v), meta))
      return false;
  }
  return true;
}

// An in-place op keeps the shape of its tensor. Only broadcasting and promotion can be wrong, which the rule of the
// functional form finds.
bool Recorder::keep_shape_in_place(OpCall& call) {
  if (!call.info.in_place) return false;
  if (!fits_in_place(call)) {
    std::vector<TensorMeta> metas;
    const ValueId* self = call.node.args[0].get<ValueId>();
    const OpDef* functional = find_op(call.def().functional);
    if (self == nullptr || functional == nullptr || overlaps_itself(graph().meta(*self))) return false;
    if (!infer_metas(*functional, call.node.args, graph().values, shapes(), metas) || metas.size() != 1) return false;
    const DType from = metas[0].dtype, to = graph().meta(*self).dtype;
    if (metas[0].sizes != graph().meta(*self).sizes || !c10::canCast(scalar_type_of(from), scalar_type_of(to)))
      return false;
  }
  call.node.results = {*call.node.args[0].get<ValueId>()};
  call.results.push_back(call.args[0]);
  return true;
}

// Tensors given as out= that have the sizes and dtypes of the results keep their strides. The kernel resizes others.
bool Recorder::keep_shape_of_outs(OpCall& call) {
  const OpDef* functional = call.def().drops_out_args ? find_op(call.def().functional) : nullptr;
  if (functional == nullptr || call.def().result_alias.size() != call.def().write_args.size()) return false;
  std::vector<Arg> args = call.node.args;
  for (size_t i = call.def().write_args.size(); i-- > 0;) args.erase(args.begin() + call.def().write_args[i]);
  std::vector<TensorMeta> metas;
  const DType number = dtype_of(c10::get_default_dtype_as_scalartype());
  if (!infer_metas(*functional, args, graph().values, shapes(), metas, number) ||
      metas.size() != call.def().result_alias.size())
    return false;
  std::vector<ValueId> outs;
  for (size_t r = 0; r < metas.size(); ++r) {
    const int at = call.def().result_alias[r];
    const ValueId* out =
        at >= 0 && call.info.returns_argument[r] ? call.node.args[static_cast<size_t>(at)].get<ValueId>() : nullptr;
    if (out == nullptr || *out == kNoValue) return false;
    const TensorMeta& meta = graph().meta(*out);
    const bool has_other_dtype = meta.dtype != metas[r].dtype;
    if (has_other_dtype && !functional->has(kPointwise))  // a reduction computes in it, and some kernels refuse it
      fail({Reason::unsupported_op, call.def().name + " with an out= whose dtype is not that of the result,"});
    if (has_other_dtype || !(meta.device == device_of(call.device)) || overlaps_itself(meta) ||
        !equal_sizes(shapes(), metas[r].sizes, meta.sizes))
      return false;
    outs.push_back(*out);
  }
  for (size_t r = 0; r < outs.size(); ++r)
    call.results.push_back(call.args[static_cast<size_t>(call.def().result_alias[r])]);
  call.node.results = std::move(outs);
  return true;
}

}  // namespace framejit::graph
