// tests/unit/frame_hook/hooktest_module.cpp — the torch-free extension _framejit_hooktest: hook, evaluator and decoder
// for Python tests.
//
// mark() tells the test handler what to do with frames of a code object; install() attaches the handler to the standing
// hook, armed() makes armed calls with it. Importing it honours FRAMEJIT_STRESS.
#include <Python.h>

#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "fake_recording.h"
#include "frame_hook/bytecode/opcode_rows.h"
#include "frame_hook/hook/frame_hook.h"
#include "frame_hook/hook/stress.h"
#include "frame_hook/resume/stats.h"
#include "frame_hook/resume/trace_all.h"
#include "guards/cpython/py_ref.h"

using namespace framejit;
using namespace framejit::frame_hook;

namespace {

enum class Mode : int { pass, run, step, give, replace, count };

// What to do with frames of one code object.
struct Mark : EntryBase {
  Mode mode = Mode::pass;
  int stop_at = -1;          // hand over before this unit, at its `arrival`-th time
  long arrival = 1, arrivals = 0;
  long budget = -1;
  long hits = 0;
  PyRef value;               // give: the result. replace: (next index, {slot: object or None to unbind}, [stack])
};

Mark* mark_of(CodeState* state) { return state ? static_cast<Mark*>(state->note.get()) : nullptr; }

class TestHandler : public FrameHandler {
 public:
  PyObject* on_frame(LiveFrame& frame, PyObject* options) override {
    Mark* mark = mark_of(&frame.state());
    last_options = PyRef::borrow(options);
    if (mark) mark->hits++;
    if (!mark || mark->mode == Mode::pass || mark->mode == Mode::count || frame.is_observed() || !frame.decoded())
      return frame.pass_through();
    if (mark->mode == Mode::give) {
      if (frame.is_generator() || frame.decoded()->is_generator_like()) return frame.pass_through();
      return frame.return_value(Py_NewRef(mark->value.get()));
    }
    if (!frame.enter()) return nullptr;
    if (mark->mode == Mode::replace && !replace(frame, *mark)) return frame.raise();
    return frame.conclude(run(frame, *mark));
  }

  PyRef last_options;

 private:
  static bool replace(LiveFrame& frame, Mark& mark) {
    PyObject *slots, *values;
    int next;
    if (!PyArg_ParseTuple(mark.value.get(), "iO!O!", &next, &PyDict_Type, &slots, &PyList_Type, &values)) return false;
    std::vector<PyObject*> locals, stack;
    for (PyObject* local : frame.locals()) locals.push_back(Py_XNewRef(local));
    PyObject *slot, *value;
    for (Py_ssize_t at = 0; PyDict_Next(slots, &at, &slot, &value);) {
      PyObject*& local = locals[static_cast<size_t>(PyLong_AsLong(slot))];
      Py_XDECREF(local);
      local = value == Py_None ? nullptr : Py_NewRef(value);
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values); i++) stack.push_back(Py_NewRef(PyList_GET_ITEM(values, i)));
    frame.replace(locals, stack, next);
    return true;
  }

  static EvalResult run(LiveFrame& frame, Mark& mark) {
    if (mark.mode == Mode::step) {
      EvalResult result{EvalStop::reached};
      while (result.stop == EvalStop::reached) result = frame.run_one();
      return result;
    }
    if (mark.stop_at < 0) return frame.run({nullptr, mark.budget});
    std::vector<uint8_t> stops(static_cast<size_t>(frame.decoded()->unit_count) + 1, 0);
    stops[static_cast<size_t>(mark.stop_at)] = 1;
    EvalResult result{EvalStop::reached, nullptr, frame.next_index(), 0};
    for (;;) {
      if (result.stop != EvalStop::reached) return result;
      if (result.index == mark.stop_at && ++mark.arrivals == mark.arrival) return result;
      result = frame.run({stops.data(), -1});
    }
  }
};

TestHandler& handler() {
  static auto* the = new TestHandler;
  return *the;
}

