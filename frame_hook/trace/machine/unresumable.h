// frame_hook/trace/machine/unresumable.h — an operation that does more after a callee returns.
//
// If tracing breaks inside the callee, it stops before the frame's instruction instead.
#pragma once

#include <utility>

#include "frame_hook/trace/machine/call_stack.h"

namespace framejit::frame_hook {

// While a callee inlined under this guard runs, the frame's instruction cannot be resumed after the callee.
class Unresumable {
 public:
  explicit Unresumable(const CallStack& stack) : frame_(stack.frames().empty() ? nullptr : stack.frames().back()) {
    if (frame_) saved_ = std::exchange(frame_->on_return, OnReturn::not_resumable);
  }
  ~Unresumable() {
    if (frame_) frame_->on_return = saved_;
  }
  Unresumable(const Unresumable&) = delete;
  Unresumable& operator=(const Unresumable&) = delete;

 private:
  std::shared_ptr<SymbolicFrame> frame_;
  OnReturn saved_ = OnReturn::not_resumable;
};

}  // namespace framejit::frame_hook
