// frame_hook/trace/machine/drops.h — what the traced code drops.
//
// The trace keeps each value until its exit; plain Python frees it at once. So a drop that may run Python code, or that
// a weak reference shows, is a break.
#pragma once

#include "frame_hook/trace/values/shadows.h"

namespace framejit::frame_hook {

class Drops {
 public:
  Drops(FrameTrace& trace, Shadows& of_values) : shadows(of_values), trace_(trace) {}
  void reset() { dropped_real_ = false; }  // a new attempt begins

  Shadows& shadows;

  // The program drops `v`, except what it holds elsewhere (`kept`, and what frames hold). Breaks if that may run Python
  // code.
  void drop(Value* v, Value* kept = nullptr);
  void drop_by_del(Value* v);
  void drop_locals(SymbolicFrame& frame);                  // of a callee that returned
  bool dropped_real() const { return dropped_real_; }      // the frame dropped a real object

 private:
  FrameTrace& trace_;
  bool dropped_real_ = false;
};

}  // namespace framejit::frame_hook
