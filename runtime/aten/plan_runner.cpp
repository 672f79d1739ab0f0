// runtime/aten/plan_runner.cpp — what run_steps() asks of tensors, answered with ATen.
#include "runtime/aten/plan_runner.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/arena.h"
#include "runtime/aten/extern_call.h"
#include "runtime/aten/parallel.h"
#include "runtime/aten/plan_program.h"
#include "runtime/aten/random_state.h"
#include "runtime/aten/result_memory.h"
#include "runtime/gpu_driver.h"

namespace framejit::runtime {
namespace {

const c10::DispatchKeySet kBelowAutograd =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

// While one exists, autograd's bookkeeping sees views and writes.
class Tracked {
 public:
  explicit Tracked(bool wanted) : wanted_(wanted) {
    if (wanted_) c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView, false);
  }
  ~Tracked() {
    if (wanted_) c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView, true);
  }

 private:
  bool wanted_;
};

}  // namespace

// One running call. Reused by later calls of the thread, so that its vectors keep their capacity.
class PlanRunner::Call final : public PlanHost, public Operands {
 public:
  class Lease;

  Result<void> run(const PlanProgram& program, const at::Tensor* const* inputs, const int64_t* symbols,
                   at::Tensor* outputs, ValuesBetweenPlans* between, bool is_recorded = false) {
    const CallPlan& plan = start(program, inputs);
    between_ = between;
    const c10::impl::ExcludeDispatchKeyGuard below_autograd(kBelowAutograd);
    FJ_TRY_VOID(own_written_inputs());
    static const std::vector<at::Generator> none;
    RandomState random(is_recorded ? none : program.generators);
    FJ_TRY_VOID(run_steps(program.bound, symbols, *this));
    random.keep();
    if (between != nullptr && !plan.saves.empty()) {
      between->saved.clear();
      for (BufferId b : plan.saves) between->saved.push_back(Call::tensor(b));
    }
    write_inputs(plan);
    give_outputs(plan, outputs);
    return {};
  }

  Result<void> run_under_autograd(const PlanProgram& program, const at::Tensor* const* inputs, const int64_t* symbols,
                                  at::Tensor* outputs) {
    const CallPlan& plan = start(program, inputs);
    is_under_autograd_ = true;
    FJ_TRY_VOID(run_steps(program.bound, symbols, *this));
    give_outputs(plan, outputs);
    return {};
  }

  Result<double> seconds(const PlanProgram& program, const at::Tensor* const* inputs, const int64_t* symbols,
                         double most) {
    start(program, inputs);
    const c10::impl::ExcludeDispatchKeyGuard below_autograd(kBelowAutograd);
    const double begin = now();
    give_up_at_ = begin + most;
    try {
      FJ_TRY_VOID(run_steps(program.bound, symbols, *this));
    } catch (const GivenUp&) {
      return std::numeric_limits<double>::infinity();
    }
    return now() - begin;
  }

  void clear() noexcept {
    give_up_at_ = kNever;
    between_ = nullptr;
    is_under_autograd_ = false;
    entered_.reset();
    device_guard_.reset();
    tensors_.clear();
    stack_.clear();
    for (uint32_t block = 0; block < kArenaBlocks; ++block) give_back(block);
  }

  const at::Tensor& tensor(BufferId buffer) override {
    const Buffer& b = program_->plan->buffers[buffer];
    switch (b.storage) {
      case Storage::kInput: return *inputs_[b.index];
      case Storage::kConstant: return program_->constants[b.index];
      case Storage::kDerived: return (*between_->derived)[b.index];
      case Storage::kSaved: return between_->saved[b.index];
      case Storage::kArena:
        if (!tensors_[buffer].defined()) tensors_[buffer] = arena_tensor(buffer);
        return tensors_[buffer];
      case Storage::kTensor: break;
    }
    FJ_ASSERT(tensors_[buffer].defined(),
              "buffer " + std::to_string(buffer) + " of plan " + program_->plan->name + " is empty");
    return tensors_[buffer];
  }
  void store(BufferId buffer, at::Tensor tensor) override {
    if (tensor.defined()) {
      FJ_ASSERT(has_planned_dtype(tensor, buffer),
                "a library call of plan " + program_->plan->name + " returned another dtype than its rule promised");
      if (!lies_as_planned(tensor, buffer)) [[unlikely]]
        tensor = laid_as_planned(tensor, buffer);
    }
    tensors_[buffer] = std::move(tensor);
  }
  bool is_as_planned(BufferId buffer, const at::Tensor& tensor) override {
    const PlanProgram::Shape& shape = program_->shapes[buffer];
    return !tensor.defined() ||
           (tensor.device() == shape.device && has_planned_dtype(tensor, buffer) && lies_as_planned(tensor, buffer));
  }
  c10::impl::LocalDispatchKeySet callers_keys() const override { return callers_keys_; }
  int64_t value(const Size& s) const override { return size(s); }

