// graph/aten/recorder.cpp — the recording itself: inputs, constants, values, scopes, known contents of tiny tensors.
#include "graph/aten/recorder.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>

#include "graph/aten/meta_call.h"
#include "graph/int64_range.h"
#include "runtime/base/log.h"

namespace framejit::graph {
namespace {

thread_local Recorder* t_recorder = nullptr;  // of the innermost open scope
WrappedSymbolFn g_wrapped_symbol_reader = nullptr;

bool may_be_symbol(const std::vector<bool>& dynamic, size_t dim, int64_t number) {
  return dim < dynamic.size() && dynamic[dim] && number >= kLeastSize && number <= kMostSize;
}

// Strides over symbolic sizes. A dense layout keeps its order of dimensions; any other stride stays a constant, unless
// it has been seen to differ.
SymSizes symbolic_strides(const SymSizes& sizes, c10::IntArrayRef hints, c10::IntArrayRef strides,
                          const std::vector<bool>& dynamic, ShapeEnv& env) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Of two dimensions with equal strides, the later one is the inner one, as in a contiguous tensor with a size of 1.
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return strides[a] != strides[b] ? strides[a] < strides[b] : a > b; });
  SymSizes result(sizes.size());
  SymExpr expected = 1;
  int64_t expected_hint = 1;
  for (size_t d : order) {
    const bool dense = strides[d] == expected_hint;
    if (may_be_symbol(dynamic, d, strides[d]))
      result[d] = SymExpr::symbol(env.add_symbol(strides[d], kLeastSize, kMostSize));
    else result[d] = dense ? expected : SymExpr(strides[d]);
    expected = result[d] * sizes[d];
    expected_hint = strides[d] * hints[d];
  }
  return result;
}

// The least size of the storage of a tensor with its own memory, for the hints.
int64_t bytes_of(const TensorMeta& meta, const ShapeEnv& env) {
  SymExpr last = meta.offset;
  for (size_t d = 0; d < meta.ndim(); ++d) {
    if (meta.sizes[d] == SymExpr(0)) return 0;
    last = last + (meta.sizes[d] - 1) * meta.strides[d];
  }
  return (env.hint(last) + 1) * row_of(meta.dtype).bytes;
}

}  // namespace

std::shared_ptr<Recorder> Recorder::make(std::string name) {
  register_recorder();
  return std::shared_ptr<Recorder>(new Recorder(std::move(name)));
}

Recorder::~Recorder() = default;

void note_break_on_thread(Error failure) {
  if (t_recorder != nullptr) t_recorder->fail(std::move(failure));
  throw CaptureBreakError(failure);
}

Recorder* recorder_of_thread() { return t_recorder; }

void set_wrapped_symbol_reader(WrappedSymbolFn reader) { g_wrapped_symbol_reader = reader; }
std::optional<SymExpr> wrapped_symbol_of(const at::Tensor& number) {
  return g_wrapped_symbol_reader ? g_wrapped_symbol_reader(number) : std::nullopt;
}

void Recorder::fail(Error failure) {
  const CaptureBreakError thrown(failure);
  if (!broken_) broken_ = std::move(failure);  // the first one is the cause
  throw thrown;
}

std::optional<Error> Recorder::take_break() {
  std::optional<Error> taken;
  taken.swap(broken_);
  return taken;
}

void Recorder::set_line(const Line& line, const std::string& way) {
  why_ = way + line.file + ":" + std::to_string(line.number) + " " + line.function;
  builder_.set_line(builder_.intern_line(line));
}

uint32_t Recorder::storage_number(const c10::Storage& traced) {
  return storages_.number_of(traced, [this] { return builder_.new_storage(); });
}

void Recorder::offset_is_read(const c10::Storage& traced) {
  if (live()) read_offsets_.insert(storage_number(traced));
}

const c10::Storage& Recorder::traced_storage_of(const at::Tensor& tensor) {
  return as_traced(tensor) != nullptr ? tensor.storage() : storages_.stand_in(tensor.storage());
}

