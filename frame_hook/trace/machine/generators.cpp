// frame_hook/trace/machine/generators.cpp — generators made in the trace: their frames run step by step inside the
// instruction that consumes them.
#include "frame_hook/trace/machine/opcode_handlers.h"
#include "frame_hook/trace/values/exception_members.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

namespace {

using State = GeneratorValue::State;

// The instruction after a yield is a RESUME that says what the yield is part of: 2 yield from, 3 await.
bool suspended_in_yield_from(const SymbolicFrame& f) {
  const Instruction& next = f.code->instructions[f.position];
  return next.op == Op::resume && (next.arg & 3) >= 2;
}

}  // namespace

Value* Machine::resume_generator(GeneratorValue* generator, Value* sent, Value* thrown) {
  SymbolicFrame& f = *generator->frame;
  if (generator->state == State::running) t_.errors.raise_new(PyExc_ValueError, "generator already executing");
  if (generator->state == State::finished || (generator->state == State::created && thrown)) {
    generator->state = State::finished;
    generator->return_value = t_.heap.none();
    if (thrown) t_.errors.raise(thrown);
    return nullptr;
  }
  if (generator->state == State::created) {
    if (sent && !same_object(t_.shadows, sent, t_.heap.none()))
      t_.errors.raise_new(PyExc_TypeError, "can't send non-None value to a just-started generator");
  } else if (thrown) {
    if (suspended_in_yield_from(f))
      graph_break(Reason::exception_state, "an exception thrown into a generator that waits in yield from");
    f.thrown = thrown;
    --f.position;
  } else {
    f.push(sent ? sent : t_.heap.none());
  }
  generator->state = State::running;
  Value* result = nullptr;
  try {
    result = run_frame(generator->frame);
  } catch (const SymbolicRaise& raised) {
    generator->state = State::finished;
    if (!t_.errors.exception_matches(raised.exception, PyExc_StopIteration)) throw;
    throw SymbolicRaise{t_.errors.error_of_generator(raised.exception)};
  }
  if (f.yielded) {
    generator->state = State::suspended;
    return result;
  }
  generator->state = State::finished;
  generator->return_value = result;
  return nullptr;
}

// When the frame of the generator first runs: "-- sent".
Flow OpcodeHandlers::return_generator(Heap& heap, SymbolicFrame& f, const Instruction&) {
  f.push(heap.none());
  return Flow::next;
}

// value -- sent
Flow OpcodeHandlers::yield_value(NoPart&, SymbolicFrame& f, const Instruction&) {
  FJ_ASSERT(f.generator, "a yield outside of a generator");
  f.result = f.pop();
  f.yielded = true;
  ++f.position;
  return Flow::leave;
}

// iterable -- iterator
Flow OpcodeHandlers::get_yield_from_iter(Tracer& t, SymbolicFrame& f, const Instruction&) {
  if (f.top()->kind != ValueKind::generator) f.push(t.iterate(f.pop()));
  return Flow::next;
}

// receiver sent -- receiver yielded
Flow OpcodeHandlers::send(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value *sent = f.top(), *receiver = f.top(1), *result = nullptr, *yielded = nullptr;
  if (receiver->kind == ValueKind::generator) {
    yielded = t.machine.resume_generator(as<GeneratorValue>(receiver), sent, nullptr);
    if (!yielded) result = as<GeneratorValue>(receiver)->return_value;
  } else {
    if (!same_object(t.shadows, sent, t.heap.none()))
      graph_break(Reason::sent_value, "a value sent through yield from to an iterator");
    Value* stop = nullptr;
    yielded = t.next_item(receiver, &stop);
    if (!yielded)
      result = stop ? read_member(t.heap, as<InstanceValue>(stop), member_descriptor(PyExc_StopIteration, "value"))
                    : t.heap.none();
  }
  f.pop();
  if (yielded) {
    f.push(yielded);
    return Flow::next;
  }
  if (i.has(Instruction::kReplacesReceiver)) f.pop();
  f.push(result);
  return jump_to(f, i);
}

// receiver result -- result
Flow OpcodeHandlers::end_send(NoPart&, SymbolicFrame& f, const Instruction&) {
  Value* result = f.pop();
  f.top() = result;
  return Flow::next;
}

}  // namespace framejit::frame_hook