PyCodeObject* code_argument(PyObject* object) {
  if (PyMethod_Check(object)) object = PyMethod_GET_FUNCTION(object);
  if (PyFunction_Check(object)) object = PyFunction_GET_CODE(object);
  if (PyCode_Check(object)) return reinterpret_cast<PyCodeObject*>(object);
  PyErr_SetString(PyExc_TypeError, "code or function expected");
  return nullptr;
}

PyObject* py_mark(PyObject*, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"code", "mode", "value", "stop_at", "arrival", "budget", nullptr};
  PyObject *object, *value = nullptr;
  int mode = static_cast<int>(Mode::run), stop_at = -1;
  long arrival = 1, budget = -1;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|iOill", const_cast<char**>(names), &object, &mode, &value,
                                   &stop_at, &arrival, &budget))
    return nullptr;
  PyCodeObject* code = code_argument(object);
  CodeState* state = code ? CodeState::of(code) : nullptr;
  if (!state) return nullptr;
  auto mark = std::make_unique<Mark>();
  mark->mode = static_cast<Mode>(mode);
  mark->stop_at = stop_at;
  mark->arrival = arrival;
  mark->budget = budget;
  mark->value = PyRef::borrow(value);
  state->clear();  // the previous mark, which a running frame may still read
  state->note = std::move(mark);
  Py_RETURN_NONE;
}

PyObject* py_counts(PyObject*, PyObject* object) {
  PyCodeObject* code = code_argument(object);
  if (!code) return nullptr;
  Mark* mark = mark_of(CodeState::find(code));
  return mark ? Py_BuildValue("ll", mark->hits, mark->arrivals) : Py_BuildValue("ll", -1L, -1L);
}

PyObject* py_install(PyObject*, PyObject*) { return PyBool_FromLong(install_standing_hook(handler())); }
PyObject* py_remove(PyObject*, PyObject*) {
  remove_standing_hook();
  Py_RETURN_NONE;
}
PyObject* py_on_top(PyObject*, PyObject*) { return PyBool_FromLong(standing_hook_is_on_top()); }

PyObject* py_armed(PyObject*, PyObject* arguments) {
  PyObject *function, *options = nullptr;
  if (!PyArg_ParseTuple(arguments, "O|O", &function, &options)) return nullptr;
  set_frame_handler(&handler());
  return make_armed_call(function, options);
}
PyObject* py_last_options(PyObject*, PyObject*) {
  PyRef options = std::move(handler().last_options);
  return options ? options.release() : Py_NewRef(Py_None);
}

// call_into(function, locals by name, stack, next index, budget): resumes an inlined callee as a driver does.
class TestFiller : public FrameFiller {
 public:
  PyObject *locals, *values;
  int next;
  long budget;
  PyObject* fill(LiveFrame& frame) override {
    if (!frame.enter()) return nullptr;
    std::vector<PyObject*> slots(frame.locals().size(), nullptr), stack;
    for (size_t slot = 0; slot < slots.size(); slot++) {
      PyObject* value = PyDict_GetItem(locals, frame.decoded()->local_name(static_cast<int>(slot)));
      slots[slot] = Py_XNewRef(value);
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values); i++) stack.push_back(Py_NewRef(PyList_GET_ITEM(values, i)));
    frame.replace(slots, stack, next);
    return frame.conclude(frame.run({nullptr, budget}));
  }
};

PyObject* py_call_into(PyObject*, PyObject* arguments) {
  TestFiller filler;
  PyObject* function;
  filler.budget = -1;
  if (!PyArg_ParseTuple(arguments, "O!O!O!i|l", &PyFunction_Type, &function, &PyDict_Type, &filler.locals, &PyList_Type,
                        &filler.values, &filler.next, &filler.budget))
    return nullptr;
  return call_into(function, filler);
}

// A second hook that comes and goes as torch._dynamo's does: it saves the current one, chains to it, and writes it
// back.
_PyFrameEvalFunction below_other = nullptr;
long other_frames = 0;
PyObject* other_hook(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing) {
  other_frames++;
  return below_other(thread, frame, throwing);
}
PyObject* py_other(PyObject*, PyObject* on) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (PyObject_IsTrue(on)) {
    below_other = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    _PyInterpreterState_SetEvalFrameFunc(interpreter, other_hook);
  } else {
    _PyInterpreterState_SetEvalFrameFunc(interpreter, below_other);
  }
  return PyLong_FromLong(std::exchange(other_frames, 0));
}

