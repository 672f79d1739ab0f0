// tests/unit/frame_hook/fake_frontend.h — traces Python source with the fake torch of fake_torch.h.
//
// trial("def f(x): return x + 1", "torch.tensor('x', 2)") compiles the source, evaluates the arguments, traces f from its first
// instruction and gives what tests look at as text. run_eagerly() does the same with plain Python.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "fake_torch.h"
#include "frame_hook/trace/tracer.h"

namespace framejit::frame_hook::fake {

class Facts : public guards::TensorFacts {
 public:
  explicit Facts(graph::SymSizes sizes) : sizes_(std::move(sizes)) {}
  bool matches(PyObject* tensor, int64_t*) const override { return is_tensor(tensor) && *as_tensor(tensor)->sizes == sizes_; }
  std::string mismatch(PyObject*) const override { return "other sizes"; }
  std::string text() const override {
    std::string out = "f32[";
    for (const graph::SymExpr& s : sizes_) out += (out.back() == '[' ? "" : ", ") + s.text();
    return out + "]";
  }
  std::vector<int> differing_dims(PyObject*) const override { return {}; }

 private:
  graph::SymSizes sizes_;
};

class FakeRecording : public Recording {
 public:
  graph::ShapeEnv& shapes() override { return shapes_; }
  PyObject* add_input(PyObject* tensor, const std::string& source, const std::vector<bool>& dynamic) override {
    graph::SymSizes sizes = *as_tensor(tensor)->sizes;
    for (size_t i = 0; i < std::min(dynamic.size(), sizes.size()); ++i)
      if (dynamic[i] && sizes[i].constant() > 1) sizes[i] = graph::SymExpr::symbol(shapes_.add_symbol(sizes[i].constant()));
    inputs_.push_back(std::make_shared<Facts>(sizes));
    input_names.push_back(source);
    return make_tensor(*as_tensor(tensor)->name, sizes, true);
  }
  std::shared_ptr<const guards::TensorFacts> facts_of_input(size_t input) override { return inputs_[input]; }
  size_t input_count() const override { return inputs_.size(); }
  bool is_traced(PyObject* object) const override { return is_tensor(object) && as_tensor(object)->traced; }
  PyObject* call(PyObject* callable, PyObject* const* args, size_t positional, PyObject* kwnames) override {
    const size_t before = ops.size();
    state().ops = &ops;
    PyObject* result = PyObject_Vectorcall(callable, args, positional, kwnames);
    state().ops = nullptr;
    if (!result) ops.resize(before);
    for (size_t i = before; i < ops.size(); ++i) lines.push_back(line_.file + ":" + std::to_string(line_.number));
    return result;
  }
  PyObject* get_attribute(PyObject* traced, PyObject* name) override { return PyObject_GetAttr(traced, name); }
  std::optional<CaptureBreak> take_break() override { return std::exchange(state().reason, std::nullopt); }
  void set_line(const graph::Line& line) override { line_ = line; }
  PyObject* wrap_size(const graph::SymExpr& size) override { return size_object(size); }
  std::optional<graph::SymExpr> unwrap_size(PyObject* o) override {
    if (Py_TYPE(o) != sym_int_type()) return std::nullopt;
    return *reinterpret_cast<SymInt*>(o)->size;
  }
  PyObject* add_float(double, const std::string&) override { return nullptr; }
  FloatBeside float_beside(PyObject*) override { return FloatBeside::kConstant; }
  PyObject* float_number(PyObject*, double) override { return nullptr; }
  std::string text() const override { return ""; }
  size_t op_count() const override { return ops.size(); }
  Result<void> finish(const std::vector<PyObject*>&) override { return {}; }
  Result<std::unique_ptr<CompiledCall>> compile(const CompileRequest&) override { return Error{"fake", "nothing is compiled"}; }

  std::vector<std::string> ops, lines, input_names;

