// frame_hook/trace/graph_break.h — why and where tracing stopped: rows of break_reasons.def.
//
// Inside the tracer three things unwind as C++ exceptions, each caught in one place: GraphBreak (Tracer::trace_frame),
// SymbolicRaise (the frame loop, which looks up the handler in the exception table) and InternalError (the driver).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace framejit::frame_hook {

enum class BreakReason : uint8_t {
#define BREAK(name, what, hint) name,
#include "frame_hook/trace/break_reasons.def"
#undef BREAK
};

struct BreakRow {
  const char* name;
  const char* what;
  const char* hint;
};
const BreakRow& row_of(BreakReason reason);
std::string describe_break(BreakReason reason, std::string_view detail);  // the row's sentence about the detail
bool find_break_reason(const std::string& name, BreakReason* reason);

struct GraphBreak {            // thrown; not an std::exception on purpose: nothing else may catch it
  BreakReason reason;
  std::string detail;
};

struct Value;
struct SymbolicRaise {         // thrown: a Python exception of the traced program
  Value* exception;            // an instance, real or made in the trace
};

[[noreturn]] inline void graph_break(BreakReason reason, std::string detail) { throw GraphBreak{reason, std::move(detail)}; }

}  // namespace framejit::frame_hook
