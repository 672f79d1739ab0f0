// graph/aten/capture_break.h — how ATen-side code says that a call cannot stand in a graph.
//
// The exception travels through torch's C++ and Python layers, which turn it into a RuntimeError; what counts is the
// copy that the recorder keeps (Recorder::take_break), so that nobody on the way can swallow it.
#pragma once

#include <exception>
#include <string>

namespace framejit::graph {

struct CaptureFailure {
  std::string reason;  // row name of break_reasons.def
  std::string detail;
};

class CaptureBreakError : public std::exception {
 public:
  explicit CaptureBreakError(CaptureFailure failure)
      : failure_(std::move(failure)), text_("framejit: " + failure_.reason + ": " + failure_.detail) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const CaptureFailure& failure() const { return failure_; }

 private:
  CaptureFailure failure_;
  std::string text_;
};

}  // namespace framejit::graph
