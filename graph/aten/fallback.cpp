// graph/aten/fallback.cpp — the boxed kernel on the Fake key: one op in, one node out.
//
// Order: find the recorder (traced arguments, or an open scope); expand composites that arrive below autograd; break if
// the answer depends on data, unless the contents are known; then arguments, shapes, results. Shape errors are torch's
// own: if a rule does not cover its arguments, torch's shape functions, or the op on zeros, raise what eager raises.
#include <ATen/autocast_mode.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "graph/aten/accepted_kinds.h"
#include "graph/aten/composites.h"
#include "graph/aten/eager_errors.h"
#include "graph/aten/float_ops.h"
#include "graph/aten/meta_call.h"
#include "graph/aten/recorder.h"
#include "graph/aten/strided.h"
#include "graph/op_lists.h"
#include "graph/ops/rule_kit.h"
#include "graph/shape_rule.h"
#include "runtime/aten/shape_functions.h"

namespace framejit::graph {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;

struct Concern {
  TracedTensorImpl* traced = nullptr;
  bool any_tensor = false, all_meta = true;
};

Concern concern_of(const OpInfo& info, std::span<const IValue> args) {
  Concern concern;
  for (const IValue& arg : args)
    each_tensor(arg, [&](const at::Tensor& tensor) {
      concern.any_tensor = true;
      concern.all_meta = concern.all_meta && tensor.is_meta();
      if (concern.traced == nullptr) concern.traced = as_traced(tensor);
    });
  if (!concern.any_tensor && info.device_arg >= 0) {
    const IValue& device = args[static_cast<size_t>(info.device_arg)];
    concern.any_tensor = concern.all_meta = device.isDevice() && device.toDevice().is_meta();
  }
  return concern;
}

void fallback(const c10::OperatorHandle& op, DispatchKeySet, torch::jit::Stack* stack) {
  const OpInfo& info = op_info_of(op);
  const size_t count = info.arg_classes.size();
  const Concern concern = concern_of(info, std::span(stack->data() + stack->size() - count, count));
  Recorder* recorder = concern.traced != nullptr ? &concern.traced->recorder() : recorder_of_thread();
  // Meta tensors of other code are shape arithmetic (decompositions, functionalisation), not part of the program.
  if (recorder == nullptr || (concern.traced == nullptr && concern.any_tensor && concern.all_meta)) {
    c10::impl::ExcludeDispatchKeyGuard no_recording{DispatchKeySet(DispatchKey::Fake)};
    op.callBoxed(*stack);
    return;
  }
  if (info.decomposes && !stays_whole(info, std::span(stack->data() + stack->size() - count, count))) {
    op.callBoxedForDispatchKey(DispatchKey::CompositeImplicitAutograd, *stack);
    return;
  }
  recorder->record(info, stack);
}

// torch's shape functions and our rules leave out some checks of sizes. Most of those can fail only for empty tensors.
bool has_empty_argument(const Graph& graph, const Node& node) {
  const auto empty = [&](ValueId v) { return v != kNoValue && graph.meta(v).numel() == SymExpr(0); };
  return std::any_of(node.args.begin(), node.args.end(), [&](const Arg& arg) {
    const auto* one = arg.get<ValueId>();
    const auto* list = arg.get<std::vector<ValueId>>();
    return one != nullptr ? empty(*one) : list != nullptr && std::any_of(list->begin(), list->end(), empty);
  });
}

// The kernel calls ops that autocast casts, but autocast is not active when a compiled graph runs the kernel.
bool is_cast_inside(const std::string& name, c10::Device device) {
  return is_in(OpList::casts_inside, name) && at::autocast::is_autocast_enabled(device.type());
}

// Random fills draw in another order if memory is not contiguous; the memory of the functional form is contiguous.
bool fills_contiguous(const Graph& graph, const Node& node) {
  return std::ranges::all_of(node.op->write_args, [&](int8_t i) {
    const ValueId* filled = node.args[static_cast<size_t>(i)].get<ValueId>();
    return filled != nullptr && graph.meta(*filled).is_contiguous();
  });
}

// Whether a fill of transposed memory draws in memory order. The op itself is tried, with a generator of its own.
bool draws_along_memory(const OpInfo& info, std::span<const IValue> args) {
  for (const IValue& arg : args.subspan(1)) {
    bool takes_tensors = false;
    each_tensor(arg, [&](const at::Tensor&) { takes_tensors = true; });
    if (takes_tensors) return false;
  }
  const PlainExecution plain;
  const auto filled = [&](bool transposed) {
    at::Tensor tensor = at::zeros({8, 8}, at::TensorOptions().dtype(args[0].toTensor().scalar_type()));
    torch::jit::Stack stack(args.begin(), args.end());
    stack[0] = transposed ? tensor.t() : tensor;
    for (size_t i = 0; i < stack.size(); ++i)
      if (info.handle.schema().arguments()[i].name() == "generator") stack[i] = at::detail::createCPUGenerator(1);
    info.handle.callBoxed(stack);
    return tensor;
  };
  try {
    return at::equal(filled(true), filled(false));
  } catch (const std::exception&) {  // an error of the program
    return false;
  }
}

bool depends_on_data(const OpCall& call) {
  switch (call.info.data_dependence) {
    case DataDependence::kNone: return false;
    case DataDependence::kAlways: return true;
    case DataDependence::kWithoutSize: return call.args.size() < 2 || !call.args[1].isInt();
    case DataDependence::kOfMasks: break;
  }
  bool masks = false;
  each_tensor(call.args[1], [&](const at::Tensor& index) {
    masks = masks || index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
  });
  return masks;
}

}  // namespace