  void* data(BufferId buffer) override {
    const Buffer& b = program_->plan->buffers[buffer];
    if (b.storage == Storage::kArena) return static_cast<char*>(blocks_[b.index].data) + size(b.offset);
    return const_cast<void*>(Call::tensor(buffer).const_data_ptr());
  }

  void allocate(BufferId buffer, BufferId over) override {
    if (over != kNoBuffer && may_overwrite(over)) {
      tensors_[buffer] = between_->saved[program_->plan->buffers[over].index];
      return;
    }
    const PlanProgram::Shape& shape = program_->shapes[buffer];
    const auto [sizes, strides] = shape_of(buffer);
    if (shape.device.is_cpu()) {
      tensors_[buffer] = new_result(sizes, strides, shape.dtype);
    } else {
      // As empty_strided, without the dispatcher.
      const c10::DeviceGuard guard(shape.device);
      tensors_[buffer] = at::Tensor(at::detail::empty_strided_generic(
          sizes, strides, c10::GetAllocator(shape.device.type()),
          c10::DispatchKeySet(c10::computeDispatchKey(shape.dtype, std::nullopt, shape.device)), shape.dtype));
    }
  }

  void view(BufferId base, BufferId result) override {
    const Buffer &from = program_->plan->buffers[base], &to = program_->plan->buffers[result];
    const at::Tensor& source = Call::tensor(base);
    const auto [sizes, strides] = shape_of(result);
    FJ_ASSERT(from.torch_dtype == to.torch_dtype, "a view step of plan " + program_->plan->name + " changes the dtype");
    // Relative to the real offset of the base: an input may be a slice.
    const int64_t offset =
        source.storage_offset() + size(to.offset) - (from.storage == Storage::kArena ? 0 : size(from.offset));
    if (program_->leaves[result]) {
      const Tracked tracked(true);
      tensors_[result] = at::_ops::as_strided::call(source, c10::fromIntArrayRefSlow(sizes),
                                                    c10::fromIntArrayRefSlow(strides), offset);
      return;
    }
    at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(source.storage()),
                                                                source.key_set(), source.dtype());
    alias.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    tensors_[result] = std::move(alias);
  }

  void call(const ExternStep&, size_t step_index) override {
    if (give_up_at_ != kNever && now() > give_up_at_) [[unlikely]]
      throw GivenUp{};
    const Tracked tracked(program_->tracked[step_index] && !is_under_autograd_);
    program_->calls[step_index]->run(*this, stack_);
  }

  void release(BufferId buffer) override {
    const Buffer& b = program_->plan->buffers[buffer];
    (b.storage == Storage::kSaved ? between_->saved[b.index] : tensors_[buffer]).reset();
  }

  // Kernels of a device run on the stream that torch's own kernels would use.
  void enter(const Place& place) override {
    if (entered_ == place) [[likely]] return;
    const c10::Device device = torch_device(place.device);
    if (device_guard_) device_guard_->reset_device(device);
    else device_guard_.emplace(device);
    set_gpu_stream(c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle());
    entered_ = place;
  }

  void take(uint32_t block, int64_t bytes) override {
    HeldBlock& held = blocks_[block];
    const c10::Device device = program_->arena_devices[block];
    if (device.is_cpu()) {
      held.pooled = ArenaPool::cpu().take(bytes);
      held.data = held.pooled.data;
      held.bytes = bytes;
      report_to_profilers(held.data, bytes);
    } else {
      held.on_device = c10::GetAllocator(device.type())->allocate(static_cast<size_t>(bytes));
      held.data = held.on_device.get();
    }
  }

  void give(uint32_t block) override { give_back(block); }

  void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t),
                    void* state) override {
    runtime::parallel_for(begin, end, grain, body, state);
  }

 private:
  struct GivenUp {};
  struct HeldBlock {
    void* data = nullptr;
    ArenaPool::Block pooled;
    int64_t bytes = 0;  // of `pooled`, what the plan asked for
    c10::DataPtr on_device;
  };
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  void give_back(uint32_t block) noexcept {
    HeldBlock& held = blocks_[block];
    if (held.data == nullptr) return;
    held.data = nullptr;
    held.on_device.clear();
    if (held.pooled.data == nullptr) return;
    report_to_profilers(held.pooled.data, -held.bytes);
    ArenaPool::cpu().give(std::exchange(held.pooled, {}));
  }

  void give_outputs(const CallPlan& plan, at::Tensor* outputs) {
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      const Output& o = plan.outputs[i];
      if (o.kind == Output::kInput) outputs[i] = *inputs_[o.index];
      else outputs[i] = o.index == kNoBuffer ? at::Tensor() : Call::tensor(o.index);
    }
  }

  const CallPlan& start(const PlanProgram& program, const at::Tensor* const* inputs) {
    program_ = &program;
    inputs_ = inputs;
    callers_keys_ = c10::impl::tls_local_dispatch_key_set();
    tensors_.resize(program.plan->buffers.size());
    return *program.plan;
  }

  std::pair<c10::IntArrayRef, c10::IntArrayRef> shape_of(BufferId buffer) {
    const PlanProgram::Shape& shape = program_->shapes[buffer];
    if (shape.constant) return {shape.sizes, shape.strides};
    const Buffer& b = program_->plan->buffers[buffer];
    shape_.clear();
    for (const Size& s : b.sizes) shape_.push_back(size(s));
    for (const Size& s : b.strides) shape_.push_back(size(s));
    return {c10::IntArrayRef(shape_.data(), b.sizes.size()),
            c10::IntArrayRef(shape_.data() + b.sizes.size(), b.strides.size())};
  }

  bool has_planned_dtype(const at::Tensor& tensor, BufferId buffer) const {
    return tensor.scalar_type() == program_->shapes[buffer].dtype || program_->plan->buffers[buffer].is_packed;
  }
  // The steps after a library call read its result by the strides that its shape rule promised.
  bool lies_as_planned(const at::Tensor& tensor, BufferId buffer) {
    if (program_->plan->buffers[buffer].is_packed) return true;
    const auto [sizes, strides] = shape_of(buffer);
    const c10::IntArrayRef has_sizes = tensor.sizes(), has_strides = tensor.strides();
    if (has_sizes != sizes) return false;
    for (size_t i = 0; i < sizes.size(); ++i)
      if (has_strides[i] != strides[i] && sizes[i] > 1) return tensor.numel() == 0;
    return true;
  }
  // Whether a kernel may write over the saved value: the plan has the only handle, and torch owns the memory.
  bool may_overwrite(BufferId buffer) {
    const Buffer& b = program_->plan->buffers[buffer];
    if (b.storage != Storage::kSaved || !between_->may_overwrite) return false;
    at::Tensor& saved = between_->saved[b.index];
    const at::Storage& storage = saved.storage();
    if (saved.use_count() != 1 || storage.use_count() != 1 || !storage.resizable() ||
        storage.nbytes() != saved.nbytes() || !lies_as_planned(saved, buffer))
      return false;
    saved.mutable_data_ptr();  // copies memory that is shared by a lazy copy
    return true;
  }
  at::Tensor laid_as_planned(const at::Tensor& tensor, BufferId buffer);

  // A tensor over arena memory, for an extern call; it must not outlive the call.
  at::Tensor arena_tensor(BufferId buffer);
  Result<void> own_written_inputs();
  void write_inputs(const CallPlan& plan);

  const PlanProgram* program_ = nullptr;
  const at::Tensor* const* inputs_ = nullptr;
  c10::impl::LocalDispatchKeySet callers_keys_ = c10::impl::tls_local_dispatch_key_set();
  std::vector<at::Tensor> tensors_;  // of kTensor buffers, and of those in the arena that a library call has asked for
  std::vector<c10::IValue> stack_;
  std::vector<int64_t> shape_;
  std::array<HeldBlock, kArenaBlocks> blocks_;
  double give_up_at_ = kNever;
  ValuesBetweenPlans* between_ = nullptr;
  bool is_under_autograd_ = false;
  std::optional<Place> entered_;  // where the last kernels of a GPU ran
  std::optional<c10::DeviceGuard> device_guard_;
};

