#include "runtime/aten/graph_replay.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/aten/plan_program.h"
#include "runtime/aten/shape_functions.h"
#include "runtime/aten/torch_words.h"
#include "runtime/base/config.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace framejit::runtime {
namespace {

constexpr uint32_t kMostFailures = 2;  // of captures: the call between two has prepared the libraries on this thread
constexpr size_t kMostNames = 8;    // of inputs in a line of the log

// The first CPU buffer that a step reads or makes; kNoBuffer: none. A constant of one element is a number.
BufferId cpu_buffer_of(const CallPlan& plan, const Step& step) {
  BufferId found = kNoBuffer;
  const auto look = [&](BufferId b) {
    if (b == kNoBuffer || found != kNoBuffer || !plan.buffers[b].device.is_cpu()) return;
    if (plan.buffers[b].storage == Storage::kConstant && plan.buffers[b].sizes.empty()) return;
    found = b;
  };
  if (const auto* kernel = std::get_if<KernelStep>(&step)) {
    std::for_each(kernel->buffers.begin(), kernel->buffers.end(), look);
  } else if (const auto* call = std::get_if<ExternStep>(&step)) {
    for (const PlanArg& arg : call->args) {
      if (const auto* one = std::get_if<BufferId>(&arg.payload)) look(*one);
      if (const auto* list = std::get_if<std::vector<BufferId>>(&arg.payload))
        std::for_each(list->begin(), list->end(), look);
    }
    for (BufferId b : call->results)
      if (b != kNoBuffer && !plan.buffers[b].is_packed) look(b);
  }
  return found;
}

std::string name_of(const Step& step) {
  if (const auto* call = std::get_if<ExternStep>(&step)) return call->op;
  if (const auto* kernel = std::get_if<KernelStep>(&step)) return "kernel " + kernel->name;
  return "a step";
}

const Place* place_of(const Step& step) {
  if (const auto* call = std::get_if<ExternStep>(&step)) return &call->place;
  if (const auto* kernel = std::get_if<KernelStep>(&step)) return &kernel->place;
  return nullptr;
}

}  // namespace

// Calls that the same recordings can serve.
struct GraphReplay::Kind {
  const PlanRunner* runner;
  std::shared_ptr<const void> values;
  void* stream;
  std::vector<int64_t> symbols;
  std::vector<std::thread::id> readied;  // threads that have run such a call step by step
  std::vector<const void*> seen;    // where the inputs of the first call lay
  std::vector<bool> is_copied;      // empty: not decided yet
  std::vector<std::shared_ptr<DriverGraph>> recordings;
  bool is_refused = false;
  uint32_t failures = 0;
};

GraphReplay::GraphReplay(std::string name, std::vector<std::string> input_names, std::vector<bool> weights,
                         GraphMachinery& machinery)
    : name_(std::move(name)),
      input_names_(std::move(input_names)),
      weights_(std::move(weights)),
      machinery_(&machinery) {
  weights_.resize(std::max(weights_.size(), input_names_.size()), false);
}
GraphReplay::~GraphReplay() = default;
GraphReplay::GraphReplay(GraphReplay&&) noexcept = default;

std::optional<Refused> GraphReplay::refusal_of(const PlanRunner& runner, c10::Device& device) const {
  const CallPlan& plan = runner.plan();
  std::optional<c10::Device> found;
  for (const Step& step : plan.steps) {
    const Place* const place = place_of(step);
    if (place == nullptr || !machinery_->takes(torch_device(place->device))) continue;
    if (found && *found != torch_device(place->device))
      return Refused{GraphRefusal::several_devices, found->str() + " and " + text_of(place->device)};
    found = torch_device(place->device);
  }
  if (!found) return Refused{GraphRefusal::no_device, ""};
  device = *found;
  if (!plan.saves.empty()) return Refused{GraphRefusal::saves, ""};
  for (const Buffer& buffer : plan.buffers)
    if (buffer.storage == Storage::kInput && !machinery_->takes(torch_device(buffer.device)))
      return Refused{GraphRefusal::cpu_input, input_names_.at(buffer.index)};
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Place* const place = place_of(plan.steps[i]);
    if (place == nullptr) continue;
    const BufferId outside = cpu_buffer_of(plan, plan.steps[i]);
    const bool is_outside = !machinery_->takes(torch_device(place->device)) ||
                            (outside != kNoBuffer && !machinery_->takes(torch_device(plan.buffers[outside].device)));
    if (is_outside) return Refused{GraphRefusal::cpu_step, name_of(plan.steps[i])};
    if (const auto* call = std::get_if<ExternStep>(&plan.steps[i]); call != nullptr && is_users(call->op))
      return Refused{GraphRefusal::users_op, name_of(plan.steps[i])};
  }
  return std::nullopt;
}