PyObject* py_stress(PyObject*, PyObject* arguments) {
  unsigned long long seed;
  int longest = 40;
  if (!PyArg_ParseTuple(arguments, "K|i", &seed, &longest)) return nullptr;
  if (seed == 0) remove_standing_hook();
  return PyBool_FromLong(seed != 0 && start_stress(seed, longest));
}

// trace_all(on): every frame is traced, with a torch that nothing imports.
PyObject* py_trace_all(PyObject*, PyObject* on) {
  if (!PyObject_IsTrue(on)) {
    remove_standing_hook();
    Py_RETURN_FALSE;
  }
  static fake::FakeFrontend frontend;
  if (!tensor_frontend()) {
    fake::make_module();
    set_tensor_frontend(&frontend);
  }
  return PyBool_FromLong(start_trace_all());
}

// What was traced since the last call: instructions that segments replaced, instructions left to native execution,
// breaks and defects by reason.
PyObject* py_trace_stats(PyObject*, PyObject*) {
  Stats& s = stats();
  const PyRef breaks = PyRef::steal(PyDict_New()), fallbacks = PyRef::steal(PyDict_New());
  for (const auto& [name, count] : s.break_reasons)
    PyDict_SetItemString(breaks.get(), name.c_str(), PyRef::steal(PyLong_FromUnsignedLongLong(count)).get());
  for (const auto& [name, count] : s.fallback_reasons)
    PyDict_SetItemString(fallbacks.get(), name.c_str(), PyRef::steal(PyLong_FromUnsignedLongLong(count)).get());
  PyObject* result = Py_BuildValue("{sKsKsKsKsOsO}", "segments", s.segment_instructions, "natively",
                                   hook_stats().instructions, "traced", s.traced_instructions, "hand_overs",
                                   hook_stats().hand_overs, "breaks", breaks.get(), "fallbacks", fallbacks.get());
  s = Stats{};
  hook_stats() = HookStats{};
  return result;
}

PyObject* py_stats(PyObject*, PyObject*) {
  HookStats& s = hook_stats();
  PyObject* stats = Py_BuildValue("{sKsKsKsKsKsKsKsKsK}", "frames", s.frames, "instructions", s.instructions, "returns",
                                  s.returns, "raises", s.raises, "yields", s.yields, "hand_overs", s.hand_overs,
                                  "unwinds", s.unwinds, "polls", s.polls, "passed", s.passed);
  s = HookStats{};
  return stats;
}

PyObject* py_reset(PyObject*, PyObject*) {
  reset_code_states();
  Py_RETURN_NONE;
}
PyObject* py_state_count(PyObject*, PyObject*) {
  size_t count = 0;
  for_each_code_state([&](CodeState&) { ++count; });
  return PyLong_FromSize_t(count);
}

PyObject* py_rows(PyObject*, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  const OpcodeRow* row = text ? find_row(text) : nullptr;
  if (!text) return nullptr;
  if (!row) Py_RETURN_NONE;
  return Py_BuildValue("iss", row->number, name_of(row->op), effect_of(row->op));
}

PyObject* py_decode(PyObject*, PyObject* object) {
  PyCodeObject* code = code_argument(object);
  std::shared_ptr<const Code> decoded = code ? Code::decode(code) : nullptr;
  PyObject* list = decoded ? PyList_New(0) : nullptr;
  for (size_t position = 0; list && position < decoded->instructions.size(); position++) {
    const Instruction& i = decoded->instructions[position];
    const SourceSpan span = decoded->span(i);
    PyRef live = PyRef::steal(PyList_New(0));
    for (int slot = 0; slot < decoded->local_count; slot++)
      if (decoded->is_live(static_cast<int>(position), slot)) PyList_Append(live.get(), decoded->local_name(slot));
    PyRef row = PyRef::steal(Py_BuildValue(
        "{sssisisisisisisisOsOs(iiii)sOsi}", "op", name_of(i.op), "arg", i.arg, "flags", i.flags, "index", i.index,
        "opcode_index", i.opcode_index, "next_index", i.next_index, "target", i.target, "line", i.line, "object",
        i.object ? i.object : Py_None, "live", live.get(), "span", span.line, span.end_line, span.column,
        span.end_column, "native", runs_natively(i.op) ? Py_True : Py_False, "raw", i.raw));
    if (!row || PyList_Append(list, row.get()) < 0) Py_CLEAR(list);
  }
  return list;
}

