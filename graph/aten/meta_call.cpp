// graph/aten/meta_call.cpp — meta twins in, traced tensors out.
#include "graph/aten/meta_call.h"

#include "runtime/aten/torch_words.h"
#include "runtime/base/log.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "graph/node_values.h"
#include "graph/op_lists.h"
#include "runtime/aten/shape_functions.h"

namespace framejit::graph {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;

struct ConcreteShape {
  c10::SmallVector<int64_t, 5> sizes, strides;
  int64_t offset;
};

ConcreteShape concrete_shape(const TensorMeta& meta, const ShapeEnv& env) {
  ConcreteShape shape;
  for (size_t d = 0; d < meta.ndim(); ++d) {
    shape.sizes.push_back(env.hint(meta.sizes[d]));
    shape.strides.push_back(env.hint(meta.strides[d]));
  }
  shape.offset = env.hint(meta.offset);
  return shape;
}

void collect(const TensorMeta& meta, std::vector<SymbolId>& symbols) {
  for (const SymExpr& e : meta.sizes) e.collect_symbols(symbols);
  for (const SymExpr& e : meta.strides) e.collect_symbols(symbols);
  meta.offset.collect_symbols(symbols);
}

TensorMeta symbolic_meta_of(const at::Tensor& tensor) {
  if (!tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return meta_of(tensor);
  TensorMeta meta;
  meta.dtype = dtype_of(tensor.scalar_type());
  meta.device = device_of(tensor.device());
  for (const c10::SymInt& size : tensor.sym_sizes()) meta.sizes.push_back(expr_of(size));
  for (const c10::SymInt& stride : tensor.sym_strides()) meta.strides.push_back(expr_of(stride));
  meta.offset = expr_of(tensor.sym_storage_offset());
  return meta;
}

std::vector<SymbolId> symbols_of(const OpCall& call, const Graph& graph) {
  std::vector<SymbolId> symbols;
  for (const Arg& arg : call.node.args) {
    for_each_value(arg, [&](ValueId v) {
      if (v != kNoValue) collect(graph.meta(v), symbols);
    });
    if (const auto* e = arg.get<SymExpr>()) e->collect_symbols(symbols);
    if (const auto* list = arg.get<std::vector<SymExpr>>())
      for (const SymExpr& e : *list) e.collect_symbols(symbols);
  }
  return symbols;
}

std::vector<at::Tensor> tensors_in(const torch::jit::Stack& stack) {
  std::vector<at::Tensor> found;
  for (const IValue& value : stack) {
    if (value.isTensor()) found.push_back(value.toTensor());
    else if (value.isTensorList())
      for (const at::Tensor& t : value.toTensorVector()) found.push_back(t);
  }
  return found;
}

}  // namespace

// Torch's shape functions see only numbers: every symbol that could matter becomes a constant.
void Recorder::specialise_symbols(const OpCall& call) {
  for (SymbolId id : symbols_of(call, graph()))
    shapes().specialise(SymExpr::symbol(id), why() + " (" + call.def().name + " has no symbolic shape rule)");
}

ShapeOrigin Recorder::shape_by_torch(OpCall& call) {
  if (runtime::has_erred(call.def().name))
    fail({Reason::unsupported_op, call.def().name + ", whose shape function is wrong,"});
  if (const auto origin = MetaCall(*this, call).run_with_symbols()) return *origin;
  specialise_symbols(call);
  return MetaCall(*this, call).run();
}

at::Tensor MetaCall::twin_of(const at::Tensor& tensor) {
  if (!tensor.defined() || (tensor.unsafeGetTensorImpl()->is_wrapped_number() && as_traced(tensor) == nullptr))
    return tensor;  // shape functions in Python need the number
  for (const Twin& twin : twins_)
    if (twin.argument.is_same(tensor)) return twin.meta;
  const TensorMeta meta = meta_of_argument(tensor);
  const ConcreteShape shape = concrete_shape(meta, recorder_.shapes());
  const c10::Storage& storage = recorder_.storages_.twin_of(recorder_.traced_storage_of(tensor));
  twins_.push_back({tensor, with_symbols_
                                ? make_symbolic_meta_twin(storage, tensor.dtype(), meta, recorder_.shared_from_this())
                                : make_meta_twin(storage, tensor.dtype(), shape.sizes, shape.strides, shape.offset)});
  return twins_.back().meta;
}

IValue MetaCall::meta_argument(size_t index) {
  const IValue& value = call_.args[index];
  const Arg& arg = call_.node.args[index];
  const ArgClass arg_class = call_.info.arg_classes[index];
  if (static_cast<int>(index) == call_.info.device_arg) {
    const bool follows_a_tensor = value.isNone() && std::any_of(call_.args.begin(), call_.args.end(),
                                                                [](const IValue& v) { return v.isTensor(); });
    return follows_a_tensor ? value : IValue(c10::Device(c10::kMeta));
  }
  if (value.isTensor()) return twin_of(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorList()) list.push_back(twin_of(t));
    return list;
  }
  if (arg_class == ArgClass::kOptionalTensorList && value.isList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const IValue& item : value.toListRef())
      list.push_back(item.isTensor() && item.toTensor().defined() ? std::optional<at::Tensor>(twin_of(item.toTensor()))
                                                                  : std::nullopt);
    return list;
  }
  if (value.isGenerator()) return IValue();
  if (const auto* e = arg.get<SymExpr>()) return value.isSymInt() ? IValue(recorder_.shapes().hint(*e)) : value;
  if (value.isSymIntList()) {
    std::vector<int64_t> hints;
    for (const SymExpr& e : *arg.get<std::vector<SymExpr>>()) hints.push_back(recorder_.shapes().hint(e));
    return hints;
  }
  if (value.isSymFloat()) return *arg.get<double>();
  if (value.isSymBool()) return *arg.get<bool>();
  return value;
}

