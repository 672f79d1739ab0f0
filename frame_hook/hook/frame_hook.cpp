// frame_hook/hook/frame_hook.cpp — the one-shot hook and the standing hook.
#include "frame_hook/hook/frame_hook.h"

#include <alloca.h>

#include "frame_hook/hook/evaluator.h"
#include "frame_hook/hook/pyver.h"
#include "guards/cpython/py_ref.h"
#include "runtime/base/c_stack.h"

namespace framejit::frame_hook {
namespace {

// One armed call that waits for its frame; it lies on the C stack of the caller. The list has a thread's innermost call
// first.
struct Arming {
  PyThreadState* thread;
  PyObject* code;
  PyObject* function;       // null: any function of that code
  PyObject* options;
  FrameFiller* filler;
  Arming* below = nullptr;
  bool is_waiting = true;
};

FrameHandler* armed_handler = nullptr;
Arming* armings = nullptr;              // head of the list, all threads
EvalFunction found_in_slot = nullptr;   // what the one-shot hook replaced
FrameHandler* standing_handler = nullptr;
EvalFunction below_standing = nullptr;
bool usable = false;
std::string refusal = "not initialised";

PyObject* one_shot_hook(PyThreadState* thread, Frame* frame, int throwing);

PyObject* evaluate(EvalFunction below, PyThreadState* thread, Frame* frame, int throwing) {
  return below ? below(thread, frame, throwing) : pyver::interpret(thread, frame, throwing);
}

void arm(Arming& arming) {
  EvalFunction& slot = pyver::hook_slot(arming.thread);
  if (slot != one_shot_hook) {
    found_in_slot = slot;
    slot = one_shot_hook;
  }
  arming.below = armings;
  armings = &arming;
}

void disarm(Arming& arming) {
  if (!arming.is_waiting) return;
  arming.is_waiting = false;
  for (Arming** link = &armings; *link; link = &(*link)->below) {
    if (*link != &arming) continue;
    *link = arming.below;
    break;
  }
  EvalFunction& slot = pyver::hook_slot(arming.thread);
  if (!armings && slot == one_shot_hook) slot = found_in_slot;
}

Arming* find_arming(PyThreadState* thread, Frame* frame) {
  for (Arming* arming = armings; arming; arming = arming->below) {
    if (arming->thread != thread) continue;
    const bool fits = arming->code == reinterpret_cast<PyObject*>(pyver::code(frame)) &&
                      (!arming->function || arming->function == pyver::function(frame));
    return fits ? arming : nullptr;  // null: binding the arguments runs other Python code first; stay armed
  }
  return nullptr;
}

PyObject* give_to_handler(PyThreadState* thread, Frame* frame, EvalFunction below, FrameFiller* filler,
                          PyObject* options) {
  CodeState* state = CodeState::of(pyver::code(frame));
  if (!state) {
    PyErr_Clear();
    return filler ? nullptr : evaluate(below, thread, frame, 0);
  }
  LiveFrame live(thread, frame, *state, below);
  if (filler) return filler->fill(live);
  if (!armed_handler) return live.pass_through();
  return armed_handler->on_frame(live, options);
}

PyObject* one_shot_hook(PyThreadState* thread, Frame* frame, int throwing) {
  Arming* arming = throwing || pyver::is_generator_frame(frame) ? nullptr : find_arming(thread, frame);
  if (!arming) {
    // Another hook saved ours while we were armed, and has now written it back.
    if (!armings && pyver::hook_slot(thread) == one_shot_hook) pyver::hook_slot(thread) = found_in_slot;
    return evaluate(found_in_slot, thread, frame, throwing);
  }
  const EvalFunction below = found_in_slot;
  FrameFiller* filler = arming->filler;
  PyRef options = PyRef::borrow(arming->options);
  disarm(*arming);
  return give_to_handler(thread, frame, below, filler, options.get());
}

// ---- the standing hook

PyObject* standing_hook(PyThreadState* thread, Frame* frame, int throwing);

// A hook that was installed above ours and saved ours may now be below ours. It would then call us for the same frame
// forever.
PyObject* pass_below(PyThreadState* thread, Frame* frame, int throwing) {
  static thread_local Frame* passing = nullptr;
  if (!below_standing || passing == frame) return pyver::interpret(thread, frame, throwing);
  Frame* outer = passing;
  passing = frame;
  PyObject* result = below_standing(thread, frame, throwing);
  passing = outer;
  return result;
}

bool stack_is_low(PyThreadState* thread) { return c_stack_is_low() || pyver::stack_is_low(thread); }

// Near the end of the stack, the slot stays empty until this frame returns, so that the interpreter inlines calls
// again.
PyObject* pass_without_hook(PyThreadState* thread, Frame* frame, int throwing) {
  EvalFunction& slot = pyver::hook_slot(thread);
  const bool is_ours = slot == standing_hook;
  if (is_ours) slot = nullptr;
  PyObject* result = pyver::interpret(thread, frame, throwing);
  if (is_ours && !slot && standing_handler) slot = standing_hook;
  return result;
}

PyObject* standing_hook(PyThreadState* thread, Frame* frame, int throwing) {
  PyCodeObject* code = pyver::code(frame);
  CodeState* state = CodeState::find(code);
  if (stack_is_low(thread)) return pass_without_hook(thread, frame, throwing);
  const bool is_trivial = code == reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(trivial_function()));
  if (throwing || !standing_handler || is_trivial || (state && state->skip) || pyver::is_observed(thread, code))
    return pass_below(thread, frame, throwing);
  if (!state && !(state = CodeState::of(code))) {
    PyErr_Clear();
    return pass_below(thread, frame, throwing);
  }
  LiveFrame live(thread, frame, *state, pass_below);
  return standing_handler->on_frame(live, nullptr);
}

// ---- calls

PyObject* code_of_callable(PyObject* callable) {
  if (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  return PyFunction_Check(callable) ? PyFunction_GET_CODE(callable) : nullptr;
}

vectorcallfunc plain_vectorcall() {
  return reinterpret_cast<PyFunctionObject*>(trivial_function())->vectorcall;
}

}  // namespace

Result<void> initialise_hook() {
  static bool done = false;
  if (!done) {
    done = true;
    usable = initialise_code_states() && make_trivial_function();
    if (usable) refusal = run_self_test();
    else refusal = "co_extra is not readable";
    usable = refusal.empty();
    PyErr_Clear();
  }
  if (usable) return {};
  return Error{Reason::hook_refused,
               "framejit does not run on this CPython (" + std::string(Py_GetVersion()) + "): " + refusal};
}

const std::string& hook_refusal() { return refusal; }
const std::string& repeat_self_test(SelfTestFault fault) {
  refusal = run_self_test(fault);
  usable = refusal.empty();
  return refusal;
}
void set_frame_handler(FrameHandler* handler) { armed_handler = handler; }

namespace {

// Kept out of line: the frame of the common path must stay small, because each level of a recursion has one.
[[gnu::noinline]] PyObject* call_near_stack_end(PyObject* function, PyObject* const* arguments, size_t count_and_flag,
                                                PyObject* keyword_names) {
  if (c_stack_is_over()) {
    PyErr_SetString(PyExc_RecursionError,
                    "maximum recursion depth exceeded: the C stack of this thread is nearly used up");
    return nullptr;
  }
  armed_handler->on_stack_end(reinterpret_cast<PyCodeObject*>(code_of_callable(function)));
  return PyObject_Vectorcall(function, arguments, count_and_flag, keyword_names);
}

[[gnu::noinline]] PyObject* call_with_hook(PyObject* function, PyObject* const* arguments, size_t count_and_flag,
                                           PyObject* keyword_names, PyObject* options) {
  Arming arming{PyThreadState_Get(), code_of_callable(function), nullptr, options, nullptr};
  arm(arming);
  PyObject* result = PyObject_Vectorcall(function, arguments, count_and_flag, keyword_names);
  disarm(arming);  // no frame was pushed: wrong arguments
  return result;
}

}  // namespace

PyObject* call_armed(PyObject* function, PyObject* const* arguments, size_t count_and_flag, PyObject* keyword_names,
                     PyObject* options) {
  if (!usable || !code_of_callable(function) || !armed_handler)
    return PyObject_Vectorcall(function, arguments, count_and_flag, keyword_names);
  if (stack_is_low(PyThreadState_Get())) return call_near_stack_end(function, arguments, count_and_flag, keyword_names);
  return call_with_hook(function, arguments, count_and_flag, keyword_names, options);
}

PyObject* call_into(PyObject* function, FrameFiller& filler) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const int count = code->co_argcount + code->co_kwonlyargcount;
  if (!usable) {
    PyErr_SetString(PyExc_SystemError, "framejit: cannot call into this function");
    return nullptr;
  }
  auto** arguments = static_cast<PyObject**>(alloca((static_cast<size_t>(count) + 1) * sizeof(PyObject*)));
  arguments[0] = nullptr;
  for (int i = 0; i < count; i++) arguments[i + 1] = Py_None;
  PyRef names;
  if (code->co_kwonlyargcount)
    names = PyRef::steal(PyTuple_GetSlice(code->co_localsplusnames, code->co_argcount, count));
  if (code->co_kwonlyargcount && !names) return nullptr;
  Arming arming{PyThreadState_Get(), reinterpret_cast<PyObject*>(code), function, nullptr, &filler};
  arm(arming);
  const size_t positional = static_cast<size_t>(code->co_argcount) | PY_VECTORCALL_ARGUMENTS_OFFSET;
  PyObject* result = plain_vectorcall()(function, arguments + 1, positional, names.get());
  disarm(arming);
  return result;
}

bool install_standing_hook(FrameHandler& handler) {
  if (!usable) return false;
  PyThreadState* thread = PyThreadState_Get();
  standing_handler = &handler;
  const EvalFunction now = _PyInterpreterState_GetEvalFrameFunc(thread->interp);
  if (now == standing_hook) return true;
  below_standing = now == _PyEval_EvalFrameDefault || now == one_shot_hook ? nullptr : now;
  _PyInterpreterState_SetEvalFrameFunc(thread->interp, standing_hook);
  return true;
}

void remove_standing_hook() {
  standing_handler = nullptr;
  PyThreadState* thread = PyThreadState_Get();
  if (_PyInterpreterState_GetEvalFrameFunc(thread->interp) != standing_hook) return;
  _PyInterpreterState_SetEvalFrameFunc(thread->interp, below_standing ? below_standing : _PyEval_EvalFrameDefault);
  below_standing = nullptr;
}

bool standing_hook_is_on_top() {
  return _PyInterpreterState_GetEvalFrameFunc(PyThreadState_Get()->interp) == standing_hook;
}

}  // namespace framejit::frame_hook
