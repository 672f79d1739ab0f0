// frame_hook/trace/machine/exceptions.cpp — exceptions of the traced program: who handles them, and the opcodes.
//
// No exception leaves the traced frame: if nobody catches it, tracing stops before the instruction that raised it, and
// plain Python raises it again.
#include "frame_hook/trace/machine/opcode_handlers.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "guards/cpython/interrupts.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

void Machine::enter_handler(SymbolicFrame& f, Value* exception) {
  const Instruction& i = f.code->instructions[f.position];
  const int unit = std::exchange(f.reraised_unit, -1);
  const ExceptionRange* range = f.code->find_handler(i.opcode_index);
  const auto break_at_raise = [&] {  // plain Python raises it again
    const auto* raised = t_.attempts.find_raise(exception);
    FJ_ASSERT(raised != nullptr, "an exception that nothing has raised");
    t_.attempts.move_break(raised->step);
    graph_break(Reason::exception_raised, exception->type->tp_name);
  };
  try {
    for (size_t depth = range ? static_cast<size_t>(range->depth) : 0; f.stack.size() > depth;) t_.drops.drop(f.pop());
  } catch (const GraphBreak&) { break_at_raise(); }
  if (!range) throw SymbolicRaise{exception};
  bool known = true;
  t_.stack.handled_exception(&known);
  // Only the live frame knows the exception's context, and which exception is handled again after the handler.
  if (!known && !t_.facts.relies_on_nothing_handled()) break_at_raise();
  if (range->push_lasti) f.push(t_.heap.integer(unit >= 0 ? unit : i.opcode_index));
  f.push(exception);
  f.position = static_cast<size_t>(range->target_position);
}

// ---- handlers

// exception -- previous exception
Flow OpcodeHandlers::push_exc_info(Heap& heap, SymbolicFrame& f, const Instruction&) {
  bool known = true;
  Value* previous = f.handled.empty() && f.generator ? nullptr : heap.facts.stack.handled_exception(&known);
  if (!known && !heap.facts.relies_on_nothing_handled())
    graph_break(Reason::exception_state, "entering a handler while an exception is being handled");
  Value* exception = f.pop();
  f.push(previous ? previous : heap.none());
  f.push(exception);
  f.handled.push_back(exception);
  ++f.entered_handlers;
  return Flow::next;
}

// previous --. At the end of a handler that the frame entered before the trace, it restores what the live stack kept.
Flow OpcodeHandlers::pop_except(Shadows& shadows, SymbolicFrame& f, const Instruction&) {
  Value* previous = f.pop();
  if (f.entered_handlers > 0) {
    --f.entered_handlers;
    f.handled.pop_back();
    return Flow::next;
  }
  const bool nothing = previous->kind == ValueKind::null || same_object(shadows, previous, shadows.heap.none());
  f.handled.assign(1, nothing ? nullptr : previous);
  return Flow::next;
}

// exception type -- exception bool
Flow OpcodeHandlers::check_exc_match(Shadows& shadows, SymbolicFrame& f, const Instruction&) {
  Value* type = f.pop();
  auto is_class = [](PyObject* o) { return PyType_Check(o) && is_exception_type(reinterpret_cast<PyTypeObject*>(o)); };
  if (!shadows.heap.is_constant(type))
    graph_break(Reason::unsupported_operand, std::string("except with an object of type ") + type->type->tp_name);
  PyObject* object = constant_of(shadows, type);
  bool legal = is_class(object) || PyTuple_CheckExact(object);
  if (legal && PyTuple_CheckExact(object))
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(object); ++k) legal = legal && is_class(PyTuple_GET_ITEM(object, k));
  if (!legal)
    shadows.errors.raise_new(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
  f.push(shadows.heap.boolean(shadows.errors.exception_matches(f.top(), object)));
  return Flow::next;
}

// exception --
Flow OpcodeHandlers::reraise(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* exception = f.pop();
  if (i.arg > 0) f.reraised_unit = static_cast<int>(t.as_index(f.top(static_cast<size_t>(i.arg) - 1)));
  if (exception->object) graph_break(Reason::exception_raised, exception->type->tp_name);
  throw SymbolicRaise{exception};
}

// Returns an instance; a class is called.
Value* OpcodeHandlers::as_exception(Tracer& t, Value* v, const char* error) {
  if (PyTypeObject* type = t.facts.known_type(v); type && is_exception_type(type)) v = t.call(v, {});
  if (!is_exception_type(t.facts.type_of(v)) || v->kind != ValueKind::instance)
    t.errors.raise_new(PyExc_TypeError, error);
  return v;
}

// [exception] [cause] --
Flow OpcodeHandlers::raise_varargs(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  if (i.arg == 0) {
    bool known = true;
    Value* exception = t.stack.handled_exception(&known);
    if (!known) graph_break(Reason::exception_state, "the exception that was being handled when tracing began");
    if (!exception) t.errors.raise_new(PyExc_RuntimeError, "No active exception to reraise");
    if (exception->object) graph_break(Reason::exception_raised, exception->type->tp_name);
    throw SymbolicRaise{exception};
  }
  Value* cause = i.arg == 2 ? f.pop() : nullptr;
  Value* exception = as_exception(t, f.pop(), "exceptions must derive from BaseException");
  if (cause) {
    const bool none = same_object(t.shadows, cause, t.heap.none());
    if (!none) cause = as_exception(t, cause, "exception causes must derive from BaseException");
    write_attribute(as<InstanceValue>(exception), "__cause__", cause);
    write_attribute(as<InstanceValue>(exception), "__suppress_context__", t.heap.boolean(true));
  }
  t.errors.raise(exception);
}

// exception -- exception: an exception that must not leave a generator body (3.12+; in 3.11, resume_generator handles
// it)
Flow OpcodeHandlers::stopiteration_error(Errors& errors, SymbolicFrame& f, const Instruction&) {
  if (errors.exception_matches(f.top(), PyExc_StopIteration)) f.top() = errors.error_of_generator(f.top());
  return Flow::next;
}

}  // namespace framejit::frame_hook