void register_recorder() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never removed: the dispatcher's tables must not change under other threads.
    auto* library = new torch::Library(torch::Library::IMPL, "_", DispatchKey::Fake, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    register_composites();
  });
}

c10::SymFloat Recorder::float_of(const at::Tensor& traced, double now) {
  return open_float(index_of(value_of(traced)), now, shared_from_this());
}

// Replaces open floats among the arguments by their numbers. If the op has a form that takes values, returns which
// arguments these were.
Recorder::FloatArgs Recorder::settle_floats(const OpInfo& info, torch::jit::Stack* stack) {
  FloatArgs found;
  const size_t count = info.arg_classes.size(), first = stack->size() - count;
  for (size_t i = 0; i < count; ++i) {
    IValue& value = (*stack)[first + i];
    if (!value.isSymFloat()) continue;
    const auto open = info.arg_classes[i] == ArgClass::kScalar && twin_with_values(info) != nullptr
                          ? as_open_float(value.toSymFloat())
                          : std::nullopt;
    if (open) found.emplace_back(i, ValueId{open->value});
    value = open ? open->now : value.toSymFloat().guard_float(__FILE__, __LINE__);
  }
  return found;
}

// Refuses results that are numbers, which the kernel may compute in any way. Refuses modes that the traced code has
// entered, because the kernel will run under those of the call.
void Recorder::refuse_op_of_users(const OpCall& call) {
  const std::string& name = call.def().name;
  const auto is_number = [](ReturnClass r) { return r == ReturnClass::kOther; };
  if (std::ranges::any_of(call.info.returns, is_number)) fail({Reason::data_dependent_value, name});
  const auto is_optional = [](const c10::Argument& a) { return a.type()->kind() == c10::TypeKind::OptionalType; };
  if (std::ranges::any_of(call.info.handle.schema().returns(), is_optional))
    fail({Reason::unsupported_op, name + ", which may return None,"});
  if (ProgramModes::now() != modes_)
    fail({Reason::unsupported_op, name + " under a mode that the traced program has entered"});
}

