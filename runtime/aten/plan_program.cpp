// runtime/aten/plan_program.cpp — the work that is done once per plan.
#include "runtime/aten/plan_program.h"

#include <ATen/Context.h>

#include <algorithm>

namespace framejit::runtime {

c10::Device torch_device(DeviceId id) {
  return c10::Device(static_cast<c10::DeviceType>(id.type),
                     id.is_cpu() ? c10::DeviceIndex(-1) : c10::DeviceIndex(id.index));
}

PlanProgram::PlanProgram(std::shared_ptr<const BoundExecutable> the_executable, const BoundPlan& the_bound,
                         std::vector<at::Tensor> the_constants, const std::vector<c10::IValue>& opaque)
    : executable(std::move(the_executable)),
      bound(the_bound),
      plan(the_bound.plan),
      constants(std::move(the_constants)) {
  for (const ArenaBlock& block : plan->arena) arena_devices.push_back(torch_device(block.device));
  for (const Buffer& b : plan->buffers) {
    const c10::Device device = torch_device(b.device);
    const bool constant = all_constant(b.sizes) && all_constant(b.strides);
    shapes.push_back({constant, constants_of(b.sizes), constants_of(b.strides),
                      static_cast<c10::ScalarType>(b.torch_dtype), device});
    if (b.storage == Storage::kConstant)
      FJ_ASSERT(b.index < constants.size(), "constant " + std::to_string(b.index) + " of plan " + plan->name);
  }
  for (const Step& step : plan->steps) {
    calls.emplace_back();
    if (const auto* call = std::get_if<ExternStep>(&step)) calls.back().emplace(*call, opaque);
  }
  for (const auto& [input, buffer] : plan->updates)
    if (is_in_place(input, buffer)) written_inputs.push_back(input);
  find_tracked_steps();
  find_updates_to_copy();
  find_generators();
}

bool PlanProgram::is_in_place(uint32_t input, BufferId buffer) const {
  return plan->buffers[buffer].storage == Storage::kInput && plan->buffers[buffer].index == input;
}

// Walks backwards from the outputs, through views to their bases.
void PlanProgram::find_tracked_steps() {
  leaves.assign(plan->buffers.size(), false);
  for (const Output& o : plan->outputs)
    if (o.kind == Output::kBuffer && o.index != kNoBuffer) leaves[o.index] = true;
  tracked.assign(plan->steps.size(), false);
  for (size_t i = plan->steps.size(); i-- > 0;) {
    if (const auto* view = std::get_if<ViewStep>(&plan->steps[i])) {
      if (leaves[view->result]) leaves[view->base] = true;
      continue;
    }
    const auto* step = std::get_if<ExternStep>(&plan->steps[i]);
    if (!step) continue;
    const bool view_leaves =
        calls[i]->returns_view() && std::any_of(step->results.begin(), step->results.end(),
                                                [&](BufferId b) { return b != kNoBuffer && leaves[b]; });
    // Autograd does not know memory of the arena as a tensor.
    const std::vector<BufferId>& written = calls[i]->written();
    tracked[i] = view_leaves || std::any_of(written.begin(), written.end(), [&](BufferId b) {
                   return b != kNoBuffer && plan->buffers[b].storage != Storage::kArena;
                 });
    if (!view_leaves) continue;
    for (BufferId b : calls[i]->viewed())
      if (b != kNoBuffer) leaves[b] = true;
  }
}

void PlanProgram::find_updates_to_copy() {
  std::vector<int64_t> root(plan->buffers.size(), -1);  // the input whose memory a buffer may show
  for (size_t b = 0; b < root.size(); ++b)
    if (plan->buffers[b].storage == Storage::kInput) root[b] = plan->buffers[b].index;
  for (size_t i = 0; i < plan->steps.size(); ++i) {
    if (const auto* view = std::get_if<ViewStep>(&plan->steps[i])) root[view->result] = root[view->base];
    if (!calls[i]) continue;
    for (BufferId viewed : calls[i]->viewed())
      for (BufferId result : std::get<ExternStep>(plan->steps[i]).results)
        if (viewed != kNoBuffer && result != kNoBuffer && root[viewed] >= 0) root[result] = root[viewed];
  }
  for (const auto& [input, buffer] : plan->updates) {
    const int64_t from = is_in_place(input, buffer) ? -1 : root[buffer];
    copy_before_update.push_back(std::any_of(plan->updates.begin(), plan->updates.end(),
                                             [&](const auto& other) { return other.first == from; }));
  }
}

void PlanProgram::find_generators() {
  const auto add = [&](const at::Generator& g) {
    if (std::find(generators.begin(), generators.end(), g) == generators.end()) generators.push_back(g);
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    std::optional<at::Generator> named;
    if (!calls[i] || !calls[i]->draws(named)) continue;
    if (named) {
      add(*named);
      continue;
    }
    add(at::globalContext().defaultGenerator(c10::kCPU));
    for (BufferId b : std::get<ExternStep>(plan->steps[i]).results)
      if (b != kNoBuffer && !shapes[b].device.is_cpu()) add(at::globalContext().defaultGenerator(shapes[b].device));
  }
}

}  // namespace framejit::runtime