ShapeOrigin MetaCall::call_meta(torch::jit::Stack& stack) {
  c10::impl::ExcludeDispatchKeyGuard below(
      DispatchKeySet({DispatchKey::Fake, DispatchKey::Functionalize, DispatchKey::Python}) |
      c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  if (call_.info.typed_meta != nullptr) {
    call_.info.typed_meta->callBoxed(call_.info.handle, DispatchKeySet(DispatchKey::Meta), &stack);
    return ShapeOrigin::kTyped;
  }
  const MetaKernel kernel = call_.info.meta_kernel();
  if (kernel == MetaKernel::kNone)
    recorder_.fail({Reason::unsupported_op, call_.def().name + ", which has no shape function,"});
  try {
    call_.info.handle.redispatchBoxed(DispatchKeySet(DispatchKey::Meta), &stack);
  } catch (const c10::NotImplementedError&) {  // torch's own fallback of the Meta key
    recorder_.fail({Reason::unsupported_op, call_.def().name + ", which has no shape function,"});
  }
  if (kernel == MetaKernel::kCpp) return ShapeOrigin::kDispatcherCpp;
  recorder_.counts_.python_ops.insert(call_.def().name);
  ++runtime::python_shapes();
  return ShapeOrigin::kDispatcherPython;
}

TensorMeta MetaCall::meta_of_argument(const at::Tensor& tensor) const {
  const TracedTensorImpl* traced = as_traced(tensor);
  return traced != nullptr ? recorder_.graph().meta(traced->value) : meta_of(tensor);
}

namespace {

void fill(const at::Tensor& tensor, Filling filling) {
  tensor.fill_(filling == Filling::kOnes ? 1 : 0);
  if (filling == Filling::kIdentity && tensor.dim() >= 2) tensor.diagonal(0, -2, -1).fill_(1);
}

}  // namespace

torch::jit::Stack MetaCall::run_on(Filling filling, std::vector<Twin>& made) const {
  const auto real = [&](const at::Tensor& tensor) {
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && as_traced(tensor) == nullptr) return tensor;
    for (const Twin& twin : made)
      if (twin.argument.is_same(tensor)) return twin.meta;
    const ConcreteShape shape = concrete_shape(meta_of_argument(tensor), recorder_.shapes());
    at::Tensor made_now = at::detail::empty_strided_cpu(shape.sizes, shape.strides, tensor.scalar_type());
    fill(made_now, filling);
    made.push_back({tensor, std::move(made_now)});
    return made.back().meta;
  };
  torch::jit::Stack stack;
  const auto& schema = call_.info.handle.schema().arguments();
  for (size_t i = 0; i < call_.args.size(); ++i) {
    const IValue& given = call_.args[i];
    if (call_.def().has(kRandom) && schema[i].name() == "generator") {
      stack.emplace_back(at::detail::createCPUGenerator(0));  // the program's generators keep their state
    } else if (given.isTensor()) {
      stack.push_back(given.toTensor().defined() ? real(given.toTensor()) : given.toTensor());
    } else if (given.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : given.toTensorList()) list.push_back(real(t));
      stack.push_back(std::move(list));
    } else if (call_.info.arg_classes[i] == ArgClass::kOptionalTensorList && given.isList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const IValue& item : given.toListRef())
        list.push_back(item.isTensor() && item.toTensor().defined() ? std::optional<at::Tensor>(real(item.toTensor()))
                                                                    : std::nullopt);
      stack.push_back(std::move(list));
    } else {
      stack.push_back(ivalue_of(call_.node.args[i], schema[i], {}, recorder_.opaques_,
                                [this](const SymExpr& e) { return recorder_.shapes().hint(e); }));
    }
  }
  call_.info.handle.callBoxed(stack);
  return stack;
}