void Recorder::record(const OpInfo& info, torch::jit::Stack* stack) {
  const size_t count = info.arg_classes.size();
  if (fill_in_memory_order(info, stack)) return;
  move_indices(info, stack);
  settle_offset(info, stack);
  const FloatArgs floats = settle_floats(info, stack);
  OpCall call(info, std::span<const IValue>(stack->data() + stack->size() - count, count));
  call.node.op = info.def;
  if (open_scopes_ == 0 || !live())
    fail({Reason::escaped_traced, "a traced tensor outside of its capture (" + call.def().name + ")"});
  if (!answer_from_known_contents(call) && !answer_lift(call)) {
    if (depends_on_data(call)) {
      const bool value =
          std::all_of(info.returns.begin(), info.returns.end(), [](ReturnClass r) { return r == ReturnClass::kOther; });
      // Programs call item(), and torch calls it where it wants the number of a tensor.
      fail({value ? Reason::data_dependent_value : Reason::data_dependent_size,
            call.def().is(KnownOp::local_scalar_dense) ? "Tensor.item()" : call.def().name});
    }
    if (runtime::is_users(call.def().name)) refuse_op_of_users(call);
    find_device(call);
    build_args(call);
    refuse_writes_to_constants(call);
    const bool fills = info.in_place || call.def().drops_out_args;
    if (fills && call.def().has(kRandom) && !fills_contiguous(graph(), call.node))
      fail({Reason::unsupported_op, call.def().name + " on a tensor that is not contiguous"});
    // The memory of the new sizes has no functional form.
    if (info.def->is(KnownOp::resize) || info.def->is(KnownOp::resize_as))
      fail({Reason::unsupported_op, info.def->name});
    refuse_memory(call);
    if (eager_warns(graph(), call.node))
      fail({Reason::unsupported_op, call.def().name + " of so few elements that torch warns,"});
    if (is_cast_inside(info.def->name, call.device)) fail({Reason::unsupported_op, info.def->name + " under autocast"});
    const bool is_pointwise = call.def().has(kPointwise) && call.device.is_cpu();
    if (eager_raises(graph(), call.node) || (is_pointwise && refuses_kinds(info, call.args)))
      fail({Reason::exception_raised, "an error of " + call.def().name});
    ShapeOrigin origin = ShapeOrigin::kRule;
    if (keep_shape_in_place(call) || keep_shape_of_outs(call)) {
      origin = ShapeOrigin::kInPlace;
    } else if (info.in_place || !shape_by_rule(call)) {
      if (call.def().has(kRuleIsComplete)) fail({Reason::exception_raised, "an error of " + call.def().name});
      origin = shape_by_torch(call);
    }
    // A stand-in for an argument of as_strided has no storage around it. The kernel of as_strided takes every dtype.
    const bool asks_kinds = (origin == ShapeOrigin::kRule || origin == ShapeOrigin::kInPlace) && !is_pointwise &&
                            !is_as_strided(call.def()) && is_new_mix(info, call.args);
    if (asks_kinds || (origin != ShapeOrigin::kExecuted && has_empty_argument(graph(), call.node))) {
      const bool ran = MetaCall(*this, call).execute().has_value();
      if (asks_kinds && ran) note_mix(info, call.args);
    }
    ++counts_.calls[static_cast<size_t>(origin)];
    note_writes(call);
    if (!floats.empty()) call.node.op = twin_with_values(info);
    for (const auto& [i, value] : floats) call.node.args[i] = Arg(value);
    // An op without tensor results and without writes (a choice of kernel, a property) leaves nothing in the graph.
    if (!call.node.results.empty() || call.def().has(kMutates) || call.def().has(kSideEffect)) {
      if (!c10::GradMode::is_enabled()) without_history_.push_back(static_cast<uint32_t>(graph().nodes.size()));
      builder_.add_node(std::move(call.node));
    }
  }
  torch::jit::drop(*stack, count);
  for (IValue& result : call.results) stack->push_back(std::move(result));
}