const GraphReplay::Plan& GraphReplay::plan_of(const PlanRunner& runner) {
  for (const Plan& plan : plans_)
    if (plan.runner == &runner) return plan;
  Plan plan{&runner, std::nullopt, c10::Device(c10::kCPU)};
  plan.refused = refusal_of(runner, plan.device);
  plans_.push_back(plan);
  if (plan.refused) log_refusal(*plan.refused);
  return plans_.back();
}

GraphReplay::Kind* GraphReplay::find_kind(const ReplayCall& call, void* stream) const {
  for (const std::shared_ptr<Kind>& kind : kinds_)
    if (kind->runner == &call.runner && kind->stream == stream && kind->values == call.values &&
        std::equal(kind->symbols.begin(), kind->symbols.end(), call.symbols))
      return kind.get();
  return nullptr;
}

Result<bool> GraphReplay::replay(const ReplayCall& call) {
  if (kinds_.empty()) return false;
  const Plan& plan = plan_of(call.runner);
  if (plan.refused) return false;
  void* const stream = machinery_->stream_of(plan.device);
  const Kind* const kind = find_kind(call, stream);
  if (kind == nullptr || kind->is_refused || kind->recordings.empty() || machinery_->is_capturing(stream))
    return false;
  for (const std::shared_ptr<DriverGraph>& recording : kind->recordings) {
    if (!recording->is_free() || !recording->fits(call.inputs)) continue;
    const std::shared_ptr<DriverGraph> held = recording;  // another thread may drop it meanwhile
    FJ_TRY_VOID(held->replay(*machinery_, call));
    return true;
  }
  return false;
}

size_t GraphReplay::recording_count() const {
  size_t count = 0;
  for (const std::shared_ptr<Kind>& kind : kinds_) count += kind->recordings.size();
  return count;
}

// Null: the setting allows no more.
std::shared_ptr<GraphReplay::Kind> GraphReplay::add_kind(const ReplayCall& call, void* stream) {
  if (static_cast<int64_t>(kinds_.size()) >= config().replays) return nullptr;
  auto kind = std::make_shared<Kind>();
  kind->runner = &call.runner;
  kind->values = call.values;
  kind->stream = stream;
  const CallPlan& plan = call.runner.plan();
  kind->readied.push_back(std::this_thread::get_id());
  kind->symbols.assign(call.symbols, call.symbols + plan.symbol_count);
  for (uint32_t i = 0; i < plan.input_count; ++i)
    kind->seen.push_back(call.inputs[i]->has_storage() ? call.inputs[i]->const_data_ptr() : nullptr);
  // If derived values were made anew, the old ones are never used again.
  std::erase_if(kinds_, [&](const std::shared_ptr<Kind>& old) {
    return old->runner == kind->runner && old->values != kind->values && old->values.use_count() == 1;
  });
  kinds_.push_back(kind);
  return kind;
}

bool GraphReplay::is_same_module(const Kind& kind, const DriverGraph& graph, const ReplayCall& call) const {
  for (uint32_t i = 0; i < kind.is_copied.size(); ++i)
    if (weights_[i] && graph.has_moved(i, *call.inputs[i])) return false;
  return true;
}

