#include "frame_hook/resume/trace_all.h"

#include "frame_hook/hook/frame_hook.h"
#include "frame_hook/resume/frame_driver.h"
#include "frame_hook/trace/torch/tensor_frontend.h"
#include "runtime/base/config.h"

namespace framejit::frame_hook {
namespace {

std::shared_ptr<const CompileOptions> options_of_all() {
  auto options = std::make_shared<CompileOptions>();
  options->every_frame = true;
  return options;
}

class TraceAllHandler final : public FrameHandler {
 public:
  PyObject* on_frame(LiveFrame& frame, PyObject*) override {
    if (!frame.is_fresh() || !(frame.code()->co_flags & CO_OPTIMIZED) || !tensor_frontend())
      return frame.pass_through();
    return frame_driver().on_frame(frame, options_);
  }

 private:
  const std::shared_ptr<const CompileOptions> options_ = options_of_all();
};

}  // namespace

bool start_trace_all() {
  static auto* handler = new TraceAllHandler;  // never freed: frames may be in it at exit
  return install_standing_hook(*handler);
}


bool start_trace_all_from_environment() { return config().trace_all && initialise_hook().ok() && start_trace_all(); }

}  // namespace framejit::frame_hook
