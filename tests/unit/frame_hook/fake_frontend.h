// tests/unit/frame_hook/fake_frontend.h — traces Python source with the fake torch of fake_torch.h.
//
// trial("def f(x): return x + 1", "torch.tensor('x', 2)") compiles the source, evaluates the arguments, traces f from
// its first instruction, and returns what tests look at as text. run_eagerly() does the same with plain Python.
#pragma once

#include <gtest/gtest.h>

#include "fake_recording.h"
#include "frame_hook/trace/machine/trace_frame.h"

namespace framejit::frame_hook::fake {

// The repr that a value would have.
inline std::string text_of(Value* v) {
  auto joined = [](const std::vector<Value*>& items) {
    std::string out;
    for (Value* item : items) out += (out.empty() ? "" : ", ") + (item ? text_of(item) : "<unread>");
    return out;
  };
  if (!v) return "<unbound>";
  switch (v->kind) {
    case ValueKind::null: return "<NULL>";
    case ValueKind::tensor:
      return text_of(as<TensorValue>(v)->traced ? as<TensorValue>(v)->traced.get() : v->object.get());
    case ValueKind::sym_int: return as<SymIntValue>(v)->expr.text();
    case ValueKind::tuple:
      if (v->object) break;
      return "(" + joined(as<TupleValue>(v)->items) + (as<TupleValue>(v)->items.size() == 1 ? ",)" : ")");
    case ValueKind::list:
      if (v->object && !v->mutated) break;
      return "[" + joined(as<ListValue>(v)->items) + "]";
    case ValueKind::set:
      if (v->object && !v->mutated) break;
      return "{" + joined(as<SetValue>(v)->items) + "}";
    case ValueKind::dict: {
      if (v->object && !v->mutated) break;
      std::string out;
      if (InstanceValue* owner = as<DictValue>(v)->owner) {
        for (const auto& [name, attribute] : owner->attrs)
          if (attribute) out += (out.empty() ? "" : ", ") + text_of(name.get()) + ": " + text_of(attribute);
      }
      for (const DictEntry& e : as<DictValue>(v)->entries)
        out += (out.empty() ? "" : ", ") + text_of(e.key) + ": " + text_of(e.value);
      return "{" + out + "}";
    }
    default: break;
  }
  if (v->object) return text_of(v->object.get());
  return std::string("<") + (v->type ? v->type->tp_name : "?") + ">";
}

struct Trial {
  PyRef globals, function, args;
  FrameTrace trace;
  std::string returned;                 // text; empty when it broke
  std::vector<std::string> ops, lines, guards;
  std::string reason, detail, where;    // of the break
  std::vector<std::string> exit_lines;  // "f:3" per frame of the exit, outermost first