std::optional<torch::jit::Stack> MetaCall::run_on_fillings(std::vector<Twin>& made) const {
  ++runtime::executed_shapes();
  PlainExecution plain;
  bool is_singular = false;
  for (const Filling filling : {Filling::kZeros, Filling::kOnes, Filling::kIdentity}) {
    made.clear();
    try {
      return run_on(filling, made);
    } catch (const c10::LinAlgError&) {  // the filling has no inverse, which says nothing about the call
      is_singular = true;
    } catch (const std::exception&) {}
  }
  const std::string& name = call_.def().name;
  if (is_singular || is_in(OpList::raises_by_data, name)) return std::nullopt;
  recorder_.fail({Reason::exception_raised, "an error of " + name});
}

// A random op may run only with a generator of its own.
bool MetaCall::may_execute() const {
  const OpDef& def = call_.def();
  const auto& names = def.arg_names;
  const bool draws_elsewhere = def.has(kRandom) && std::find(names.begin(), names.end(), "generator") == names.end();
  return !runtime::is_users(def.name) && !draws_elsewhere && !def.has(kView) && call_.device.is_cpu() &&
         !is_in(OpList::sizes_by_data, def.name);
}

std::optional<torch::jit::Stack> MetaCall::execute() const {
  constexpr int64_t kMostElements = 1 << 20;
  int64_t elements = 0;
  const auto count = [&](const at::Tensor& tensor) {
    elements += recorder_.shapes().hint(meta_of_argument(tensor).numel());
  };
  for (const IValue& arg : call_.args) each_tensor(arg, count);
  for (const IValue& result : call_.results) each_tensor(result, count);  // known already if a rule has answered
  if (!may_execute() || call_.def().has(kRandom) || elements > kMostElements) return std::nullopt;
  std::vector<Twin> made;
  return run_on_fillings(made);
}

// Replaces fresh results by those of the op. If it cannot be run, the shape function is trusted.
void MetaCall::correct_by_execution(torch::jit::Stack& metas) const {
  if (call_.def().has(kMutates)) return;
  auto stack = execute();
  if (!stack) return;
  for (size_t i = 0; i < metas.size() && i < stack->size(); ++i)
    if (metas[i].isTensor() || metas[i].isTensorList()) metas[i] = std::move((*stack)[i]);
}

namespace {

bool shares_memory(const Graph& g, ValueId v) {
  const auto storage = g.values[index_of(v)].storage;
  return std::ranges::count_if(g.values, [&](const auto& other) { return other.storage == storage; }) > 1;
}

}  // namespace

