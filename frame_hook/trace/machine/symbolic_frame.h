// frame_hook/trace/machine/symbolic_frame.h — a Python frame over traced values: locals, value stack, position, handled
// exceptions.
#pragma once

#include <memory>
#include <vector>

#include "frame_hook/bytecode/code.h"
#include "frame_hook/trace/values/value.h"

namespace framejit::frame_hook {

// What the outer frame does with a callee's result if tracing breaks inside the callee and both are resumed natively.
enum class OnReturn : uint8_t {
  push,  // the result is pushed and the next instruction follows (CALL, LOAD_ATTR of a property, BINARY_OP, ...)
  push_object,  // the result must be None and is dropped; `pending_object` is pushed (a call of a class: __init__)
  not_resumable,  // the instruction does more after the callee: break before the outer instruction instead
};

// Values of the names and constants of a code object, made once per trace.
struct CodeCache {
  std::vector<Value*> constants, names,
      globals;  // by co_consts, co_names; globals: looked up by co_names, in one globals dict
  Value* globals_dict = nullptr;
};

struct SymbolicFrame {
  std::shared_ptr<const Code> code;
  FunctionValue* function = nullptr;
  Value* globals = nullptr;               // DictValue of the function's globals
  Value* builtins = nullptr;              // DictValue
  std::vector<Value*> locals;  // co_nlocalsplus; null: unbound. Cell slots hold CellValues once MAKE_CELL ran
  std::vector<bool> is_written;  // of the traced frame: slots stored to or deleted; the exit leaves the others alone
  bool is_resumed = false;  // the traced frame, not at its start: other calls may have bound other locals here
  std::vector<Value*> stack;              // ValueKind::null values for NULL
  std::vector<Value*> handled;            // exceptions being handled (exc_info), innermost last; null for "none"
  int entered_handlers = 0;  // how many of these, from the end, the trace entered; an earlier one came back at the end
                             // of a handler that the frame had entered before the trace
  size_t position = 0;                    // index into code->instructions of the instruction being executed
  OnReturn on_return = OnReturn::not_resumable;  // how the current instruction of THIS frame treats the callee's result
  Value* pending_object = nullptr;
  GeneratorValue* generator = nullptr;    // set when this is a generator's frame
  uint64_t step_at_instruction = 0;       // tracer step count when `position` started
  CodeCache* cache = nullptr;
  Value* result = nullptr;                // what the frame ended with: returned, or yielded if `yielded`
  bool yielded = false;
  Value* thrown = nullptr;                // raised when the frame continues: generator.throw()
  int reraised_unit = -1;                 // f_lasti that RERAISE restored, for the handler that is entered next
  bool calls_directly = false;            // the instruction is a call, and its result is what its callable returns

  void mark_written(int slot) { if (!is_written.empty()) is_written[static_cast<size_t>(slot)] = true; }
  Value* pop() { Value* v = stack.back(); stack.pop_back(); return v; }
  void push(Value* v) { stack.push_back(v); }
  Value*& top(size_t depth = 0) { return stack[stack.size() - 1 - depth]; }
};

}  // namespace framejit::frame_hook
