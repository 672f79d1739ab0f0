// runtime/call_plan.cpp — the loop that runs a plan.
//
// It allocates nothing except when the size array grows: operands of a kernel lie on the C stack.
#include "runtime/call_plan.h"

#include <alloca.h>

#include <algorithm>
#include <atomic>

namespace framejit::runtime {
namespace {

struct KernelCall {
  FjKernelFn function;
  void* const* buffers;
  const int64_t* sizes;
  const FjScalar* scalars;
  int64_t unit, extent;
  std::atomic<int64_t> status{0};
};

void run_part(void* state, int64_t begin, int64_t end) {  // in units
  auto& call = *static_cast<KernelCall*>(state);
  const int64_t status =
      call.function(call.buffers, call.sizes, call.scalars, begin * call.unit, std::min(end * call.unit, call.extent));
  if (status != 0) [[unlikely]] call.status.store(status, std::memory_order_relaxed);
}

int64_t units(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

Error failure(const KernelStep& step, int64_t status) {
  if (status > 0) return {Reason::kernel_check, "a check of kernel " + step.name + " failed"};
  return {Reason::launch_failed, "the driver refused to launch kernel " + step.name + " on device " +
                               text_of(step.place.device) + ": error " + std::to_string(-status)};
}

Result<void> run_kernel(const KernelStep& step, const LoadedKernel& kernel, PlanHost& host) {
  const size_t buffer_count = step.buffers.size(), size_count = step.sizes.size();
  auto** buffers = static_cast<void**>(alloca((buffer_count + 1) * sizeof(void*)));
  auto* sizes = static_cast<int64_t*>(alloca((size_count + 1) * sizeof(int64_t)));
  for (size_t i = 0; i < buffer_count; ++i) buffers[i] = host.data(step.buffers[i]);
  for (const auto& [i, bytes] : step.offsets) buffers[i] = static_cast<char*>(buffers[i]) + bytes;
  for (size_t i = 0; i < size_count; ++i) sizes[i] = host.size(step.sizes[i]);
  const int64_t extent = host.size(step.extent);
  if (extent == 0)
    return {};  // code before the loop, which does not depend on the point, would touch memory that does not exist
  if (!step.place.device.is_cpu()) host.enter(step.place);
  int64_t status = 0;
  if (step.grain <= 0 || extent < 2 * step.grain) {
    status = kernel.function(buffers, sizes, kernel.scalars.data(), 0, extent);
  } else {
    KernelCall call{kernel.function, buffers, sizes, kernel.scalars.data(), step.unit, extent};
    host.parallel_for(0, units(extent, step.unit), units(step.grain, step.unit), run_part, &call);
    status = call.status.load(std::memory_order_relaxed);
  }
  if (status == 0) [[likely]] return {};
  return failure(step, status);
}

Result<void> run_check(const CheckStep& step, const PlanHost& host) {
  const int64_t left = host.size(step.left), right = host.size(step.right);
  if (left == right) return {};
  return Error{Reason::size_check, step.message + ": " + std::to_string(left) + " != " + std::to_string(right)};
}

}  // namespace

Result<void> run_steps(const BoundPlan& bound, const int64_t* symbols, PlanHost& host) {
  const CallPlan& plan = *bound.plan;
  host.sizes.resize(plan.size_program.size());
  for (size_t i = 0; i < plan.size_program.size(); ++i)
    if (!evaluate(plan.size_program[i], symbols, host.sizes.data(), host.sizes[i]))
      return Error{Reason::size_out_of_range, "a size that does not fit 64 bits"};
  if (!plan.arena.empty())
    if (const int64_t bytes = host.size(plan.arena[0].bytes); bytes > 0) host.take(0, bytes);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (const auto* kernel = std::get_if<KernelStep>(&step)) {
      FJ_TRY_VOID(run_kernel(*kernel, *bound.kernels[i], host));
    } else if (const auto* call = std::get_if<ExternStep>(&step)) {
      host.call(*call, i);
    } else if (const auto* allocate = std::get_if<AllocateStep>(&step)) {
      host.allocate(allocate->buffer);
    } else if (const auto* free = std::get_if<FreeStep>(&step)) {
      host.release(free->buffer);
    } else if (const auto* view = std::get_if<ViewStep>(&step)) {
      host.view(view->base, view->result);
    } else if (const auto* take = std::get_if<TakeStep>(&step)) {
      host.take(take->block, host.size(plan.arena[take->block].bytes));
    } else if (const auto* give = std::get_if<GiveStep>(&step)) {
      host.give(give->block);
    } else if (const auto* check = std::get_if<CheckStep>(&step)) {
      FJ_TRY_VOID(run_check(*check, host));
    }
  }
  return {};
}

}  // namespace framejit::runtime
