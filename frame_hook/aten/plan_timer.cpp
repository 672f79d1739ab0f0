#include "frame_hook/aten/plan_timer.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "guards/cpython/interrupts.h"
#include "guards/cpython/running_compile.h"
#include "runtime/aten/torch_words.h"

namespace framejit::frame_hook {
namespace {

// A timed run must not use up the warnings that torch gives only once.
class Unwarned {
 public:
  Unwarned() : always_(true), guard_(&handler_) {}

 private:
  struct Dropping final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  Dropping handler_;
  c10::WarningUtils::WarnAlways always_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace

CallTimer::CallTimer(const RecordedValues& values, const graph::ShapeEnv& shapes, runtime::KernelLoader& loader)
    : values_(values), loader_(loader) {
  for (const at::Tensor& input : values.example_inputs) {
    const auto alias = input.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0),
                                                                            /*allow_tensor_metadata_change=*/false);
    inputs_.push_back({at::Tensor(alias), input.storage().data(), input.storage().nbytes()});
  }
  for (size_t s = 0; s < shapes.symbol_count(); ++s)
    symbols_.push_back(shapes.symbol(static_cast<graph::SymbolId>(s)).hint);
}

// Another thread may have given a storage other memory since the last run.
bool CallTimer::are_unchanged() const {
  return std::all_of(inputs_.begin(), inputs_.end(), [](const Input& i) {
    return i.alias.storage().data() == i.data && i.alias.storage().nbytes() == i.bytes;
  });
}

Result<const runtime::PlanRunner*> CallTimer::runner_of(const std::shared_ptr<const runtime::Executable>& executable) {
  const auto known = runners_.find(executable.get());
  if (known != runners_.end()) return &known->second;
  FJ_TRY(auto bound, runtime::BoundExecutable::bind(*executable, loader_));
  return &runners_.emplace(executable.get(), runtime::PlanRunner(std::move(bound), values_.constants, values_.opaques))
              .first->second;
}

Result<double> CallTimer::seconds(const std::shared_ptr<const runtime::Executable>& executable, double most) {
  if (!are_unchanged()) return Error{Reason::not_timed, "another thread changed an input"};
  std::vector<const at::Tensor*> inputs;
  for (const Input& input : inputs_) inputs.push_back(&input.alias);
  const Unwarned unwarned;
  std::string thrown;
  try {
    FJ_TRY(const runtime::PlanRunner* runner, runner_of(executable));
    const WithoutGil released;
    return runner->seconds(inputs.data(), symbols_.data(), most);
  } catch (const std::exception& e) { thrown = runtime::torch_words(e); }
  drop_error();
  return Error{Reason::not_timed, thrown};
}

}  // namespace framejit::frame_hook