// If the shape rule promised other strides, the result is copied, unless it shares its memory with another tensor.
at::Tensor PlanRunner::Call::laid_as_planned(const at::Tensor& tensor, BufferId buffer) {
  const auto [sizes, strides] = shape_of(buffer);
  FJ_ASSERT(tensor.sizes() == sizes,
            "a library call of plan " + program_->plan->name + " returned other sizes than its rule promised");
  if (tensor.storage().use_count() != 1) return tensor;
  at::Tensor laid = at::_ops::empty_strided::call(c10::fromIntArrayRefSlow(sizes), c10::fromIntArrayRefSlow(strides),
                                                  tensor.scalar_type(), c10::kStrided, tensor.device(), false);
  return at::_ops::copy_::call(laid, tensor, false);
}

at::Tensor PlanRunner::Call::arena_tensor(BufferId buffer) {
  const auto [sizes, strides] = shape_of(buffer);
  const PlanProgram::Shape& shape = program_->shapes[buffer];
  return at::from_blob(data(buffer), sizes, strides, at::TensorOptions().dtype(shape.dtype).device(shape.device));
}

// Refuses inputs that must not be written. Gives inputs that steps write in place memory of their own, if they are lazy
// copies.
Result<void> PlanRunner::Call::own_written_inputs() {
  for (const auto& [input, buffer] : program_->plan->updates)
    if (inputs_[input]->is_inference() && !c10::InferenceMode::is_enabled())
      return Error{Reason::inference_tensor, "an inference tensor is written outside of inference mode"};
  for (uint32_t input : program_->written_inputs) inputs_[input]->mutable_data_ptr();
  return {};
}

