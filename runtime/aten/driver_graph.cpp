#include "runtime/aten/driver_graph.h"

#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "runtime/aten/plan_program.h"
#include "runtime/aten/totals.h"
#include "runtime/gpu_driver.h"

namespace framejit::runtime {
namespace {

// A copy of a tensor's memory may include the gaps between its elements: up to this many times their number.
constexpr int64_t kMostSpread = 2;

// Elements from the first to the last.
int64_t extent_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  int64_t extent = 1;
  for (int64_t i = 0; i < tensor.dim(); ++i) extent += (tensor.size(i) - 1) * tensor.stride(i);
  return extent;
}

// The same memory, as a tensor with its own version counter.
at::Tensor alias_of(const at::Tensor& tensor) {
  const c10::InferenceMode mode(tensor.is_inference());
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return alias;
}

at::Tensor slot_for(const at::Tensor& tensor) {
  const c10::InferenceMode normal(false);
  at::Tensor slot = at::_ops::empty_strided::call(c10::fromIntArrayRefSlow(tensor.sizes()),
                                                  c10::fromIntArrayRefSlow(tensor.strides()), tensor.scalar_type(),
                                                  c10::kStrided, tensor.device(), false);
  if (tensor.is_conj()) slot._set_conj(true);
  if (tensor.is_neg()) slot._set_neg(true);
  return slot;
}

// A write moves a lazy copy to memory of its own. mutable_data_ptr() does that now, so the address stays.
const void* address_of(const at::Tensor& tensor, bool is_written) {
  return is_written ? tensor.mutable_data_ptr() : tensor.const_data_ptr();
}

// Per input: whether a step or an output needs it. A plan with derived values needs few of the weights themselves.
std::vector<bool> needed_inputs(const CallPlan& plan) {
  std::vector<bool> needed(plan.input_count, false);
  const auto mark = [&](BufferId b) {
    if (b != kNoBuffer && plan.buffers[b].storage == Storage::kInput) needed[plan.buffers[b].index] = true;
  };
  for (const Step& step : plan.steps) {
    if (const auto* kernel = std::get_if<KernelStep>(&step))
      std::for_each(kernel->buffers.begin(), kernel->buffers.end(), mark);
    if (const auto* view = std::get_if<ViewStep>(&step)) mark(view->base);
    const auto* call = std::get_if<ExternStep>(&step);
    if (call == nullptr) continue;
    for (const PlanArg& arg : call->args) {
      if (const auto* one = std::get_if<BufferId>(&arg.payload)) mark(*one);
      if (const auto* list = std::get_if<std::vector<BufferId>>(&arg.payload))
        std::for_each(list->begin(), list->end(), mark);
    }
  }
  for (const auto& [input, buffer] : plan.updates) needed[input] = true, mark(buffer);
  for (const runtime::Output& output : plan.outputs)
    output.kind == runtime::Output::kInput ? void(needed[output.index] = true) : mark(output.index);
  return needed;
}

}  // namespace

const GraphRefusalRow& row_of(GraphRefusal refusal) {
  static const GraphRefusalRow rows[] = {
#define GRAPH_REFUSAL(name, what, hint) {#name, what, hint},
#include "runtime/aten/graph_refusals.def"
#undef GRAPH_REFUSAL
  };
  return rows[static_cast<size_t>(refusal)];
}

ReplayTotals& replay_totals() {
  static ReplayTotals totals;
  return totals;
}

void reset_replay_totals() {
  replay_totals().recorded = 0;
  replay_totals().replays = 0;
}

struct DriverGraph::Memory {
  c10::Storage captured;  // keeps it from being used for anything else
  std::atomic<int> handed_out{0};
};

