// frame_hook/trace/machine/call_stack.h — the frames that a trace is in, outermost first, and how messages name a place
// in them.
//
// It knows no values except those that the frames hold, adds no guards, and runs nothing.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "frame_hook/trace/machine/symbolic_frame.h"
#include "runtime/base/pointer_map.h"

namespace framejit::frame_hook {

class CallStack {
 public:
  void push(std::shared_ptr<SymbolicFrame> frame) { frames_.push_back(std::move(frame)); }
  void pop() { frames_.pop_back(); }
  void clear() { frames_.clear(); }
  SymbolicFrame& innermost() { return *frames_.back(); }
  std::span<const std::shared_ptr<SymbolicFrame>> frames() const { return frames_; }

  std::string here() const;                                // "file.py:12 function" of the innermost frame
  const SymbolicFrame& user_frame();                       // the innermost frame outside of torch's own files
  // The exception being handled; null: none. known: false if it is the one that was being handled at entry.
  Value* handled_exception(bool* known) const;

 private:
  std::vector<std::shared_ptr<SymbolicFrame>> frames_;
  PointerMap<PyCodeObject, bool> torch_codes_;
  bool is_torch_code(PyCodeObject* code);
};

std::string text_of_position(const SymbolicFrame& frame);  // "file.py:12 function"

}  // namespace framejit::frame_hook
