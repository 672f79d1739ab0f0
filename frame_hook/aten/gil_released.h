// frame_hook/aten/gil_released.h — a stretch of work that other Python threads may run beside.
#pragma once

#include <Python.h>

namespace framejit::frame_hook {

class GilReleased final {
 public:
  explicit GilReleased(bool wanted = true) : thread_(wanted ? PyEval_SaveThread() : nullptr) {}
  ~GilReleased() {
    if (thread_ != nullptr) PyEval_RestoreThread(thread_);
  }
  GilReleased(const GilReleased&) = delete;

 private:
  PyThreadState* thread_;
};

}  // namespace framejit::frame_hook
