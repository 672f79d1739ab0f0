// frame_hook/hook/self_test.cpp — see self_test.h. Uses its own one-shot hook, since nothing else may be armed before
// it passes.
#include "frame_hook/hook/self_test.h"

#include "frame_hook/bytecode/opcode_rows.h"
#include "frame_hook/hook/evaluator.h"
#include "frame_hook/hook/live_frame.h"
#include "frame_hook/hook/pyver.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {
namespace {

constexpr const char* kProbe = R"(
def probe(a, b, *rest, key=3):
    total = [a]
    for n in range(b):
        try:
            total.append(n // (n - 1))
        except ZeroDivisionError as error:
            total.append(str(error))
    return total, rest, key, len(total)
)";

struct Probe {
  PyObject* function = nullptr;
  PyObject* arguments[4] = {};
  int stop_at = -1;        // hand over after this many instructions; negative: run to the end
  SelfTestFault fault = SelfTestFault::none;
  bool was_seen = false, ended_natively = false;
  std::string mismatch;
};
Probe* probe = nullptr;    // GIL; only during run_self_test
EvalFunction found_before_probe = nullptr;

// The frame as it appears with a test's fault in one of its fields.
Frame* seen(Frame* frame, SelfTestFault field) {
  return probe->fault == field ? reinterpret_cast<Frame*>(reinterpret_cast<PyObject**>(frame) + 1) : frame;
}

std::string compare_fresh_frame(Frame* frame) {
  using Fault = SelfTestFault;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(probe->function));
  if (pyver::function(seen(frame, Fault::function)) != probe->function) return "the function of a frame";
  if (pyver::code(seen(frame, Fault::code)) != code) return "the code of a frame";
  if (pyver::globals(seen(frame, Fault::globals)) != PyFunction_GET_GLOBALS(probe->function))
    return "the globals of a frame";
  if (!PyDict_Check(pyver::builtins(frame))) return "the builtins of a frame";
  if (pyver::next_index(frame) != 0) return "the instruction of a frame";
  if (pyver::is_generator_frame(frame)) return "the owner of a frame";
  if (pyver::stack_top(seen(frame, Fault::stack)) != pyver::stack_base(frame)) return "the stack top of a frame";
  PyObject** locals = pyver::locals(seen(frame, Fault::locals));
  if (locals[0] != probe->arguments[0] || locals[1] != probe->arguments[1]) return "the locals of a frame";
  return "";
}

PyObject* probe_hook(PyThreadState* thread, Frame* frame, int throwing) {
  pyver::hook_slot(thread) = found_before_probe;
  probe->was_seen = true;
  probe->mismatch = throwing ? "throwing" : compare_fresh_frame(frame);
  CodeState* state = probe->mismatch.empty() ? CodeState::of(pyver::code(frame)) : nullptr;
  if (!state) return pyver::interpret(thread, frame, throwing);
  LiveFrame live(thread, frame, *state, nullptr);
  if (!live.enter()) return nullptr;
  EvalResult result = live.run({nullptr, probe->stop_at});
  if (probe->fault == SelfTestFault::result && result.stop == EvalStop::returned)
    Py_SETREF(result.value, Py_NewRef(Py_None));
  if (result.stop == EvalStop::reached) {
    if (!pyver::is_incomplete(frame) && !pyver::agrees_with_api(frame))
      probe->mismatch = "the public readers of a frame";
    PyFrameObject* top = PyThreadState_GetFrame(thread);
    PyCodeObject* shown = top ? PyFrame_GetCode(top) : nullptr;
    if (!pyver::is_incomplete(frame) && shown != pyver::code(frame)) probe->mismatch = "the current frame of a thread";
    Py_XDECREF(shown);
    Py_XDECREF(top);
  }
  probe->ended_natively = result.stop == EvalStop::returned;
  return live.conclude(result);
}

PyRef call_probe(bool hooked) {
  PyThreadState* thread = PyThreadState_Get();
  EvalFunction& slot = pyver::hook_slot(thread);
  found_before_probe = slot;
  if (hooked) slot = probe_hook;
  PyRef result = PyRef::steal(PyObject_Vectorcall(probe->function, probe->arguments, 4, nullptr));
  if (slot == probe_hook) slot = found_before_probe;
  return result;
}

// Reading the slot through its address and through the API must agree before anything is stored there directly.
bool slot_agrees(bool displaced) {
  PyThreadState* thread = PyThreadState_Get();
  const EvalFunction now = _PyInterpreterState_GetEvalFrameFunc(thread->interp);
  const EvalFunction* slot = &pyver::hook_slot(thread) + (displaced ? 1 : 0);
  const EvalFunction read = *slot;
  if (read != now && !(read == nullptr && now == _PyEval_EvalFrameDefault)) return false;
  _PyInterpreterState_SetEvalFrameFunc(thread->interp, probe_hook);
  const bool agrees = *static_cast<const volatile EvalFunction*>(slot) == probe_hook;
  _PyInterpreterState_SetEvalFrameFunc(thread->interp, now);
  return agrees;
}

std::string compare_runs() {
  PyRef plain = call_probe(false);
  if (!plain) return "the probe does not run";
  for (probe->stop_at = -1; probe->stop_at < 400; probe->stop_at++) {
    PyRef result = call_probe(true);
    if (!probe->was_seen) return "the hook is not called";
    if (!probe->mismatch.empty()) return probe->mismatch;
    if (!result) return "a native run raises";
    if (PyObject_RichCompareBool(result.get(), plain.get(), Py_EQ) != 1) return "a native run gives another result";
    if (probe->stop_at == -1 && !probe->ended_natively) return "a native run does not reach the end";
    if (probe->stop_at >= 0 && probe->ended_natively) return "";
  }
  return "the probe does not end";
}

}  // namespace

std::string run_self_test(SelfTestFault fault) {
  if ((Py_Version >> 16) != (PY_VERSION_HEX >> 16)) return "built for Python " PY_VERSION;
  if (PyThreadState_Get()->interp != PyInterpreterState_Main()) return "not the main interpreter";
  if (!slot_agrees(fault == SelfTestFault::slot)) return "the place of the evaluator in the interpreter state";
  PyRef names = PyRef::steal(PyDict_New());
  if (!names || PyDict_SetItemString(names.get(), "__builtins__", PyEval_GetBuiltins()) < 0) return "out of memory";
  PyRef done = PyRef::steal(PyRun_String(kProbe, Py_file_input, names.get(), names.get()));
  Probe here;
  here.fault = fault;
  here.function = PyDict_GetItemString(names.get(), "probe");
  if (!here.function) return "the probe does not compile";
  PyRef numbers[] = {PyRef::steal(PyLong_FromLong(1000)), PyRef::steal(PyLong_FromLong(3)),
                     PyRef::steal(PyLong_FromLong(2000)), PyRef::steal(PyLong_FromLong(3000))};
  for (int i = 0; i < 4; i++) here.arguments[i] = numbers[i].get();
  probe = &here;
  std::string mismatch = compare_runs();
  probe = nullptr;
  PyErr_Clear();
  return mismatch;
}

}  // namespace framejit::frame_hook
