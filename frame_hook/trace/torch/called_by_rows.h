// frame_hook/trace/torch/called_by_rows.h — what rows that trace the work of torch's own functions call.
#pragma once

#include <initializer_list>

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook::rows {

Value* method(Tracer& t, Value* self, const char* name, std::initializer_list<Value*> args);
bool grad_mode();

class NoGrad final {  // turns grad mode off for real during a part of the trace
 public:
  NoGrad() { set(false); }
  ~NoGrad() { set(before_); }
  NoGrad(const NoGrad&) = delete;

 private:
  static void set(bool enabled);
  const bool before_ = grad_mode();
};

}  // namespace framejit::frame_hook::rows