 private:
  graph::ShapeEnv shapes_;
  std::vector<std::shared_ptr<const Facts>> inputs_;
  graph::Line line_;
};

class FakeFrontend : public TensorFrontend {
 public:
  TensorClass classify(PyObject* object, std::string* reason) override {
    if (!is_tensor(object)) return TensorClass::kNot;
    if (Py_TYPE(object) == fake::tensor_type()) return TensorClass::kPlain;
    *reason = "a subclass";
    return TensorClass::kUnsupported;
  }
  std::unique_ptr<Recording> begin() override { return std::make_unique<FakeRecording>(); }
  std::shared_ptr<const guards::ModeFacts> current_modes() override { return nullptr; }
  std::shared_ptr<void> save_modes() override { return std::make_shared<bool>(state().grad); }
  void restore_modes(const std::shared_ptr<void>& m) override { state().grad = *static_cast<bool*>(m.get()); }
  bool same_modes(const std::shared_ptr<void>& a, const std::shared_ptr<void>& b) override { return *static_cast<bool*>(a.get()) == *static_cast<bool*>(b.get()); }
  bool may_overlap(PyObject* const*, size_t, size_t) override { return false; }
  bool is_pure_without_tensors(PyObject*) override { return false; }
  bool answers_true_while_compiling(PyObject*) override { return false; }
};

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
    case ValueKind::tensor: return text_of(as<TensorValue>(v)->traced ? as<TensorValue>(v)->traced.get() : v->object.get());
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
      for (const DictEntry& e : as<DictValue>(v)->entries) out += (out.empty() ? "" : ", ") + text_of(e.key) + ": " + text_of(e.value);
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

  bool has_guard(const std::string& text) const { return std::find(guards.begin(), guards.end(), text) != guards.end(); }
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
  trial.args = done ? PyRef::steal(PyRun_String(("(" + args + (args.empty() ? ")" : ",)")).c_str(), Py_eval_input, trial.globals.get(), trial.globals.get())) : PyRef();
  if (!trial.function || !trial.args) PyErr_Print();
  ASSERT_TRUE(trial.function && trial.args) << source;
}

inline const char* name_of(guards::GuardKind kind) {
  static const char* const names[] = {
#define GUARD(name, text) #name,
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
    else if (g.object) text += " " + (PyType_Check(g.object.get()) ? std::string(reinterpret_cast<PyTypeObject*>(g.object.get())->tp_name) : text_of(g.object.get()));
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
    trial.exit_lines.push_back(std::string(PyUnicode_AsUTF8(exit.frame->code->code->co_name)) + ":" + std::to_string(i.line - 1));
  }
}

// Line numbers count from the first line of `source`, `where` from the import in front of it.
inline Trial trial(const std::string& source, const std::string& args = "", const TraceOptions& options = {}) {
  Trial result;
  prepare(result, source, args);
  if (!result.function || !result.args) return result;
  auto* function = reinterpret_cast<PyFunctionObject*>(result.function.get());
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  std::shared_ptr<const Code> decoded = Code::decode(code);
  std::vector<PyObject*> locals(static_cast<size_t>(decoded->local_count), nullptr);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result.args.get()); ++i) locals[static_cast<size_t>(i)] = PyTuple_GET_ITEM(result.args.get(), i);
  guards::FrameAccess frame;
  frame.code = code;
  frame.function = result.function.get();
  frame.globals = function->func_globals;
  frame.builtins = function->func_builtins;
  frame.locals = locals.data();
  Tracer tracer(frontend(), options);
  result.trace = tracer.trace_frame(frame, decoded, 0);
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
  PyRef a = PyRef::steal(type), b = PyRef::steal(value), c = PyRef::steal(traceback), text = PyRef::steal(PyObject_Str(value));
  return std::string("raised ") + reinterpret_cast<PyTypeObject*>(type)->tp_name + ": " + (text ? PyUnicode_AsUTF8(text.get()) : "?");
}

// The trace of f is whole and gives what plain Python gives.
inline void expect_whole(const std::string& source, const std::string& args = "") {
  const Trial t = trial(source, args);
  EXPECT_EQ(t.reason, "") << t.detail << " at " << t.where << "\n" << source;
  EXPECT_EQ(t.returned, run_eagerly(source, args)) << source;
}

}  // namespace framejit::frame_hook::fake
