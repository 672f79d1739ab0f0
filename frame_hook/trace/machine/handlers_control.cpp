// frame_hook/trace/machine/handlers_control.cpp — jumps, loops, returns.
#include "frame_hook/trace/machine/opcode_handlers.h"

namespace framejit::frame_hook {

Flow OpcodeHandlers::jump(NoPart&, SymbolicFrame& f, const Instruction& i) { return jump_to(f, i); }

Flow OpcodeHandlers::pop_jump_if_true(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* v = f.pop();
  return t.truth(v) ? jump_to(f, i) : Flow::next;
}

Flow OpcodeHandlers::pop_jump_if_false(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* v = f.pop();
  return t.truth(v) ? Flow::next : jump_to(f, i);
}

Flow OpcodeHandlers::pop_jump_if_none(Shadows& shadows, SymbolicFrame& f, const Instruction& i) {
  Value* v = f.pop();
  return same_object(shadows, v, shadows.heap.none()) ? jump_to(f, i) : Flow::next;
}

Flow OpcodeHandlers::pop_jump_if_not_none(Shadows& shadows, SymbolicFrame& f, const Instruction& i) {
  Value* v = f.pop();
  return same_object(shadows, v, shadows.heap.none()) ? Flow::next : jump_to(f, i);
}

Flow OpcodeHandlers::jump_if_true_or_pop(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  if (t.truth(f.top())) return jump_to(f, i);
  f.pop();
  return Flow::next;
}

Flow OpcodeHandlers::jump_if_false_or_pop(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  if (!t.truth(f.top())) return jump_to(f, i);
  f.pop();
  return Flow::next;
}

Flow OpcodeHandlers::get_iter(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* v = f.pop();
  f.push(t.iterate(v));
  return Flow::next;
}

Flow OpcodeHandlers::for_iter(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  if (Value* item = t.next_item(f.top())) {
    f.push(item);
    return Flow::next;
  }
  f.pop();
  return jump_to(f, i);
}

Flow OpcodeHandlers::return_value(NoPart&, SymbolicFrame& f, const Instruction&) {
  f.result = f.pop();
  return Flow::leave;
}

Flow OpcodeHandlers::return_const(Heap& heap, SymbolicFrame& f, const Instruction& i) {
  load_const(heap, f, i);
  f.result = f.pop();
  return Flow::leave;
}

}  // namespace framejit::frame_hook
