// frame_hook/hook/evaluator.cpp — the loop: fetch, dispatch, stop conditions, native unwinding.
#include "frame_hook/hook/evaluator.h"

namespace framejit::frame_hook {

struct EvaluatorTable {
  static constexpr Evaluator::Handler kHandlers[] = {
#define HANDLER_run(name) &Evaluator::name,
#define HANDLER_leave(name) nullptr,
#define NEUTRAL(name, arg, native, effect) HANDLER_##native(name)
#include "frame_hook/bytecode/opcodes.def"
#undef HANDLER_run
#undef HANDLER_leave
  };
};

EvalResult Evaluator::run(const EvalLimits& limits) {
  top_ = pyver::stack_top(frame_);
  return loop(code_.position_at(pyver::next_index(frame_)), limits, false);
}

EvalResult Evaluator::unwind_and_run(const EvalLimits& limits) {
  top_ = pyver::stack_top(frame_);
  const int handler = unwind(false);
  if (handler < 0) return {EvalStop::raised};
  if (pyver::is_observed(thread_, code_.code)) return stopped(EvalStop::observed, code_.instructions[handler].index);
  return loop(handler, limits, true);
}

EvalResult Evaluator::stopped(EvalStop stop, int index) {
  sync();
  pyver::set_next(frame_, index);
  return {stop, nullptr, index, 0};
}

EvalResult Evaluator::loop(int position, const EvalLimits& limits, bool may_stop_at_once) {
  if (position < 0) return {EvalStop::left, nullptr, pyver::next_index(frame_), 0};
  const Instruction* const instructions = code_.instructions.data();
  int64_t budget = limits.budget;
  uint64_t executed = 0;
  EvalResult result{EvalStop::left};
  for (;; executed++) {
    const Instruction& instruction = instructions[position];
    if (!instruction.has(Instruction::kSecondHalf)) {
      const bool is_stop = limits.stop_units && (executed || may_stop_at_once) && limits.stop_units[instruction.index];
      if (budget-- == 0 || is_stop) {
        result = stopped(EvalStop::reached, instruction.index);
        break;
      }
    }
    const Handler handler = EvaluatorTable::kHandlers[static_cast<size_t>(instruction.op)];
    if (!handler) {
      result = stopped(EvalStop::left, instruction.index);
      break;
    }
    pyver::set_current(frame_, instruction.opcode_index);
    sync();
    next_position_ = position + 1;
    const Flow flow = (this->*handler)(instruction);
    sync();
    if (flow == Flow::next) [[likely]] {
      position = next_position_;
      if (!instruction.has(Instruction::kPolls) || !pyver::is_observed(thread_, code_.code)) continue;
      result = stopped(EvalStop::observed, instructions[position].index);
      break;
    }
    if (flow == Flow::raise || flow == Flow::reraise) {
      position = unwind(flow == Flow::reraise);
      if (position >= 0 && !pyver::is_observed(thread_, code_.code)) continue;
      result = position < 0 ? EvalResult{EvalStop::raised} : stopped(EvalStop::observed, instructions[position].index);
      break;
    }
    if (flow == Flow::leave) result = stopped(EvalStop::left, instruction.index);
    else if (flow == Flow::returned) result = {EvalStop::returned, result_};
    else result = {EvalStop::yielded, result_, instruction.opcode_index, instruction.arg};
    break;
  }
  hook_stats().instructions += executed;
  return result;
}

// The frame's current index says where the error was raised. A re-raise adds no traceback entry. It may already have
// set the current index back to where the error was raised; its handler is still looked up at the RERAISE itself.
int Evaluator::unwind(bool is_reraise) {
  hook_stats().unwinds++;
  sync();
  int raised_at = pyver::current_index(frame_);
  const int lasti = raised_at;
  if (is_reraise) raised_at = code_.instructions[next_position_ - 1].opcode_index;
  else if (!pyver::is_incomplete(frame_)) pyver::add_traceback(thread_);
  const ExceptionRange* range = code_.find_handler(raised_at);
  PyObject** keep = pyver::stack_base(frame_) + (range ? range->depth : 0);
  while (top_ > keep) {
    PyObject* value = pop();
    sync();
    Py_XDECREF(value);
  }
  if (!range) return -1;
  if (range->push_lasti) push(PyLong_FromLong(lasti));
  push(pyver::take_exception());
  sync();
  return range->target_position;
}

Evaluator::Flow Evaluator::consume(int count, PyObject* result) {
  PyObject** base = top_ - count;
  if (count == 0) return push_new(result);
  PyObject* lowest = base[0];
  top_ = base;
  if (result) *top_++ = result;
  sync();
  Py_XDECREF(lowest);
  for (int i = 1; i < count; i++) Py_XDECREF(base[i]);
  return result ? Flow::next : Flow::raise;
}

Evaluator::Flow Evaluator::consume_status(int count, int status) {
  PyObject** base = top_ - count;
  top_ = base;
  sync();
  for (int i = 0; i < count; i++) Py_XDECREF(base[i]);
  return status < 0 ? Flow::raise : Flow::next;
}

void Evaluator::store_local(int slot, PyObject* value) {
  PyObject* old = locals()[slot];
  locals()[slot] = value;
  sync();
  Py_XDECREF(old);
}

Evaluator::Flow Evaluator::poll() {
  if (!pyver::breaker_is_set(thread_)) return Flow::next;
  hook_stats().polls++;
  sync();
  return pyver::poll(thread_, trivial_function()) ? Flow::next : Flow::raise;
}

namespace {
PyObject* the_trivial_function = nullptr;
}

PyObject* trivial_function() { return the_trivial_function; }

bool make_trivial_function() {
  if (the_trivial_function) return true;
  PyObject* names = PyDict_New();
  if (!names) return false;
  PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins());
  PyObject* done = PyRun_String("f = lambda: None", Py_file_input, names, names);
  the_trivial_function = Py_XNewRef(PyDict_GetItemString(names, "f"));
  Py_XDECREF(done);
  Py_DECREF(names);
  return the_trivial_function != nullptr;
}

}  // namespace framejit::frame_hook
