// runtime/call_plan.cpp — the loop that runs a plan.
//
// It allocates nothing except when the size array grows, and for kernels that run together: operands of a kernel lie on
// the C stack.
#include "runtime/call_plan.h"

#include <alloca.h>

#include <algorithm>
#include <atomic>
#include <cmath>

namespace framejit::runtime {
namespace {

struct KernelCall {
  FjKernelFn function;
  void* const* buffers;
  const int64_t* sizes;
  const FjScalar* scalars;
  int64_t unit, extent;
  int64_t status = 0;  // of the last part that failed; written by any thread
};

void run_part(void* state, int64_t begin, int64_t end) {  // in units
  auto& call = *static_cast<KernelCall*>(state);
  const int64_t status =
      call.function(call.buffers, call.sizes, call.scalars, begin * call.unit, std::min(end * call.unit, call.extent));
  if (status != 0) [[unlikely]]
    std::atomic_ref(call.status).store(status, std::memory_order_relaxed);
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
    status = call.status;
  }
  if (status == 0) [[likely]] return {};
  return failure(step, status);
}

// A kernel among those that run together, and its pieces of the region. It is cut into these like a kernel that runs
// alone.
struct Member {
  KernelCall call;
  const KernelStep* step;
  int64_t units, first_piece, pieces;
};
struct Region {
  std::vector<Member> members;
  int64_t pieces = 0;
  double grains = 0;  // of work in all
};
constexpr double kGrainsOfWhole = 0.125;  // of a kernel that is not cut: most of these compute one number

void run_pieces(void* state, int64_t begin, int64_t end) {
  std::vector<Member>& members = static_cast<Region*>(state)->members;
  auto member = std::upper_bound(members.begin(), members.end(), begin,
                                 [](int64_t piece, const Member& m) { return piece < m.first_piece; }) -
                1;
  for (; member != members.end() && member->first_piece < end; ++member) {
    const auto unit = [&](int64_t piece) { return (piece - member->first_piece) * member->units / member->pieces; };
    run_part(&member->call, unit(std::max(begin, member->first_piece)),
             unit(std::min(end, member->first_piece + member->pieces)));
  }
}

// Runs `count` steps from `first` on, which do not need each other. They may have too many operands for the C stack.
Result<void> run_together(const BoundPlan& bound, size_t first, size_t count, PlanHost& host) {
  size_t pointers = 0, numbers = 0;
  const auto step = [&](size_t k) -> const KernelStep& { return std::get<KernelStep>(bound.plan->steps[first + k]); };
  for (size_t k = 0; k < count; ++k) {
    pointers += step(k).buffers.size();
    numbers += step(k).sizes.size();
  }
  std::vector<void*> buffers;
  std::vector<int64_t> sizes;
  buffers.reserve(pointers);
  sizes.reserve(numbers);
  Region region;
  region.members.reserve(count);
  for (size_t k = 0; k < count; ++k) {
    const KernelStep& s = step(k);
    const int64_t extent = host.size(s.extent), all = units(extent, s.unit);
    if (extent == 0) continue;
    const LoadedKernel& kernel = *bound.kernels[first + k];
    void** const pointer = buffers.data() + buffers.size();
    for (BufferId b : s.buffers) buffers.push_back(host.data(b));
    for (const auto& [i, bytes] : s.offsets) pointer[i] = static_cast<char*>(pointer[i]) + bytes;
    const int64_t* const number = sizes.data() + sizes.size();
    for (const Size& size : s.sizes) sizes.push_back(host.size(size));
    const int64_t pieces = s.grain <= 0 ? 1 : std::max<int64_t>(all / units(s.grain, s.unit), 1);
    region.grains += s.grain <= 0 ? kGrainsOfWhole : static_cast<double>(extent) / static_cast<double>(s.grain);
    region.members.push_back(
        {{kernel.function, pointer, number, kernel.scalars.data(), s.unit, extent}, &s, all, region.pieces, pieces});
    region.pieces += pieces;
  }
  if (region.members.empty()) return {};
  const double per_grain = static_cast<double>(region.pieces) / region.grains;
  host.parallel_for(0, region.pieces, std::max<int64_t>(std::llround(per_grain), 1), run_pieces, &region);
  for (const Member& member : region.members)
    if (const int64_t status = member.call.status; status != 0) return failure(*member.step, status);
  return {};
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
      if (kernel->together < 2) {
        FJ_TRY_VOID(run_kernel(*kernel, *bound.kernels[i], host));
      } else {
        FJ_TRY_VOID(run_together(bound, i, kernel->together, host));
        i += kernel->together - 1;
      }
    } else if (const auto* call = std::get_if<ExternStep>(&step)) {
      host.call(*call, i);
    } else if (const auto* allocate = std::get_if<AllocateStep>(&step)) {
      host.allocate(allocate->buffer, allocate->over);
    } else if (const auto* free = std::get_if<FreeStep>(&step)) {
      host.release(free->buffer);
    } else if (const auto* view = std::get_if<ViewStep>(&step)) {
      host.view(view->base, view->result);
    } else if (const auto* take = std::get_if<TakeStep>(&step)) {
      host.take(take->block, host.size(plan.arena[take->block].bytes));
    } else if (const auto* give = std::get_if<GiveStep>(&step)) {
      host.give(give->block);
    }
  }
  return {};
}

}  // namespace framejit::runtime
