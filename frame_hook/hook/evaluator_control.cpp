// frame_hook/hook/evaluator_control.cpp — jumps, iteration, return, generators.
#include "frame_hook/hook/evaluator.h"

namespace framejit::frame_hook {

using Flow = Evaluator::Flow;

Flow Evaluator::jump_to(const Instruction& i) {
  next_position_ = i.target_position;
  return i.has(Instruction::kPolls) ? poll() : Flow::next;
}

Flow Evaluator::jump(const Instruction& i) { return jump_to(i); }

Flow Evaluator::jump_on_truth(const Instruction& i, bool sense) {
  PyObject* value = peek(1);
  const int truth = value == Py_True ? 1 : value == Py_False ? 0 : PyObject_IsTrue(value);
  if (consume_status(1, truth) == Flow::raise) return Flow::raise;
  return (truth != 0) == sense ? jump_to(i) : Flow::next;
}
Flow Evaluator::pop_jump_if_true(const Instruction& i) { return jump_on_truth(i, true); }
Flow Evaluator::pop_jump_if_false(const Instruction& i) { return jump_on_truth(i, false); }

Flow Evaluator::jump_on_none(const Instruction& i, bool sense) {
  const bool is_none = peek(1) == Py_None;
  consume_status(1, 0);
  return is_none == sense ? jump_to(i) : Flow::next;
}
Flow Evaluator::pop_jump_if_none(const Instruction& i) { return jump_on_none(i, true); }
Flow Evaluator::pop_jump_if_not_none(const Instruction& i) { return jump_on_none(i, false); }

Flow Evaluator::jump_or_pop(const Instruction& i, bool sense) {
  const int truth = PyObject_IsTrue(peek(1));
  if (truth < 0) return Flow::raise;
  return (truth != 0) == sense ? jump_to(i) : consume_status(1, 0);
}
Flow Evaluator::jump_if_true_or_pop(const Instruction& i) { return jump_or_pop(i, true); }
Flow Evaluator::jump_if_false_or_pop(const Instruction& i) { return jump_or_pop(i, false); }

Flow Evaluator::get_iter(const Instruction&) { return unary(PyObject_GetIter); }

Flow Evaluator::for_iter(const Instruction& i) {
  PyObject* iterator = peek(1);
  if (PyObject* item = Py_TYPE(iterator)->tp_iternext(iterator)) return push_new(item);
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return Flow::raise;
    PyErr_Clear();
  }
  next_position_ = i.target_position;
  return consume_status(1, 0);
}

Flow Evaluator::return_value(const Instruction&) {
  result_ = pop();
  return Flow::returned;
}
Flow Evaluator::return_const(const Instruction& i) {
  result_ = Py_NewRef(i.object);
  return Flow::returned;
}

// ---- generators

Flow Evaluator::yield_value(const Instruction&) {
  if (!pyver::is_generator_frame(frame_)) return Flow::leave;
  result_ = pop();
  return Flow::yielded;
}

Flow Evaluator::get_yield_from_iter(const Instruction&) {
  PyObject* iterable = peek(1);
  if (PyGen_CheckExact(iterable)) return Flow::next;
  return PyCoro_CheckExact(iterable) ? Flow::leave : unary(PyObject_GetIter);
}

Flow Evaluator::send(const Instruction& i) {
  PyObject *value = peek(1), *receiver = peek(2), *result = nullptr;
  if (!PyGen_CheckExact(receiver) && !PyCoro_CheckExact(receiver)) return Flow::leave;
  const PySendResult status = PyIter_Send(receiver, value, &result);
  if (status == PYGEN_ERROR) return consume(1, nullptr);
  if (status == PYGEN_NEXT) return consume(1, result);
  next_position_ = i.target_position;
  return consume(i.has(Instruction::kReplacesReceiver) ? 2 : 1, result);
}

Flow Evaluator::end_send(const Instruction&) {
  PyObject* result = Py_NewRef(peek(1));
  return consume(2, result);
}

}  // namespace framejit::frame_hook
