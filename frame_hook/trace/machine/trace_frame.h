// frame_hook/trace/machine/trace_frame.h — traces a frame.
//
// In: the live frame (read only), its Code, what earlier recompiles learnt (TraceHints). Out: FrameTrace: the
// recording, guards, effects, and the exit (a value returned, or the state of all frames before the instruction that
// broke).
// Invariants: tracing writes nothing outside of the trace, except modes of torch, which it restores. A second trace of
// the same frame takes the same steps. If the frame stack at a break cannot be resumed in place, the trace starts over
// and stops cleanly before an instruction where it can (attempts.h).
#pragma once

#include "frame_hook/trace/machine/frame_trace.h"
#include "guards/cpython/frame_access.h"

namespace framejit::frame_hook {

// From instruction `start` (an index into code->instructions). Never leaves a Python error set. Throws InternalError
// only for our own bugs. Ctrl-C during tracing stays pending.
FrameTrace trace_frame(TensorFrontend& frontend, const TraceOptions& options, const guards::FrameAccess& frame,
                       std::shared_ptr<const Code> code, size_t start);

}  // namespace framejit::frame_hook