  bool has_guard(const std::string& text) const {
    return std::find(guards.begin(), guards.end(), text) != guards.end();
  }
};

inline FakeFrontend& frontend() {
  static FakeFrontend* f = nullptr;
  if (!f) {
    f = new FakeFrontend;
    import_module();
  }
  return *f;
}

inline void prepare(Trial& trial, const std::string& source, const std::string& args) {
  frontend();
  trial.globals = PyRef::steal(PyDict_New());
  PyDict_SetItemString(trial.globals.get(), "__builtins__", PyEval_GetBuiltins());
  PyDict_SetItemString(trial.globals.get(), "__name__", PyRef::steal(PyUnicode_FromString("program")).get());
  PyRef code = PyRef::steal(Py_CompileString(("import torch\n" + source).c_str(), "program.py", Py_file_input));
  PyRef done = code ? PyRef::steal(PyEval_EvalCode(code.get(), trial.globals.get(), trial.globals.get())) : PyRef();
  if (done) trial.function = PyRef::borrow(PyDict_GetItemString(trial.globals.get(), "f"));
  trial.args = done ? PyRef::steal(PyRun_String(("(" + args + (args.empty() ? ")" : ",)")).c_str(), Py_eval_input,
                                                trial.globals.get(), trial.globals.get()))
                    : PyRef();
  if (!trial.function || !trial.args) PyErr_Print();
  ASSERT_TRUE(trial.function && trial.args) << source;
}

inline const char* name_of(guards::GuardKind kind) {
  static const char* const names[] = {
#define GUARD(name, flags, text) #name,
#include "guards/guard_kinds.def"
#undef GUARD
  };
  return names[static_cast<int>(kind)];
}

inline void describe(Trial& trial, PyCodeObject* code) {
  FrameTrace& trace = trial.trace;
  auto& recording = static_cast<FakeRecording&>(*trace.recording);
  trial.ops = recording.ops;
  trial.lines = recording.lines;
  for (const guards::Guard& g : trace.guards.guards()) {
    std::string text = std::string(name_of(g.kind)) + " " + trace.guards.sources.text(g.source, code);
    if (g.other != guards::kNoSource) text += " " + trace.guards.sources.text(g.other, code);
    if (g.facts) text += " " + g.facts->text();
    else if (g.object)
      text +=
          " " + (PyType_Check(g.object.get()) ? std::string(reinterpret_cast<PyTypeObject*>(g.object.get())->tp_name)
                                              : text_of(g.object.get()));
    if (g.kind == guards::GuardKind::length) text += " " + std::to_string(g.number);
    trial.guards.push_back(text);
  }
  if (trace.returned) {
    trial.returned = text_of(trace.returned);
    return;
  }
  trial.reason = row_of(trace.reason).name;
  trial.detail = trace.detail;
  trial.where = trace.where;
  for (const FrameExit& exit : trace.exit) {
    const Instruction& i = exit.frame->code->instructions[exit.frame->position];
    trial.exit_lines.push_back(std::string(PyUnicode_AsUTF8(exit.frame->code->code->co_name)) + ":" +
                               std::to_string(i.line - 1));
  }
}

inline const char* const kX = "torch.tensor('x', 2, 3)";  // an argument of most trials

// Line numbers count from the first line of `source`, `where` from the import before it.
inline Trial trial(const std::string& source, const std::string& args = "", const TraceOptions& options = {}) {
  Trial result;
  prepare(result, source, args);
  if (!result.function || !result.args) return result;
  auto* function = reinterpret_cast<PyFunctionObject*>(result.function.get());
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  std::shared_ptr<const Code> decoded = Code::decode(code);
  std::vector<PyObject*> locals(static_cast<size_t>(decoded->local_count), nullptr);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result.args.get()); ++i)
    locals[static_cast<size_t>(i)] = PyTuple_GET_ITEM(result.args.get(), i);
  guards::FrameAccess frame;
  frame.code = code;
  frame.function = result.function.get();
  frame.globals = function->func_globals;
  frame.builtins = function->func_builtins;
  frame.locals = locals.data();
  result.trace = trace_frame(frontend(), options, frame, decoded, 0);
  EXPECT_FALSE(PyErr_Occurred());
  describe(result, code);
  return result;
}

// "value", or "raised TypeError: message".
inline std::string run_eagerly(const std::string& source, const std::string& args = "") {
  Trial t;
  prepare(t, source, args);
  if (!t.function || !t.args) return "";
  PyRef result = PyRef::steal(PyObject_Call(t.function.get(), t.args.get(), nullptr));
  if (result) return text_of(result.get());
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyRef a = PyRef::steal(type), b = PyRef::steal(value), c = PyRef::steal(traceback),
        text = PyRef::steal(PyObject_Str(value));
  return std::string("raised ") + reinterpret_cast<PyTypeObject*>(type)->tp_name + ": " +
         (text ? PyUnicode_AsUTF8(text.get()) : "?");
}

// Expects that the trace of f is whole and returns what plain Python returns.
inline void expect_whole(const std::string& source, const std::string& args = "") {
  const Trial t = trial(source, args);
  EXPECT_EQ(t.reason, "") << t.detail << " at " << t.where << "\n" << source;
  EXPECT_EQ(t.returned, run_eagerly(source, args)) << source;
}

}  // namespace framejit::frame_hook::fake