at::Tensor Recorder::add_input(const at::Tensor& real, const std::string& source, const DynamicExtents& dynamic) {
  TensorMeta meta = meta_of(real);
  FJ_ASSERT(meta.dtype != DType::kOther && as_traced(real) == nullptr, "a tensor that cannot be an input: " + source);
  for (size_t d = 0; d < meta.ndim(); ++d)
    if (const int64_t size = real.size(static_cast<int64_t>(d)); may_be_symbol(dynamic.sizes, d, size))
      meta.sizes[d] = SymExpr::symbol(shapes().add_symbol(size, kLeastSize, kMostSize));
  const auto varies = [](const SymExpr& e) { return !e.is_constant(); };
  if (!dynamic.strides.empty() || std::any_of(meta.sizes.begin(), meta.sizes.end(), varies))
    meta.strides = symbolic_strides(meta.sizes, real.sizes(), real.strides(), dynamic.strides, shapes());
  meta.requires_grad = real.requires_grad();

  c10::InferenceMode as_the_real_one(real.is_inference());
  const c10::Storage& storage = storages_.stand_in(real.storage());
  auto impl = c10::make_intrusive<TracedTensorImpl>(shared_from_this(), storage, real.dtype(), real.device());
  impl->set_shape(meta);
  impl->input = static_cast<int32_t>(input_count());
  impl->value = builder_.add_input(std::move(meta), storage_number(storage), source);
  at::Tensor traced(std::move(impl));
  if (real.requires_grad()) traced.set_requires_grad(true);
  return traced;
}

at::Tensor Recorder::add_input(TensorMeta meta, const std::string& source) {
  FJ_ASSERT(meta.dtype != DType::kOther, "a tensor that cannot be an input: " + source);
  const c10::Device device = torch_device_of(meta.device);
  auto impl =
      c10::make_intrusive<TracedTensorImpl>(shared_from_this(), make_traced_storage(bytes_of(meta, shapes()), device),
                                            c10::scalarTypeToTypeMeta(scalar_type_of(meta.dtype)), device);
  impl->set_shape(meta);
  impl->input = static_cast<int32_t>(input_count());
  impl->value = builder_.add_input(std::move(meta), storage_number(impl->storage()), source);
  return at::Tensor(std::move(impl));
}

ValueId Recorder::add_constant(const at::Tensor& real, bool fresh) {
  const auto [at, inserted] = constant_ids_.try_emplace(real.unsafeGetTensorImpl(), kNoValue);
  if (!inserted) return at->second;
  if (dtype_of(real.scalar_type()) == DType::kOther || !real.has_storage() || real.layout() != c10::kStrided)
    fail({Reason::unsupported_tensor, "a captured tensor of type " + std::string(real.toString())});
  at->second = builder_.add_constant(meta_of(real), storage_number(storages_.stand_in(real.storage())));
  constants_.push_back(real);
  constant_is_fresh_.push_back(fresh);
  return at->second;
}

ValueId Recorder::value_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return kNoValue;
  const TracedTensorImpl* traced = as_traced(tensor);
  if (traced == nullptr) return add_constant(tensor, false);
  if (&traced->recorder() != this || !live()) fail({Reason::escaped_traced, "a tensor of another capture"});
  return traced->value;
}

at::Tensor Recorder::new_traced(TensorMeta meta, c10::Storage storage, const at::Tensor* view_of) {
  const auto dtype = c10::scalarTypeToTypeMeta(scalar_type_of(meta.dtype));
  const c10::Device device = torch_device_of(meta.device);
  auto impl = view_of != nullptr
                  ? c10::make_intrusive<TracedTensorImpl>(shared_from_this(), std::move(storage), view_of->key_set(),
                                                          dtype, device)
                  : c10::make_intrusive<TracedTensorImpl>(shared_from_this(), std::move(storage), dtype, device);
  impl->set_shape(meta);
  impl->value = builder_.new_value(std::move(meta), storage_number(impl->storage()));
  return at::Tensor(std::move(impl));
}

at::Tensor Recorder::fresh_result(TensorMeta meta) {
  const int64_t bytes = bytes_of(meta, shapes());
  const c10::Device device = torch_device_of(meta.device);
  return new_traced(std::move(meta), make_traced_storage(bytes, device), nullptr);
}

// A sparse tensor cannot be an operand, because kernels read and write strided memory. Without elements it depends on
// no gradient that the backward is given, so the forward would compute and save it.
at::Tensor Recorder::sparse_result(const OpCall& call, TensorMeta meta) {
  if (!allows_sparse_) fail({Reason::unsupported_op, call.def().name + " with a result that is sparse"});
  for (const Arg& a : call.node.args)
    if (const ValueId* v = a.get<ValueId>(); v != nullptr && *v != kNoValue && graph().meta(*v).numel() == SymExpr(0))
      fail({Reason::unsupported_op, call.def().name + " of no elements"});
  at::Tensor result = fresh_result(std::move(meta));
  sparse_.insert(as_traced(result)->value);
  return result;
}

