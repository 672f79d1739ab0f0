// frame_hook/trace/machine/graph_break.h — why and where tracing stopped: a row of runtime/base/reasons.def.
//
// Who catches which C++ exception: trace_frame.cpp catches GraphBreak and StopTracing (compile_segment catches a
// GraphBreak of an exit's recipe or graph, and the driver one of derived weights). The frame loop catches
// SymbolicRaise, and so does protocol code where CPython clears the error too. The driver catches InternalError and
// Interrupted.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "guards/guard.h"
#include "runtime/base/reasons.h"

namespace framejit::frame_hook {

struct GraphBreak {            // thrown; on purpose not a std::exception: nothing else may catch it
  Reason reason;
  std::string detail;
  std::optional<guards::Guard> guard = {};  // of the obstacle: while it holds, later calls break too
  const void* worded_by = nullptr;          // the call whose words the detail is; it does not put them into its own
};

struct Value;
struct SymbolicRaise {         // thrown: a Python exception of the traced program
  Value* exception;            // an instance, real or made in the trace
};

struct Interrupted {};  // thrown: an interrupt is kept (guards/cpython/interrupts.h), and the compile is given up

[[noreturn]] inline void graph_break(Reason reason, std::string detail) {
  throw GraphBreak{reason, std::move(detail)};
}

}  // namespace framejit::frame_hook
