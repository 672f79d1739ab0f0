// frame_hook/trace/graph_break.h — why and where tracing stopped: rows of break_reasons.def.
//
// What unwinds as a C++ exception, and who catches it: GraphBreak and StopTracing Tracer::run_root (a GraphBreak of an
// exit's recipe or graph compile_segment), SymbolicRaise the frame loop and protocol code where CPython clears the
// error too, InternalError and Interrupted the driver.
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

struct StartOver {};  // thrown: code of the program has run while tracing, so the next attempt takes other steps
struct Interrupted {};         // thrown: an interrupt is kept (guards/interrupts.h), the compile is given up

[[noreturn]] inline void graph_break(BreakReason reason, std::string detail) {
  throw GraphBreak{reason, std::move(detail)};
}

}  // namespace framejit::frame_hook