at::Tensor Recorder::view_result(TensorMeta meta, const at::Tensor& base) {
  return new_traced(std::move(meta), traced_storage_of(base), &base);
}

// A written tensor whose shape has changed is another value on the same storage.
void Recorder::change_shape(TracedTensorImpl& traced, TensorMeta meta) {
  // The program holds the tensor object of an input, and a graph writes only contents.
  if (graph().values[index_of(traced.value)].node < 0)
    fail({Reason::unsupported_op, "a change of an input's own shape or strides"});
  shape_changes_.push_back({c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(&traced), traced.value});
  traced.set_shape(meta);
  traced.value = builder_.new_value(std::move(meta), storage_number(traced.storage()));
}

NumberSteps Recorder::number_of(const at::Tensor& traced) {
  const auto constant_of = [&](ValueId v) -> std::optional<double> {
    const auto at = static_cast<size_t>(std::ranges::find(graph().constants, v) - graph().constants.begin());
    if (at == graph().constants.size() || !constant_is_fresh_[at]) return std::nullopt;
    const PlainExecution plain;
    return constants_[at].item<double>();
  };
  return numbers_.find(graph(), value_of(traced), constant_of);
}

void Recorder::log_python_shapes() const {
  const uint64_t calls = counts_.calls[static_cast<size_t>(ShapeOrigin::kDispatcherPython)];
  if (calls == 0 || !log::enabled(log::Kind::PythonShapes)) return;
  std::string ops;
  for (const std::string& op : counts_.python_ops) ops += (ops.empty() ? "" : " ") + op;
  log::emit(log::Kind::PythonShapes, why(), {{"calls", std::to_string(calls)}, {"ops", ops}});
}

Result<void> Recorder::build(const std::vector<at::Tensor>& outputs) {
  std::vector<ValueId> values;
  std::vector<OutputAlias> aliases;
  for (const at::Tensor& output : outputs) {
    const TracedTensorImpl* traced = as_traced(output);
    if (traced == nullptr || &traced->recorder() != this)
      return Error{Reason::recording_failed, "an output is not a tensor of this capture"};
    // Without grad mode, a view of a leaf says that it needs a gradient, as eager's does, and has no history.
    const TracedTensorImpl* base = output.is_view() ? as_traced(output._base()) : nullptr;
    const bool view_of_leaf =
        base != nullptr && base->input >= 0 && torch::autograd::impl::grad_fn_unsafe(output) == nullptr;
    if (output.requires_grad() && traced->input < 0 && !view_of_leaf)
      return Error{Reason::unsupported_tensor, "a result needs a gradient"};
    values.push_back(traced->value);
    aliases.push_back(traced->input >= 0 ? OutputAlias{OutputKind::kInput, static_cast<uint32_t>(traced->input)}
                                         : OutputAlias{});
  }
  log_python_shapes();
  built_ = builder_.build(std::move(values), std::move(aliases));
  return {};
}

RecordScope::RecordScope(Recorder& recorder)
    : recorder_(recorder),
      outer_(t_recorder),
      outer_fake_(c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake)),
      outer_cache_(at::autocast::is_autocast_cache_enabled()),
      mark_(recorder.builder_.mark()) {
  FJ_ASSERT(recorder.live(), "a recording is used after it was built");
  t_recorder = &recorder;
  ++recorder.open_scopes_;
  recorder.shape_changes_.clear();
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Fake, true);
  // Casts that autocast caches would leak out of the trace, and cached casts would be hidden from it.
  at::autocast::clear_cache();
  at::autocast::set_autocast_cache_enabled(false);
}

RecordScope::~RecordScope() {
  at::autocast::set_autocast_cache_enabled(outer_cache_);
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Fake, outer_fake_);
  recorder_.shape_changes_.clear();
  --recorder_.open_scopes_;
  t_recorder = outer_;
}

void RecordScope::drop() {
  for (auto at = recorder_.shape_changes_.rbegin(); at != recorder_.shape_changes_.rend(); ++at) {
    auto& traced = static_cast<TracedTensorImpl&>(*at->tensor);
    traced.value = at->old_value;
    traced.set_shape(recorder_.graph().meta(at->old_value));
  }
  recorder_.shape_changes_.clear();
  recorder_.builder_.rollback(mark_);
  recorder_.numbers_.forget();
  std::erase_if(recorder_.without_history_, [this](uint32_t node) { return node >= mark_.nodes; });
  recorder_.contents_.resize(std::min(recorder_.contents_.size(), recorder_.graph().values.size()));
}

}  // namespace framejit::graph
