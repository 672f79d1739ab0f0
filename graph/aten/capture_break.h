// graph/aten/capture_break.h — how code on the ATen side says that a call cannot be part of a graph.
//
// The exception travels through torch's C++ and Python layers, which turn it into a RuntimeError. The recorder keeps a
// copy (Recorder::take_break), and only the copy counts. So no code on the way can swallow the break.
#pragma once

#include <exception>
#include <string>

#include "runtime/base/result.h"

namespace framejit::graph {

class CaptureBreakError : public std::exception {
 public:
  explicit CaptureBreakError(const Error& why)
      : text_(std::string("framejit: ") + name_of(why.reason) + ": " + why.message) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace framejit::graph