void MetaCall::apply_shape_changes() {
  for (const Twin& twin : twins_) {
    TracedTensorImpl* traced = as_traced(twin.argument);
    if (traced == nullptr) continue;
    TensorMeta meta = recorder_.graph().meta(traced->value);
    TensorMeta after = meta_of(twin.meta);
    if (is_executed_) after.offset = after.offset + meta.offset;
    const ConcreteShape before = concrete_shape(meta, recorder_.shapes());
    if (c10::IntArrayRef(before.sizes) == twin.meta.sizes() &&
        c10::IntArrayRef(before.strides) == twin.meta.strides() && after.offset == meta.offset)
      continue;
    if (traced->input >= 0)
      recorder_.fail({Reason::unsupported_op, call_.def().name + " that changes the shape of an input"});
    if (call_.def().drops_out_args && shares_memory(recorder_.graph(), traced->value))  // the kernel writes there
      recorder_.fail({Reason::unsupported_op, call_.def().name + " that changes the size of a view or of its base"});
    meta.sizes = after.sizes;
    meta.strides = after.strides;
    meta.offset = after.offset;
    recorder_.change_shape(*traced, std::move(meta));
  }
}

// Storage identity is trusted for arguments; everything else is fresh, even if the shape function returned one tensor
// twice.
at::Tensor MetaCall::result_of(const at::Tensor& meta) {
  if (!meta.defined()) return meta;
  for (const Twin& twin : twins_)
    if (twin.meta.is_same(meta)) return twin.argument;
  TensorMeta shape = symbolic_meta_of(meta);
  if (shape.dtype == DType::kOther)
    recorder_.fail(
        {Reason::unsupported_op, call_.def().name + " with a result of type " + std::string(meta.toString())});
  shape.device = device_of(call_.device);
  if (meta.layout() != c10::kStrided) return recorder_.sparse_result(call_, std::move(shape));
  for (const Twin& twin : twins_)
    if (meta.has_storage() && twin.meta.storage().unsafeGetStorageImpl() == meta.storage().unsafeGetStorageImpl()) {
      if (is_executed_) shape.offset = shape.offset + meta_of_argument(twin.argument).offset;
      at::Tensor view = recorder_.view_result(std::move(shape), twin.argument);
      // A lazy conjugate: torch asks for its bit, and resolves it before ops that do not support it.
      if (view.is_conj() != meta.is_conj()) view._set_conj(meta.is_conj());
      if (view.is_neg() != meta.is_neg()) view._set_neg(meta.is_neg());
      return view;
    }
  return recorder_.fresh_result(std::move(shape));
}

void MetaCall::name_result(const at::Tensor& result) { call_.node.results.push_back(recorder_.value_of(result)); }

void MetaCall::add_results(torch::jit::Stack& stack) {
  for (IValue& value : stack) {
    if (value.isTensor()) {
      at::Tensor result = result_of(value.toTensor());
      name_result(result);
      call_.node.result_lists.push_back(-1);
      call_.results.emplace_back(std::move(result));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      const auto metas = value.toTensorVector();
      for (const at::Tensor& meta : metas) {
        at::Tensor result = result_of(meta);
        name_result(result);
        list.push_back(std::move(result));
      }
      call_.node.result_lists.push_back(static_cast<int16_t>(metas.size()));
      call_.results.emplace_back(std::move(list));
    } else {
      call_.results.push_back(value);
    }
  }
}

// The program may catch an error and read it, and the texts of shape functions differ from those of kernels: plain
// Python raises it.
ShapeOrigin MetaCall::meta_or_break(torch::jit::Stack& stack) {
  try {
    return call_meta(stack);
  } catch (const CaptureBreakError&) { throw; } catch (const std::exception& e) {
    log::emit(log::Kind::TorchWords, recorder_.why(),
              {{"function", call_.def().name}, {"words", runtime::torch_words(e)}});
    recorder_.fail({Reason::exception_raised, "an error of " + call_.def().name});
  }
}