// Random fills draw in memory order, functional forms in dimension order. A tensor in another order is filled through a
// view that has the same order in both.
bool Recorder::fill_in_memory_order(const OpInfo& info, torch::jit::Stack* stack) {
  if (!info.in_place || !info.def->has(kRandom)) return false;
  const size_t first = stack->size() - info.arg_classes.size();
  const at::Tensor self = (*stack)[first].toTensor();
  if (as_traced(self) == nullptr || !self.device().is_cpu()) return false;
  const TensorMeta meta = graph().meta(as_traced(self)->value);
  if (meta.is_contiguous() || overlaps_itself(meta) ||
      !draws_along_memory(info, std::span<const IValue>(stack->data() + first, info.arg_classes.size())))
    return false;
  std::vector<int64_t> order(meta.ndim());
  std::iota(order.begin(), order.end(), 0);
  const auto stride = [&](int64_t d) { return meta.strides[static_cast<size_t>(d)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return shapes().hint(stride(a)) > shapes().hint(stride(b)); });
  for (size_t i = 1; i < order.size(); ++i)
    shapes().decide(stride(order[i]), Relation::kLe, stride(order[i - 1]), "order of random numbers");
  if (std::is_sorted(order.begin(), order.end())) return false;
  at::AutoDispatchBelowAutograd below;
  (*stack)[first] = self.permute(order);
  record(info, stack);
  stack->back() = self;
  return true;
}

// Moves CPU indices of a GPU tensor to the GPU, as the kernel does. If their contents are known, they become a constant
// there.
void Recorder::move_indices(const OpInfo& info, torch::jit::Stack* stack) {
  const size_t first = stack->size() - info.arg_classes.size();
  if (info.arg_classes.size() < 2 || !(*stack)[first].isTensor()) return;
  const at::Tensor& self = (*stack)[first].toTensor();
  if (!self.defined() || !self.is_cuda() || !is_in(OpList::moves_indices, info.def->name)) return;
  const auto moved = [&](const at::Tensor& index) {
    const at::Tensor known = known_contents(index);
    if (!known.defined()) {
      at::AutoDispatchBelowAutograd below;
      return index.to(self.device());
    }
    at::Tensor there;
    {
      const PlainExecution plain;
      there = known.to(self.device());
    }
    return lifted(there);
  };
  c10::List<std::optional<at::Tensor>> indices;
  for (const std::optional<at::Tensor>& index : (*stack)[first + 1].toOptionalTensorVector())
    indices.push_back(index && index->defined() && index->is_cpu() ? std::optional(moved(*index)) : index);
  (*stack)[first + 1] = std::move(indices);
}

void Recorder::find_device(OpCall& call) {
  bool found = false, only_scalars = false;
  const bool may_mix = call.def().is(KnownOp::copy_in_place) || call.def().is(KnownOp::to_copy);
  for (const IValue& arg : call.args)
    each_tensor(arg, [&](const at::Tensor& tensor) {
      const bool scalar = tensor.dim() == 0 && tensor.is_cpu();  // any other device wins
      if (!found || (only_scalars && !scalar)) {
        call.device = tensor.device();
        found = true;
        only_scalars = scalar;
      } else if (!scalar && !may_mix && tensor.device() != call.device) {
        fail({Reason::exception_raised, "tensors of two devices as arguments of " + call.def().name});
      }
    });
  if (call.info.device_arg < 0) return;
  const IValue& device = call.args[static_cast<size_t>(call.info.device_arg)];
  if (!device.isDevice()) return;
  call.device = device.toDevice();
  if (call.device.is_meta()) fail({Reason::unsupported_op, call.def().name + " with a result on the device meta"});
  if (call.device.is_cuda() && !call.device.has_index())
    call.device = c10::impl::VirtualGuardImpl(call.device.type()).getDevice();  // the current one
}

