// frame_hook/trace/machine/call_stack.h — the frames that a trace is in, outermost first, and how messages name a place
// in them.
//
// It knows no values except those that the frames hold, adds no guards, and runs nothing.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frame_hook/trace/machine/symbolic_frame.h"
#include "runtime/base/pointer_map.h"

namespace framejit::frame_hook {

int line_of_position(const SymbolicFrame& frame);
std::string text_of_position(const SymbolicFrame& frame);  // "file.py:12 function"

struct CodeOrigin {
  bool is_torch, is_library;
};

class CallStack {
 public:
  void push(std::shared_ptr<SymbolicFrame> frame) { frames_.push_back(std::move(frame)); }
  void pop() { frames_.pop_back(); }
  void clear() { frames_.clear(); }
  SymbolicFrame& innermost() { return *frames_.back(); }
  std::span<const std::shared_ptr<SymbolicFrame>> frames() const { return frames_; }

  // The place of the innermost frame: "model.py:12 forward". For library code, the line of the program that led there
  // stands before it: "model.py:12 forward, in logging/__init__.py:1572 findCaller".
  std::string here() { return frames_.empty() ? "" : way_to(innermost()) + text_of_position(innermost()); }
  std::string way_to(const SymbolicFrame& frame);  // "" or "model.py:12 forward, in "
  const SymbolicFrame& user_frame();                       // the innermost frame outside of torch's own files
  const SymbolicFrame* program_frame();  // the innermost frame outside of libraries; null: none
  // The exception being handled; null: none. known: false if it is the one that was being handled at entry.
  Value* handled_exception(bool* known) const;

 private:
  std::vector<std::shared_ptr<SymbolicFrame>> frames_;
  PointerMap<PyCodeObject, CodeOrigin> origins_;
  std::optional<std::string> way_to_trace_;  // if the trace begins in library code
  const CodeOrigin& origin_of(PyCodeObject* code);
};

}  // namespace framejit::frame_hook