// Also decides which inputs are copied.
bool GraphReplay::may_record(Kind& kind, const ReplayCall& call, const std::vector<bool>& marked) {
  const size_t count = kind.seen.size();
  const auto stays = [&](size_t i) { return weights_[i] || (i < marked.size() && marked[i]); };
  if (kind.is_copied.empty())
    for (size_t i = 0; i < count; ++i)
      kind.is_copied.push_back(!stays(i) &&
                               (!call.inputs[i]->has_storage() || call.inputs[i]->const_data_ptr() != kind.seen[i]));
  bool has_moved = false;
  for (const std::shared_ptr<DriverGraph>& recording : kind.recordings) {
    if (recording->is_busy()) return false;
    if (!is_same_module(kind, *recording, call)) continue;
    for (uint32_t i = 0; i < count; ++i)
      if (!stays(i) && recording->has_moved(i, *call.inputs[i])) kind.is_copied[i] = has_moved = true;
  }
  if (has_moved)
    std::erase_if(kind.recordings, [&](const std::shared_ptr<DriverGraph>& recording) {
      return is_same_module(kind, *recording, call) && !recording->fits(call.inputs);
    });
  return true;
}

Result<bool> GraphReplay::record(const ReplayCall& call, const std::vector<bool>& marked) {
  const Plan plan = plan_of(call.runner);
  if (plan.refused) return false;
  void* const stream = machinery_->stream_of(plan.device);
  if (machinery_->is_capturing(stream)) return false;
  std::shared_ptr<Kind> kind;
  for (const std::shared_ptr<Kind>& known : kinds_)
    if (known.get() == find_kind(call, stream)) kind = known;
  const auto refuse_more = [&] {
    if (!std::exchange(limit_is_said_, true)) log_refusal({GraphRefusal::limit, std::to_string(recording_count())});
    return false;
  };
  if (!kind) return add_kind(call, stream) ? false : refuse_more();
  const std::thread::id thread = std::this_thread::get_id();
  if (std::find(kind->readied.begin(), kind->readied.end(), thread) == kind->readied.end()) {
    kind->readied.push_back(thread);  // libraries have handles for each thread, which no capture can make
    return false;
  }
  if (kind->is_refused || machinery_->is_busy() || !may_record(*kind, call, marked)) return false;
  if (static_cast<int64_t>(recording_count()) >= config().replays) return refuse_more();
  Refused refused{GraphRefusal::capture_failed, ""};
  std::shared_ptr<DriverGraph> made;
  try {
    made = DriverGraph::make(*machinery_, {plan.device, stream}, call, kind->is_copied, refused);
  } catch (const std::exception& e) {
    refused.detail = torch_words(e);
  }
  if (!made) {
    kind->is_refused = refused.refusal != GraphRefusal::capture_failed || ++kind->failures >= kMostFailures;
    if (kind->is_refused) log_refusal(refused);
    return false;
  }
  kind->recordings.push_back(made);
  FJ_TRY_VOID(made->replay(*machinery_, call));
  log_recording(*kind, *made);
  return true;
}

void GraphReplay::log_refusal(const Refused& refused) const { log_not_replayed(name_, refused); }

void log_not_replayed(const std::string& graph, const Refused& refused) {
  if (!log::enabled(log::Kind::NotReplayed)) return;
  const GraphRefusalRow& row = row_of(refused.refusal);
  std::string what = row.what;
  if (const size_t at = what.find("{0}"); at != std::string::npos)
    what.replace(at, 3, text::first_line(refused.detail));
  log::emit(log::Kind::NotReplayed, graph,
            {{"graph", graph}, {"reason", row.name}, {"detail", what}, {"hint", row.hint}});
}

void GraphReplay::log_recording(const Kind& kind, const DriverGraph& graph) const {
  if (!log::enabled(log::Kind::Recorded)) return;
  std::string copied;
  size_t count = 0;
  for (size_t i = 0; i < kind.is_copied.size(); ++i) {
    if (!kind.is_copied[i] || ++count > kMostNames) continue;
    copied += (copied.empty() ? "" : ", ") + input_names_.at(i);
  }
  if (count > kMostNames) copied += " and " + std::to_string(count - kMostNames) + " more";
  log::emit(log::Kind::Recorded, name_,
            {{"graph", name_},
             {"number", std::to_string(recording_count())},
             {"steps", std::to_string(kind.runner->plan().steps.size())},
             {"fixed", std::to_string(graph.fixed_count())},
             {"copied", copied.empty() ? "nothing" : copied},
             {"outputs", graph.copies_out() ? "copied" : "its own memory"},
             {"bytes", std::to_string(graph.bytes())}});
}

}  // namespace framejit::runtime
