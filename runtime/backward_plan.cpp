#include "runtime/backward_plan.h"

#include <optional>
#include <utility>

namespace framejit::runtime {
namespace {

// What each step reads and writes.
template <class Visit>
void for_each_buffer(const Step& step, Visit&& visit) {
  if (const auto* kernel = std::get_if<KernelStep>(&step)) {
    for (BufferId b : kernel->buffers) visit(b);
  } else if (const auto* allocate = std::get_if<AllocateStep>(&step)) {
    if (allocate->over != kNoBuffer) visit(allocate->over);
  } else if (const auto* view = std::get_if<ViewStep>(&step)) {
    visit(view->base);
  } else if (const auto* call = std::get_if<ExternStep>(&step)) {
    for (const PlanArg& arg : call->args) {
      if (const auto* one = std::get_if<BufferId>(&arg.payload)) visit(*one);
      if (const auto* several = std::get_if<std::vector<BufferId>>(&arg.payload))
        for (BufferId b : *several) visit(b);
    }
  }
}

void free_after_last_use(CallPlan& plan, size_t saved) {
  constexpr size_t kStays = SIZE_MAX;
  std::vector<size_t> last(saved, kStays);
  std::vector<BufferId> buffer(saved, kNoBuffer);
  const auto saved_of = [&](BufferId b) {
    return b != kNoBuffer && plan.buffers[b].storage == Storage::kSaved ? std::optional(plan.buffers[b].index)
                                                                        : std::nullopt;
  };
  for (size_t i = 0; i < plan.steps.size(); ++i)
    for_each_buffer(plan.steps[i], [&](BufferId b) {
      if (const auto of = saved_of(b)) last[*of] = i, buffer[*of] = b;
    });
  for (const Output& o : plan.outputs)
    if (o.kind == Output::kBuffer)
      if (const auto of = saved_of(o.index)) last[*of] = kStays;
  std::vector<Step> steps, frees;
  size_t region_end = 0;  // kernels that run together stay neighbours
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (const auto* kernel = std::get_if<KernelStep>(&plan.steps[i]); kernel != nullptr && i >= region_end)
      region_end = i + kernel->together;
    steps.push_back(std::move(plan.steps[i]));
    for (size_t s = 0; s < saved; ++s)
      if (last[s] == i) frees.emplace_back(FreeStep{buffer[s]});
    if (i + 1 < region_end) continue;
    steps.insert(steps.end(), frees.begin(), frees.end());
    frees.clear();
  }
  plan.steps = std::move(steps);
}

}  // namespace

void save_outputs(Executable& executable, size_t first) {
  CallPlan& plan = executable.forward;
  for (size_t i = first; i < plan.outputs.size(); ++i) {
    const Output& output = plan.outputs[i];
    FJ_ASSERT(output.kind == Output::kBuffer && output.index != kNoBuffer,
              "a value is saved that the plan does not make");
    plan.saves.push_back(output.index);
    executable.saved.push_back(plan.buffers[output.index]);
  }
  plan.outputs.resize(first);
}

Executable as_backward(Executable from, uint32_t saved) {
  Executable made;
  made.name = from.name;
  made.saved.resize(saved);
  CallPlan plan = moved_plan(std::move(from), made);
  for (Buffer& buffer : plan.buffers) {
    if (buffer.storage != Storage::kInput) continue;
    if (buffer.index >= saved) {
      buffer.index -= saved;
    } else {
      buffer.storage = Storage::kSaved;
      made.saved[buffer.index] = buffer;
    }
  }
  for (Output& output : plan.outputs) {
    if (output.kind != Output::kInput) continue;
    FJ_ASSERT(output.index >= saved, "a gradient is a saved value itself");
    output.index -= saved;
  }
  plan.input_count -= saved;
  free_after_last_use(plan, saved);
  made.backward.push_back(std::move(plan));
  return made;
}

}  // namespace framejit::runtime