std::shared_ptr<DriverGraph> DriverGraph::make(GraphMachinery& machinery, Place place, const ReplayCall& call,
                                               const std::vector<bool>& is_copied, Refused& refused) {
  const CallPlan& plan = call.runner.plan();
  for (uint32_t i = 0; i < plan.input_count; ++i)
    if (!call.inputs[i]->has_storage() || call.inputs[i]->layout() != c10::kStrided)
      return refused = {GraphRefusal::odd_input, std::to_string(i)}, nullptr;
  std::shared_ptr<DriverGraph> made(new DriverGraph(place, machinery.shares_memory(place.device, place.stream)));
  made->values_ = call.values;
  const auto given = std::make_shared<std::vector<at::Tensor>>(made->place_inputs(call, is_copied));
  const auto symbols = std::make_shared<std::vector<int64_t>>(call.symbols, call.symbols + plan.symbol_count);
  auto captured = machinery.capture(
      place.device, place.stream, call.runner.program().generators,
      [given, symbols, &runner = call.runner, between = call.between]() -> Result<std::vector<at::Tensor>> {
        const EarlyLaunches early;
        std::vector<at::Tensor> outputs(runner.plan().outputs.size());
        std::vector<const at::Tensor*> inputs;
        for (const at::Tensor& tensor : *given) inputs.push_back(&tensor);
        FJ_TRY_VOID(runner.record(inputs.data(), symbols->data(), outputs.data(), between));
        return outputs;
      });
  if (!captured.ok()) return refused = {GraphRefusal::capture_failed, captured.error().message}, nullptr;
  made->graph_ = captured.value().graph;
  if (!made->note_outputs(captured.value().outputs, *given, refused)) return nullptr;
  replay_totals().recorded += 1;
  replay_totals().bytes += made->bytes_;
  return made;
}

DriverGraph::~DriverGraph() {
  if (graph_) replay_totals().bytes -= bytes_;
}

std::vector<at::Tensor> DriverGraph::place_inputs(const ReplayCall& call, const std::vector<bool>& is_copied) {
  const CallPlan& plan = call.runner.plan();
  const std::vector<bool> needed = needed_inputs(plan);
  std::vector<bool> is_written(plan.input_count, false);
  for (const auto& [input, buffer] : plan.updates) is_written[input] = true;
  std::vector<at::Tensor> given;
  std::vector<int64_t> slot_of(plan.input_count, -1);
  for (uint32_t i = 0; i < plan.input_count; ++i) {
    const at::Tensor& input = *call.inputs[i];
    if (is_copied[i]) {
      slot_of[i] = static_cast<int64_t>(slots_.size());
      slots_.push_back({i, slot_for(input)});
      bytes_ += static_cast<int64_t>(slots_.back().tensor.storage().nbytes());
      given.push_back(slots_.back().tensor);
    } else {
      if (needed[i]) fixed_.push_back({i, is_written[i], address_of(input, is_written[i])});
      given.push_back(alias_of(input));
    }
  }
  for (const auto& [input, buffer] : plan.updates) writes_.emplace_back(input, slot_of[input]);
  return given;
}

bool DriverGraph::note_outputs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& given,
                               Refused& refused) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& tensor = outputs[i];
    Output& output = outputs_.emplace_back();
    if (!tensor.defined()) continue;
    output.is_defined = true;
    output.dtype = tensor.dtype();
    output.keys = tensor.key_set();
    output.sizes = tensor.sizes().vec();
    output.strides = tensor.strides().vec();
    output.offset = tensor.storage_offset();
    const auto shares = [&](const at::Tensor& other) { return other.storage().is_alias_of(tensor.storage()); };
    if (const auto input = std::find_if(given.begin(), given.end(), shares); input != given.end()) {
      if (input->dtype() != tensor.dtype())
        return refused = {GraphRefusal::retyped_view, std::to_string(i)}, false;
      output.of_input = input - given.begin();
      output.offset -= input->storage_offset();
      continue;
    }
    const auto known = std::find_if(memory_.begin(), memory_.end(), [&](const std::shared_ptr<Memory>& memory) {
      return memory->captured.is_alias_of(tensor.storage());
    });
    output.memory = static_cast<size_t>(known - memory_.begin());
    if (known != memory_.end()) continue;
    memory_.push_back(std::make_shared<Memory>());
    memory_.back()->captured = tensor.storage();
    bytes_ += static_cast<int64_t>(tensor.storage().nbytes());
  }
  return true;
}

bool DriverGraph::has_moved(uint32_t input, const at::Tensor& tensor) const {
  for (const Fixed& fixed : fixed_)
    if (fixed.input == input) return address_of(tensor, fixed.is_written) != fixed.data;
  return false;
}

bool DriverGraph::fits(const at::Tensor* const* inputs) const {
  for (const Fixed& fixed : fixed_)
    if (address_of(*inputs[fixed.input], fixed.is_written) != fixed.data) return false;
  return true;
}