PyObject* py_handlers(PyObject*, PyObject* object) {
  PyCodeObject* code = code_argument(object);
  std::shared_ptr<const Code> decoded = code ? Code::decode(code) : nullptr;
  PyObject* list = decoded ? PyList_New(0) : nullptr;
  for (size_t k = 0; list && k < decoded->exception_table.size(); k++) {
    const ExceptionRange& range = decoded->exception_table[k];
    PyRef row =
        PyRef::steal(Py_BuildValue("iiiii", range.start, range.end, range.target, range.depth, range.push_lasti));
    if (!row || PyList_Append(list, row.get()) < 0) Py_CLEAR(list);
  }
  return list;
}

PyObject* py_text(PyObject*, PyObject* object) {
  PyCodeObject* code = code_argument(object);
  std::shared_ptr<const Code> decoded = code ? Code::decode(code) : nullptr;
  return decoded ? PyUnicode_FromString(to_text(*decoded).c_str()) : nullptr;
}

PyCFunction with_keywords(PyCFunctionWithKeywords function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// self_test(fault): why the hook is refused, or ""; a fault is a name below, "" for none.
PyObject* py_self_test(PyObject*, PyObject* name) {
  static constexpr const char* kFaults[] = {"", "function", "code", "globals", "locals", "stack", "slot", "result"};
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  for (size_t fault = 0; fault < std::size(kFaults); ++fault)
    if (std::string_view(kFaults[fault]) == text)
      return PyUnicode_FromString(repeat_self_test(static_cast<SelfTestFault>(fault)).c_str());
  return PyErr_Format(PyExc_ValueError, "no fault: %s", text);
}

PyMethodDef methods[] = {{"self_test", py_self_test, METH_O, nullptr},
                         {"mark", with_keywords(py_mark), METH_VARARGS | METH_KEYWORDS, nullptr},
                         {"counts", py_counts, METH_O, nullptr},
                         {"install", py_install, METH_NOARGS, nullptr},
                         {"remove", py_remove, METH_NOARGS, nullptr},
                         {"on_top", py_on_top, METH_NOARGS, nullptr},
                         {"armed", py_armed, METH_VARARGS, nullptr},
                         {"last_options", py_last_options, METH_NOARGS, nullptr},
                         {"call_into", py_call_into, METH_VARARGS, nullptr},
                         {"other", py_other, METH_O, nullptr},
                         {"stress", py_stress, METH_VARARGS, nullptr},
                         {"stats", py_stats, METH_NOARGS, nullptr},
                         {"trace_all", py_trace_all, METH_O, nullptr},
                         {"trace_stats", py_trace_stats, METH_NOARGS, nullptr},
                         {"reset", py_reset, METH_NOARGS, nullptr},
                         {"state_count", py_state_count, METH_NOARGS, nullptr},
                         {"row", py_rows, METH_O, nullptr},
                         {"decode", py_decode, METH_O, nullptr},
                         {"handlers", py_handlers, METH_O, nullptr},
                         {"text", py_text, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_framejit_hooktest", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__framejit_hooktest() {
  PyObject* made = PyModule_Create(&module);
  if (!made) return nullptr;
  const Result<void> ready = initialise_hook();
  if (!ready.ok()) {
    PyErr_SetString(PyExc_ImportError, ready.error().message.c_str());
    Py_DECREF(made);
    return nullptr;
  }
  const char* const names[] = {"PASS", "RUN", "STEP", "GIVE", "REPLACE", "COUNT"};
  for (int mode = 0; mode < 6; mode++) PyModule_AddIntConstant(made, names[mode], mode);
  start_stress_from_environment();
  return made;
}