// An op whose answer depends on data runs for real if the data is known.
bool Recorder::answer_from_known_contents(OpCall& call) {
  if (!depends_on_data(call) || call.def().has(kMutates) || call.def().has(kRandom)) return false;
  bool known = true;
  torch::jit::Stack stack(call.args.begin(), call.args.end());
  const auto contents = [&](const at::Tensor& tensor) {
    at::Tensor real = tensor.defined() ? known_contents(tensor) : tensor;
    known = known && (!tensor.defined() || real.defined());
    return real;
  };
  for (IValue& value : stack) {
    if (value.isTensor()) {
      value = contents(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(contents(tensor));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        list.push_back(tensor ? std::optional(contents(*tensor)) : std::nullopt);
      value = std::move(list);
    } else if (value.isSymInt() || value.isSymIntList()) {
      return false;
    }
  }
  if (!known) return false;
  {
    const PlainExecution plain;
    call.info.handle.callBoxed(stack);
  }
  for (IValue& value : stack)
    call.results.push_back(value.isTensor() && value.toTensor().defined() ? IValue(lifted(value.toTensor())) : value);
  return true;
}

at::Tensor Recorder::lifted(const at::Tensor& real) {
  Node node;
  TensorMeta meta = meta_of(real);
  node.op = find_op_info("clone")->def;
  node.args = {Arg(add_constant(real, true)), Arg()};
  meta.offset = 0;
  at::Tensor result = fresh_result(std::move(meta));
  node.results = {as_traced(result)->value};
  builder_.add_node(std::move(node));
  return result;
}

// torch.tensor(...) builds a real tensor and lifts it: a constant that every run copies.
bool Recorder::answer_lift(OpCall& call) {
  if (!call.def().is(KnownOp::lift_fresh) && !call.def().is(KnownOp::lift)) return false;
  const at::Tensor& real = call.args[0].toTensor();
  if (as_traced(real) != nullptr) return false;
  call.results.emplace_back(lifted(real));
  return true;
}

ValueId Recorder::value_to_read(const OpCall& call, const at::Tensor& tensor) {
  const ValueId value = value_of(tensor);
  if (sparse_.contains(value)) fail({Reason::unsupported_op, call.def().name + " of a sparse gradient"});
  return value;
}

Arg Recorder::tensor_arg(const OpCall& call, const at::Tensor& tensor) {
  if (!tensor.defined()) return Arg();
  if (!is_number(tensor) || as_traced(tensor) != nullptr) return Arg(value_to_read(call, tensor));
  if (auto symbol = wrapped_symbol_of(tensor)) return Arg(*symbol);
  c10::impl::ExcludeDispatchKeyGuard no_recording{DispatchKeySet(DispatchKey::Fake)};
  auto number = graph::number_of(tensor);
  if (!number) fail({Reason::unsupported_op, call.def().name + " with a complex number"});
  return *number;
}

void Recorder::build_args(OpCall& call) {
  call.node.args.reserve(call.args.size());
  for (size_t i = 0; i < call.args.size(); ++i) {
    const IValue& value = call.args[i];
    if (value.isTensor()) {
      call.node.args.push_back(tensor_arg(call, value.toTensor()));
    } else if (value.isTensorList() || call.info.arg_classes[i] == ArgClass::kOptionalTensorList) {
      std::vector<ValueId> list;
      if (value.isTensorList())
        for (const at::Tensor& t : value.toTensorList()) list.push_back(value_to_read(call, t));
      else if (!value.isNone())
        for (const IValue& item : value.toListRef())
          list.push_back(item.isTensor() ? value_to_read(call, item.toTensor()) : kNoValue);
      call.node.args.push_back(std::move(list));
    } else if (value.isSymInt()) {
      call.node.args.push_back(expr_of(value.toSymInt()));
    } else if (value.isSymIntList()) {
      SymSizes list;
      for (const c10::SymInt& e : value.toSymIntVector()) list.push_back(expr_of(e));
      call.node.args.push_back(std::move(list));
    } else if (value.isSymBool()) {
      call.node.args.push_back(value.toSymBool().guard_bool(__FILE__, __LINE__));
    } else if (value.isGenerator()) {
      const auto [at, inserted] = opaque_ids_.try_emplace(value.toGenerator().unsafeGetGeneratorImpl(), 0);
      if (inserted) {
        at->second = builder_.new_opaque();
        opaques_.push_back(value);
      }
      call.node.args.push_back(OpaqueSlot{at->second});
    } else {
      auto arg = arg_of(value, call.info.arg_classes[i]);
      if (!arg)
        fail({Reason::unsupported_op,
              call.def().name + " with " + value.tagKind() + " for '" + call.def().arg_names[i] + "'"});
      call.node.args.push_back(std::move(*arg));
    }
  }
}

namespace {

// Numbers among the results (OpList::returns_lengths): number k is the size of dimension 2 of argument k. Null: it is
// not known here.
const SymExpr* length_of(const Graph& graph, const OpCall& call, size_t number) {
  const TracedTensorImpl* traced = as_traced(call.args[number].toTensor());
  const SymExpr* length = traced == nullptr ? nullptr : &graph.meta(traced->value).sizes[2];
  return length != nullptr && length->is_constant() ? length : nullptr;
}

bool knows_numbers(const Graph& graph, const OpCall& call) {
  return is_in(OpList::returns_lengths, call.def().name) && length_of(graph, call, 0) != nullptr &&
         length_of(graph, call, 1) != nullptr;
}

}  // namespace

bool Recorder::shape_by_rule(OpCall& call) {
  std::vector<TensorMeta> metas;
  const DType number = dtype_of(c10::get_default_dtype_as_scalartype());
  const size_t facts = shapes().facts().size();
  const bool has_metas = infer_metas(call.def(), call.node.args, graph().values, shapes(), metas, number);
  if (shapes().facts().size() > facts) shapes().add_line(facts, why());
  if (!has_metas) return false;
  const auto& returns = call.info.returns;
  const auto is_list = [](ReturnClass r) { return r == ReturnClass::kTensorList; };
  const auto numbers = std::count(returns.begin(), returns.end(), ReturnClass::kOther);
  if (numbers != 0 && !knows_numbers(graph(), call)) return false;
  const bool lists = std::any_of(returns.begin(), returns.end(), is_list);
  if (lists ? returns.size() != 1 : metas.size() + static_cast<size_t>(numbers) != returns.size()) return false;
  if (!lists && is_as_strided(call.def()) &&
      !is_within(static_cast<int64_t>(traced_storage_of(call.args[0].toTensor()).nbytes()), metas[0], shapes()))
    fail({Reason::exception_raised, "an error of " + call.def().name});
  add_rule_results(call, metas);
  return true;
}

at::Tensor Recorder::result_of_rule(OpCall& call, size_t result, TensorMeta meta) {
  if (meta.dtype == DType::kOther) return {};
  const int alias = call.def().result_alias[result];
  meta.device = device_of(call.device);
  meta.requires_grad = false;
  if (alias < 0) {
    meta.offset = 0;
    return fresh_result(std::move(meta));
  }
  const at::Tensor& base = call.args[static_cast<size_t>(alias)].toTensor();
  if (!call.info.returns_argument[result]) {
    at::Tensor view = view_result(std::move(meta), base);
    // Torch asks for the bit of a lazy conjugate, and resolves it before ops that do not support it.
    if (call.def().is(KnownOp::conj)) view._set_conj(!base.is_conj());
    return view;
  }
  TracedTensorImpl& written = *as_traced(base);
  const TensorMeta& before = graph().meta(written.value);
  if (before.sizes != meta.sizes || before.strides != meta.strides || !(before.offset == meta.offset))
    change_shape(written, std::move(meta));
  return base;
}

void Recorder::add_rule_results(OpCall& call, const std::vector<TensorMeta>& metas) {
  if (call.info.returns.size() == 1 && call.info.returns[0] == ReturnClass::kTensorList) {
    c10::List<at::Tensor> list;
    for (const TensorMeta& meta : metas) {
      at::Tensor item = result_of_rule(call, 0, meta);
      call.node.results.push_back(as_traced(item)->value);
      list.push_back(std::move(item));
    }
    call.node.result_lists = {static_cast<int16_t>(metas.size())};
    call.results.emplace_back(std::move(list));
    return;
  }
  size_t next = 0, number = 0;
  for (size_t i = 0; i < call.info.returns.size(); ++i) {
    if (call.info.returns[i] == ReturnClass::kOther) {
      call.results.emplace_back(length_of(graph(), call, number++)->constant());
      continue;
    }
    at::Tensor item = result_of_rule(call, i, metas[next++]);
    call.node.results.push_back(value_of(item));
    call.results.emplace_back(std::move(item));
  }
}

}  // namespace framejit::graph
