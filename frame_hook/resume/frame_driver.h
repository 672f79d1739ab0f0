// frame_hook/resume/frame_driver.h — what happens to a frame that the hook took: look up, compile on a miss, run,
// resume.
//
// The driver is a loop. At the frame's current instruction, it runs an entry that fits. A miss is explained and
// compiled. A break is one instruction, run natively on the live frame; the loop continues after it. The frame ends
// with a return, with an exception, or by a hand-over to the interpreter. Internal errors are caught here and nowhere
// else. Nobody waits for a compile: a thread that finds one running, or re-enters, runs plainly.
#pragma once

#include <memory>
#include <optional>

#include "frame_hook/hook/frame_hook.h"
#include "frame_hook/resume/segment.h"

namespace framejit::frame_hook {

class FrameDriver final : public FrameHandler {
 public:
  PyObject* on_frame(LiveFrame& frame, PyObject* options) override;
  // A frame that no compile() asked for: FRAMEJIT_TRACE_ALL. Frames that run during a compile are left alone.
  PyObject* on_frame(LiveFrame& frame, const std::shared_ptr<const CompileOptions>& options);
  // A frame that FRAMEJIT=1 found. Without a value: it was not compiled, nothing of it has run, and the caller passes
  // it through.
  std::optional<PyObject*> try_frame(LiveFrame& frame, const std::shared_ptr<const CompileOptions>& options);
  void on_stack_end(PyCodeObject* code) override;

  // framejit.compile() was called.
  static void on_request();
  // Drops every entry; running calls keep theirs.
  static void reset();
};

FrameDriver& frame_driver();

// Raised for fullgraph=True; set by the package at import (framejit.GraphBreakError), RuntimeError until then.
void set_graph_break_error(PyObject* type);

// Whether frames of this thread are compiled and run compiled; returns the previous value.
bool set_thread_enabled(bool enabled);

// In a forked child: drops the compile that another thread of the parent had begun.
void forget_running_compile();

}  // namespace framejit::frame_hook
