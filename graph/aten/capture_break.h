// graph/aten/capture_break.h — how ATen-side code says that a call cannot stand in a graph.
//
// The exception travels through torch's C++ and Python layers, which turn it into a RuntimeError; what counts is the
// copy that the recorder keeps (Recorder::take_break), so that nobody on the way can swallow it.
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
