// graph/aten/capture_break.h — how code on the ATen side says that a call cannot be part of a graph.
//
// The exception travels through torch's C++ and Python layers, which turn it into a RuntimeError. The copy that the
// recorder keeps (Recorder::take_break) is what counts, so nobody on the way can swallow it.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "runtime/base/reasons.h"

namespace framejit::graph {

struct CaptureFailure {
  Reason reason;
  std::string detail;
};

class CaptureBreakError : public std::exception {
 public:
  explicit CaptureBreakError(CaptureFailure failure)
      : failure_(std::move(failure)),
        text_(std::string("framejit: ") + name_of(failure_.reason) + ": " + failure_.detail) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const CaptureFailure& failure() const { return failure_; }

 private:
  CaptureFailure failure_;
  std::string text_;
};

}  // namespace framejit::graph
