// tests/unit/guards/guard_fixture.h — frames made from Python values, for tests of guards: no hook is needed.
#pragma once

#include <Python.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "guards/guard_program.h"

namespace framejit::guards {

// The locals by name; everything else by number.
class TestNames final : public UserNames {
 public:
  std::string local(int slot) const override { return std::string(1, static_cast<char>('a' + slot)); }
  bool are_arguments(int) const override { return false; }
  std::string item(int, int, PyObject*) const override { return ""; }
  std::string pushed(int index) const override { return "the value of step " + std::to_string(index); }
  std::string captured(int index) const override { return "captured " + std::to_string(index); }
};

// Runs Python source in a fresh module namespace, and reads its names back as locals of a made-up frame.
class GuardTest : public testing::Test {
 protected:
  GuardTest() : globals_(PyRef::steal(PyDict_New())) {
    PyDict_SetItemString(globals_.get(), "__builtins__", PyEval_GetBuiltins());
    run("def probe(a, b, c): pass");
    function_ = get("probe");
    code_ = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function_.get()));
    locals_.assign(3, nullptr);
  }
  ~GuardTest() override { EXPECT_EQ(PyErr_Occurred(), nullptr); }

  void run(const std::string& source) {
    PyRef result = PyRef::steal(PyRun_String(source.c_str(), Py_file_input, globals_.get(), globals_.get()));
    if (!result) PyErr_Print();
    ASSERT_TRUE(result);
  }
  PyRef get(const std::string& expression) {
    PyRef result = PyRef::steal(PyRun_String(expression.c_str(), Py_eval_input, globals_.get(), globals_.get()));
    if (!result) PyErr_Print();
    return result;
  }
  PyRef str(const char* text) { return PyRef::steal(PyUnicode_InternFromString(text)); }

  // Local number `slot` becomes the value of the expression.
  void set(int slot, const std::string& expression) {
    values_.push_back(get(expression));
    locals_[slot] = values_.back().get();
  }

  SourceId local(int slot = 0) { return set_.sources.add(SourceKind::local, kNoSource, slot); }
  SourceId from(SourceKind kind, SourceId base, int index = 0) { return set_.sources.add(kind, base, index); }
  SourceId keyed(SourceKind kind, SourceId base, const PyRef& key) {
    return set_.sources.add(kind, base, 0, key.get());
  }

  Guard guard(GuardKind kind, SourceId source, const std::string& object = "", int64_t number = 0) {
    Guard g;
    g.kind = kind;
    g.source = source;
    if (!object.empty()) g.object = get(object);
    g.number = number;
    return g;
  }
  void add(GuardKind kind, SourceId source, const std::string& object = "", int64_t number = 0) {
    set_.add(guard(kind, source, object, number));
  }

  void compile(std::vector<SourceId> wanted = {}) {
    auto program = GuardProgram::compile(std::move(set_), wanted, code_);
    ASSERT_TRUE(program.ok()) << program.error().message;
    program_ = program.take();
    registers_.assign(program_->register_count() + 1, nullptr);
    symbols_.assign(program_->symbol_count() + 1, -1);
  }
  FrameAccess frame() const {
    FrameAccess f;
    f.code = code_;
    f.function = function_.get();
    f.globals = globals_.get();
    f.builtins = PyEval_GetBuiltins();
    f.locals = locals_.data();
    f.stack = locals_.data();
    f.stack_size = 1;
    return f;
  }
  bool holds() {
    const bool result = program_->run(frame(), registers_.data(), symbols_.data());
    EXPECT_EQ(PyErr_Occurred(), nullptr);
    EXPECT_EQ(result, !program_->explain(frame()).has_value());
    return result;
  }
  std::string why() {
    const auto failure = program_->explain(frame());
    return failure ? failure->text : "holds";
  }
  // What a user reads.
  Change change(Symbols symbols = Symbols::possible) {
    const auto failure = program_->explain(frame());
    return failure ? program_->change(*failure, TestNames(), symbols) : Change{ChangeKind::gone, "holds", ""};
  }
  // One guard on the first local, tried with a value that fits and one that does not.
  void expect(GuardKind kind, const std::string& object, int64_t number, const std::string& good,
              const std::string& bad, const std::string& text) {
    set_ = GuardSet();
    set(0, good);
    add(kind, local(), object, number);
    compile();
    EXPECT_TRUE(holds()) << why();
    set(0, bad);
    EXPECT_FALSE(holds()) << bad;
    EXPECT_EQ(why(), text);
    const Change said = change();
    EXPECT_FALSE(said.text.empty() || said.hint.empty()) << text;
    EXPECT_EQ((said.text + said.hint).find("L['"), std::string::npos) << said.text << said.hint;
    set(0, good);
    EXPECT_TRUE(holds());
  }

  GuardSet set_;
  std::unique_ptr<GuardProgram> program_;
  std::vector<PyObject*> registers_, locals_;
  std::vector<int64_t> symbols_;
  std::vector<PyRef> values_;
  PyRef globals_, function_;
  PyCodeObject* code_ = nullptr;
};

}  // namespace framejit::guards