// Values that may be views of a written input are copied before the first write.
void PlanRunner::Call::write_inputs(const CallPlan& plan) {
  if (plan.updates.empty()) return;
  c10::SmallVector<at::Tensor, 4> values;
  for (size_t i = 0; i < plan.updates.size(); ++i) {
    values.emplace_back();
    if (program_->is_in_place(plan.updates[i].first, plan.updates[i].second)) continue;
    values.back() = Call::tensor(plan.updates[i].second);
    if (program_->copy_before_update[i]) values.back() = at::_ops::clone::call(values.back(), std::nullopt);
  }
  const Tracked tracked(true);
  for (size_t i = 0; i < plan.updates.size(); ++i) {
    at::Tensor target = *inputs_[plan.updates[i].first];
    if (values[i].defined()) at::_ops::copy_::call(target, values[i], false);
    else if (!target.is_inference()) target.unsafeGetTensorImpl()->bump_version();
  }
}

// Takes a Call from the thread's pool; nested runs (an operator that calls Python) get another one.
class PlanRunner::Call::Lease {
 public:
  Lease() {
    if (pool().empty()) pool().push_back(std::make_unique<Call>());
    call_ = std::move(pool().back());
    pool().pop_back();
  }
  ~Lease() {
    call_->clear();
    pool().push_back(std::move(call_));
  }
  Call& operator*() { return *call_; }

 private:
  static std::vector<std::unique_ptr<Call>>& pool() {
    static thread_local std::vector<std::unique_ptr<Call>> idle;
    return idle;
  }
  std::unique_ptr<Call> call_;
};

PlanRunner::PlanRunner(std::shared_ptr<const BoundExecutable> executable, std::vector<at::Tensor> constants,
                       std::vector<c10::IValue> opaque)
    : PlanRunner(executable, executable->forward(), std::move(constants), std::move(opaque)) {}
PlanRunner::PlanRunner(std::shared_ptr<const BoundExecutable> executable, const BoundPlan& plan,
                       std::vector<at::Tensor> constants, std::vector<c10::IValue> opaque)
    : program_(std::make_unique<PlanProgram>(std::move(executable), plan, std::move(constants), opaque)) {}
PlanRunner::~PlanRunner() = default;
PlanRunner::PlanRunner(PlanRunner&&) noexcept = default;

const CallPlan& PlanRunner::plan() const { return *program_->plan; }

Result<void> PlanRunner::run(const at::Tensor* const* inputs, const int64_t* symbols, at::Tensor* outputs,
                             ValuesBetweenPlans* between) const {
  Call::Lease call;
  return (*call).run(*program_, inputs, symbols, outputs, between);
}

Result<void> PlanRunner::run_under_autograd(const at::Tensor* const* inputs, const int64_t* symbols,
                                            at::Tensor* outputs) const {
  Call::Lease call;
  return (*call).run_under_autograd(*program_, inputs, symbols, outputs);
}

Result<void> PlanRunner::record(const at::Tensor* const* inputs, const int64_t* symbols, at::Tensor* outputs,
                                ValuesBetweenPlans* between) const {
  Call::Lease call;
  return (*call).run(*program_, inputs, symbols, outputs, between, /*is_recorded=*/true);
}

Result<double> PlanRunner::seconds(const at::Tensor* const* inputs, const int64_t* symbols, double most) const {
  Call::Lease call;
  return (*call).seconds(*program_, inputs, symbols, most);
}

}  // namespace framejit::runtime
