#include "frame_hook/hook/stress.h"

#include <random>

#include "frame_hook/hook/frame_hook.h"
#include "runtime/base/config.h"

namespace framejit::frame_hook {
namespace {

class StressHandler : public FrameHandler {
 public:
  void seed(uint64_t seed, int longest) {
    random_.seed(seed);
    longest_ = longest;
  }

  PyObject* on_frame(LiveFrame& frame, PyObject*) override {
    if (!frame.decoded()) {
      PyErr_Clear();
      return frame.pass_through();
    }
    if (!frame.enter()) return nullptr;
    const uint64_t draw = random_();
    const int64_t budget =
        (draw & 7) == 0 ? -1 : static_cast<int64_t>((draw >> 8) % static_cast<uint64_t>(longest_ + 1));
    // Some frames are run instruction by instruction, as a graph break is.
    if ((draw & 0x70) == 0x70 && budget >= 0) return frame.conclude(stepwise(frame, budget));
    return frame.conclude(frame.run({nullptr, budget}));
  }

 private:
  static EvalResult stepwise(LiveFrame& frame, int64_t count) {
    EvalResult result{EvalStop::reached};
    for (int64_t i = 0; i < count && result.stop == EvalStop::reached; i++) result = frame.run_one();
    return result;
  }
  std::mt19937_64 random_;
  int longest_ = 40;
};

StressHandler& handler() {
  static auto* handler = new StressHandler;  // frames may still run while static destructors do
  return *handler;
}

}  // namespace

bool start_stress(uint64_t seed, int longest) {
  handler().seed(seed, longest);
  return install_standing_hook(handler());
}


bool start_stress_from_environment() {
  return config().stress >= 0 && initialise_hook().ok() && start_stress(static_cast<uint64_t>(config().stress));
}

}  // namespace framejit::frame_hook