// A symbol in a wrapped number would be read as a number.
IValue MetaCall::symbolic_argument(size_t index) {
  const IValue& value = call_.args[index];
  const bool is_number_of_symbol = value.isTensor() && call_.node.args[index].get<SymExpr>() != nullptr;
  if (is_number_of_symbol) recorder_.specialise_symbols(call_);
  return value.isSymInt() || value.isSymIntList() ? value : meta_argument(index);
}

// Whether the results have their own memory and the arguments have kept their shapes. Each call compares the sizes when
// the plan runs.
bool MetaCall::may_hold_for_other_sizes(const torch::jit::Stack& results) const {
  const ShapeEnv& env = recorder_.shapes();
  const auto same = [&](const TensorMeta& a, const TensorMeta& b) {
    const ConcreteShape one = concrete_shape(a, env), other = concrete_shape(b, env);
    return a.dtype == b.dtype && a.dtype != DType::kOther && one.sizes == other.sizes && one.strides == other.strides;
  };
  const std::vector<at::Tensor> found = tensors_in(results);
  for (const Twin& twin : twins_) {
    const auto is_shared = [&](const at::Tensor& t) { return t.defined() && t.is_alias_of(twin.meta); };
    if (!same(symbolic_meta_of(twin.meta), meta_of_argument(twin.argument)) ||
        std::any_of(found.begin(), found.end(), is_shared))
      return false;
  }
  return true;
}

std::optional<ShapeOrigin> MetaCall::run_with_symbols() {
  if (!runtime::is_users(call_.def().name) || call_.def().has(kView) || call_.info.typed_meta != nullptr ||
      call_.info.meta_kernel() != MetaKernel::kPython || symbols_of(call_, recorder_.graph()).empty())
    return std::nullopt;
  with_symbols_ = true;
  torch::jit::Stack stack;
  try {
    for (size_t i = 0; i < call_.args.size(); ++i) stack.push_back(symbolic_argument(i));
    call_meta(stack);
  } catch (const std::exception&) {  // it asks for numbers or refuses the arguments: the call with numbers will tell
    recorder_.take_break();
    return std::nullopt;
  }
  if (!may_hold_for_other_sizes(stack)) return std::nullopt;
  add_results(stack);
  return ShapeOrigin::kDispatcherPython;
}

// The op runs on real arguments instead of meta twins; each lies at the beginning of its storage.
std::optional<ShapeOrigin> MetaCall::run_in_place_of_shape_function() {
  const MetaKernel kernel = call_.info.meta_kernel();
  const auto has = [&](DispatchKey key) { return call_.info.handle.hasKernelForDispatchKey(key); };
  const bool may_call_python =  // itself, or an op that it is made of
      kernel == MetaKernel::kPython || has(DispatchKey::CompositeExplicitAutograd) ||
      has(DispatchKey::CompositeImplicitAutograd) || has(DispatchKey::CompositeExplicitAutogradNonFunctional);
  if (call_.info.typed_meta != nullptr || !may_call_python) return std::nullopt;
  std::vector<Twin> made;
  auto stack = may_execute() ? run_on_fillings(made) : std::nullopt;
  if (!stack && kernel == MetaKernel::kPython && call_.device.is_cpu() && !runtime::is_users(call_.def().name))
    recorder_.fail({Reason::unsupported_op, call_.def().name + ", whose shape is not known for these arguments,"});
  if (!stack) return std::nullopt;
  twins_ = std::move(made);
  is_executed_ = true;
  recorder_.counts_.executed_ops.insert(call_.def().name);
  apply_shape_changes();
  add_results(*stack);
  return ShapeOrigin::kExecuted;
}

ShapeOrigin MetaCall::run() {
  if (const auto origin = run_in_place_of_shape_function()) return *origin;
  torch::jit::Stack stack;
  stack.reserve(call_.args.size());
  for (size_t i = 0; i < call_.args.size(); ++i) stack.push_back(meta_argument(i));
  const ShapeOrigin origin = meta_or_break(stack);
  // If our rule does not cover the call, it may be an error that only the kernel finds.
  if (origin != ShapeOrigin::kTyped || call_.def().shape_rule != nullptr) correct_by_execution(stack);
  apply_shape_changes();
  add_results(stack);
  return origin;
}

}  // namespace framejit::graph
