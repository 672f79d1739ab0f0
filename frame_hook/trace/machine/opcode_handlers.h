// frame_hook/trace/machine/opcode_handlers.h — one handler per neutral opcode that can be traced, by family in
// handlers_*.cpp.
//
// A handler pops its operands before anything may leave the trace: at a break, the outer frames then look as CPython's
// do while the callee runs. If a handler throws (a break, an exception of the traced program), the frame's position
// stays at the instruction.
#pragma once

#include "frame_hook/trace/machine/parts.h"

namespace framejit::frame_hook {

enum class Flow : uint8_t {
  next,   // continue with the next instruction
  jump,   // the handler has set frame.position
  leave,  // the frame returned or yielded frame.result
};

struct OpcodeHandlers {
#define HANDLER(op, ...) static Flow op(HandlerPart<__VA_ARGS__>& t, SymbolicFrame& f, const Instruction& i);
#include "frame_hook/trace/machine/handlers.def"
#undef HANDLER

  // Shared by families.
  static Value* raise_unbound(Errors& errors, SymbolicFrame& f, int slot);
  static Value* raise_name_error(Errors& errors, PyObject* name);
  static Value* call_value(Tracer& t, SymbolicFrame& f, Value* callable, const Arguments& args);
  static void merge_into(Tracer& t, DictValue* target, Value* mapping, Value* callable);
  static std::vector<Value*> unpack_arguments(Tracer& t, Value* iterable, Value* callable);  // f(*iterable)
  static Value* as_exception(Tracer& t, Value* v, const char* error);
  static Flow jump_to(SymbolicFrame& f, const Instruction& i) {
    f.position = static_cast<size_t>(i.target_position);
    return Flow::jump;
  }
};

using OpcodeHandler = Flow (*)(Tracer&, SymbolicFrame&, const Instruction&);
OpcodeHandler handler_of(Op op);  // null: the opcode breaks the graph

}  // namespace framejit::frame_hook
