// frame_hook/trace/machine/frame_trace.h — what a trace is told at its start, and what it hands over.
#pragma once

#include <unordered_map>

#include "frame_hook/trace/machine/graph_break.h"
#include "frame_hook/trace/machine/symbolic_frame.h"
#include "frame_hook/trace/torch/tensor_frontend.h"
#include "frame_hook/trace/values/float_tensors.h"
#include "frame_hook/trace/values/side_tables.h"
#include "frame_hook/trace/values/trace_hints.h"
#include "guards/guard.h"

namespace framejit::frame_hook {

struct TraceOptions {
  TraceHints hints;
  int max_inline_depth = 200;
  uint64_t max_steps = 2'000'000;
};

struct FrameExit {                        // one frame at the exit, outermost first
  // State before instruction frame->position (innermost), or inside it (outer frames).
  std::shared_ptr<SymbolicFrame> frame;
};

// What torch.compiler.is_compiling() answered in the trace. See compiling_question.h.
enum class CompilingAnswer : uint8_t {
  nothing,         // nobody asked
  yes,
  no,              // because the trace ends in a break, and gets as far with this answer
  no_after_error,  // because an exception left the trace that was answered yes: no for the rest of the call
  no_as_before,    // because of TraceHints
};

struct BreakPlace {
  PyRef file;                             // co_filename; null: unknown
  SourceSpan span;
};

struct FrameTrace {
  std::unique_ptr<Recording> recording;
  guards::GuardSet guards;
  ValueArena values;
  std::vector<Value*> effects;  // values whose `object` must be brought to the state of the shadow, in order of first
                                // write
  std::vector<guards::SourceId> input_sources;  // of the recording's inputs, in order
  std::vector<guards::SourceId> input_owners;  // the modules whose weights they are; kNoSource: none
  std::vector<guards::SourceId> bound_sources;  // must exist; their objects do not matter
  Value* returned = nullptr;              // set when the frame returned
  std::shared_ptr<SymbolicFrame> returned_from;  // set with it
  bool leaves_handler = false;  // the frame returned after the end of a handler that it had entered before the trace:
                                // the exception being handled differs from that at entry
  Value* handled = nullptr;               // the exception being handled then; null: none
  std::vector<FrameExit> exit;            // set if it broke
  Reason reason{};
  std::string detail;
  std::string where;                      // "model.py:31 Net.forward"
  BreakPlace place;                       // the same with columns, for a caret; of a break
  std::shared_ptr<void> modes_at_exit;    // null if unchanged
  CompilingAnswer answer = CompilingAnswer::nothing;
  uint64_t steps = 0;
  size_t python_calls_inlined = 0;
  std::unordered_map<Value*, FloatFormula> float_formulas;
  FloatTensors floats;
  SideTables side_tables;
};

}  // namespace framejit::frame_hook