bool DriverGraph::is_free() const {
  if (is_busy_) return false;
  if (copies_out_) return true;
  for (const std::shared_ptr<Memory>& memory : memory_)
    if (memory->handed_out.load(std::memory_order_acquire) != 0) return false;
  return true;
}

void DriverGraph::give_back(void* lease) {
  auto* held = static_cast<std::shared_ptr<Memory>*>(lease);
  (*held)->handed_out.fetch_sub(1, std::memory_order_release);
  delete held;
}

// Holds the graph's memory as long as a tensor uses it. A tensor that is resized gets other memory and releases this.
c10::Storage DriverGraph::lease(const std::shared_ptr<Memory>& memory) const {
  memory->handed_out.fetch_add(1, std::memory_order_relaxed);
  c10::DataPtr data(memory->captured.mutable_data(), new std::shared_ptr<Memory>(memory), &give_back,
                    memory->captured.device());
  return {c10::Storage::use_byte_size_t(), memory->captured.nbytes(), std::move(data),
          c10::GetAllocator(memory->captured.device_type()), /*resizable=*/true};
}

c10::Storage DriverGraph::fresh(const Memory& memory) const {
  c10::Allocator* const allocator = c10::GetAllocator(memory.captured.device_type());
  const c10::DeviceGuard guard(place_.device);
  return {c10::Storage::use_byte_size_t(), memory.captured.nbytes(), allocator->allocate(memory.captured.nbytes()),
          allocator, /*resizable=*/true};
}

Result<void> DriverGraph::copy_in(GraphMachinery& machinery, const at::Tensor* const* inputs) const {
  for (const Slot& slot : slots_) {
    const at::Tensor& input = *inputs[slot.input];
    const int64_t extent = extent_of(input);
    if (extent <= kMostSpread * input.numel()) {
      FJ_TRY_VOID(machinery.copy(slot.tensor.mutable_data_ptr(), input.const_data_ptr(),
                                 static_cast<size_t>(extent) * input.itemsize(), place_.stream));
    } else {
      const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
      at::Tensor target = slot.tensor;
      at::_ops::copy_::call(target, input, false);
    }
  }
  return {};
}

void DriverGraph::commit_writes(const ReplayCall& call) const {
  if (writes_.empty()) return;
  const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset);
  for (const auto& [input, slot] : writes_) {
    at::Tensor target = *call.inputs[input];
    if (slot >= 0) at::_ops::copy_::call(target, slots_[static_cast<size_t>(slot)].tensor, false);
    else if (!target.is_inference()) target.unsafeGetTensorImpl()->bump_version();
  }
}

Result<void> DriverGraph::replay(GraphMachinery& machinery, const ReplayCall& call) {
  struct Busy {
    explicit Busy(bool& flag) : flag_(flag) { flag_ = true; }
    ~Busy() { flag_ = false; }
    bool& flag_;
  } const busy(is_busy_);
  // Everything that may fail for lack of memory comes before the graph writes an input.
  c10::SmallVector<c10::Storage, 8> storages;
  for (const std::shared_ptr<Memory>& memory : memory_)
    storages.push_back(copies_out_ ? fresh(*memory) : lease(memory));
  FJ_TRY_VOID(copy_in(machinery, call.inputs));
  FJ_TRY_VOID(graph_->replay(place_.stream));
  if (copies_out_)
    for (size_t i = 0; i < memory_.size(); ++i)
      FJ_TRY_VOID(machinery.copy(storages[i].mutable_data(), memory_[i]->captured.data(),
                                 memory_[i]->captured.nbytes(), place_.stream));
  commit_writes(call);
  const CallPlan& plan = call.runner.plan();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    if (plan.outputs[i].kind == runtime::Output::kInput) {
      call.outputs[i] = *call.inputs[plan.outputs[i].index];
      continue;
    }
    if (!output.is_defined) {
      call.outputs[i] = at::Tensor();
      continue;
    }
    const at::Tensor* const shown = output.of_input >= 0 ? call.inputs[output.of_input] : nullptr;
    call.outputs[i] = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(shown != nullptr ? shown->storage() : storages[output.memory]), output.keys, output.dtype);
    call.outputs[i].unsafeGetTensorImpl()->set_sizes_and_strides(
        output.sizes, output.strides, output.offset + (shown != nullptr ? shown->storage_offset() : 0));
  }
  replay_totals().replays += 1;
  return {};
}

}  // namespace framejit::runtime
