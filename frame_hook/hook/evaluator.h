// frame_hook/hook/evaluator.h — executes neutral instructions natively on a live, linked frame. Internal to hook/:
// other folders use LiveFrame.
//
// In: a linked frame and its Code; it starts at the frame's next instruction. Out: how it stopped; the frame is then
// consistent, at `index`.
// Invariants: whenever other code can run, the frame's current instruction and stack top are what the interpreter would
// show. Old values are dropped only when the frame is consistent again. An instruction either completes or raises. If
// it, or a rare case of it, is not executed natively, the evaluator leaves the frame before the instruction has any
// effect.
//
// Handlers are members named after the neutral opcode, by family: evaluator_{data,operator,call,control,exception}.cpp.
#pragma once

#include "frame_hook/bytecode/code.h"
#include "frame_hook/hook/live_frame.h"
#include "frame_hook/hook/pyver.h"

namespace framejit::frame_hook {

class Evaluator {
 public:
  // What an instruction did to the flow of control.
  enum class Flow : uint8_t { next, raise, reraise, leave, returned, yielded };
  using Handler = Flow (Evaluator::*)(const Instruction&);

  Evaluator(PyThreadState* thread, Frame* frame, const Code& code) : thread_(thread), frame_(frame), code_(code) {}

  EvalResult run(const EvalLimits& limits);
  EvalResult unwind_and_run(const EvalLimits& limits);  // an error is set, raised by the frame's current instruction

 private:
  friend struct EvaluatorTable;
  EvalResult loop(int position, const EvalLimits& limits, bool may_stop_at_once);
  EvalResult stopped(EvalStop stop, int index);
  int unwind(bool is_reraise);   // position of the handler; -1: none, stack emptied

  // ---- frame access for handlers
  PyObject** locals() { return pyver::locals(frame_); }
  PyObject* peek(int depth) const { return top_[-depth]; }     // 1 = top
  void push(PyObject* value) { *top_++ = value; }              // steals
  PyObject* pop() { return *--top_; }
  void sync() { pyver::set_stack_top(frame_, top_); }
  // Pops `count` operands, pushes `result` (unless null: an error is set), then drops the operands, lowest first.
  Flow consume(int count, PyObject* result);
  Flow consume_status(int count, int status);  // for operations without a result; negative: an error is set
  Flow push_new(PyObject* value) { return value ? (push(value), Flow::next) : Flow::raise; }
  Flow push_bool(bool value) { return push_new(Py_NewRef(value ? Py_True : Py_False)); }
  Flow consume_bool(int count, int truth) {
    return consume(count, truth < 0 ? nullptr : Py_NewRef(truth ? Py_True : Py_False));
  }
  void store_local(int slot, PyObject* value);                 // steals
  Flow jump_to(const Instruction& instruction);                // polls if the instruction does
  Flow poll();
  Flow jump_on_truth(const Instruction& instruction, bool sense);
  Flow jump_on_none(const Instruction& instruction, bool sense);
  Flow jump_or_pop(const Instruction& instruction, bool sense);
  Flow binary(PyObject* (*operation)(PyObject*, PyObject*)) { return consume(2, operation(peek(2), peek(1))); }
  Flow unary(PyObject* (*operation)(PyObject*)) { return consume(1, operation(peek(1))); }
  Flow unbound(const Instruction& instruction, bool is_cell);
  Flow raise_name_error(PyObject* name);
  Flow push_with_null(const Instruction& instruction, PyObject* value);
  Flow unpack_exact(PyObject* sequence, int count);
  Flow unpack_iterable(PyObject* iterable, int before, int after);  // after < 0: exactly `before` items
  Flow replace_operands(int operand_count, PyObject* result);
  void attach_name(PyObject* name);                            // NameError.name of the raised error

#define HANDLER_run(name) Flow name(const Instruction& instruction);
#define HANDLER_leave(name)
#define NEUTRAL(name, arg, native, effect) HANDLER_##native(name)
#include "frame_hook/bytecode/opcodes.def"
#undef HANDLER_run
#undef HANDLER_leave

  PyThreadState* thread_;
  Frame* frame_;
  const Code& code_;
  PyObject** top_ = nullptr;
  int next_position_ = 0;
  PyObject* result_ = nullptr;   // of return and yield
};

// A Python function `lambda: None`, never run natively. Its RESUME does pending work where CPython exports no function
// for that.
PyObject* trivial_function();
bool make_trivial_function();

}  // namespace framejit::frame_hook
