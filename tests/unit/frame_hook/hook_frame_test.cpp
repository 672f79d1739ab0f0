// tests/unit/frame_hook/hook_frame_test.cpp — the hook's C++ interface as the driver uses it. Its behaviour:
// tests/e2e/hook.
#include <gtest/gtest.h>

#include "frame_hook/hook/frame_hook.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {
namespace {

struct Recorder : FrameHandler {
  int frames = 0;
  PyObject* options = nullptr;
  int stack_size = -1;
  PyObject* on_frame(LiveFrame& frame, PyObject* given) override {
    frames++;
    options = given;
    stack_size = frame.access().stack_size;
    EXPECT_TRUE(frame.is_fresh());
    if (!frame.enter()) return nullptr;
    EvalResult result{EvalStop::reached};
    while (result.stop == EvalStop::reached) result = frame.run_one();
    return frame.conclude(result);
  }
};

class Hook : public testing::Test {
 protected:
  void SetUp() override {
    const Result<void> ready = initialise_hook();
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    names_ = PyRef::steal(PyDict_New());
    PyDict_SetItemString(names_.get(), "__builtins__", PyEval_GetBuiltins());
    set_frame_handler(&recorder_);
  }
  void TearDown() override {
    set_frame_handler(nullptr);
    reset_code_states();
  }
  PyObject* function(const char* source) {
    PyRef done = PyRef::steal(PyRun_String(source, Py_file_input, names_.get(), names_.get()));
    if (!done) PyErr_Print();
    return PyDict_GetItemString(names_.get(), "f");
  }
  Recorder recorder_;
  PyRef names_;
};

TEST_F(Hook, ArmedCallReachesTheHandlerOnce) {
  PyObject* f = function("def f(n):\n  return sum(range(n))\n");
  PyRef ten = PyRef::steal(PyLong_FromLong(10));
  PyObject* arguments[] = {ten.get()};
  PyRef sum = PyRef::steal(call_armed(f, arguments, 1, nullptr, Py_True));
  ASSERT_TRUE(sum);
  EXPECT_EQ(PyLong_AsLong(sum.get()), 45);
  EXPECT_EQ(recorder_.frames, 1);
  EXPECT_EQ(recorder_.options, Py_True);
  EXPECT_EQ(recorder_.stack_size, 0);
  PyRef again = PyRef::steal(PyObject_Vectorcall(f, arguments, 1, nullptr));
  EXPECT_EQ(recorder_.frames, 1);
}

TEST_F(Hook, ArgumentErrorLeavesNothingArmed) {
  PyObject* f = function("def f(n):\n  return n\n");
  PyRef none = PyRef::steal(call_armed(f, nullptr, 0, nullptr, nullptr));
  EXPECT_FALSE(none);
  EXPECT_TRUE(PyErr_ExceptionMatches(PyExc_TypeError));
  PyErr_Clear();
  PyRef one = PyRef::steal(PyLong_FromLong(1));
  PyObject* arguments[] = {one.get()};
  PyRef plain = PyRef::steal(PyObject_Vectorcall(f, arguments, 1, nullptr));
  EXPECT_EQ(recorder_.frames, 0);
}

struct DoubleLocal : FrameFiller {
  PyObject* fill(LiveFrame& frame) override {
    if (!frame.enter()) return nullptr;
    PyObject* locals[] = {PyLong_FromLong(21), nullptr};
    frame.replace(locals, {}, frame.next_index());
    return frame.conclude(frame.run());
  }
};

TEST_F(Hook, CallIntoFillsTheFreshFrame) {
  PyObject* f = function("def f(x, *, k):\n  return x * 2\n");
  DoubleLocal filler;
  PyRef result = PyRef::steal(call_into(f, filler));
  ASSERT_TRUE(result);
  EXPECT_EQ(PyLong_AsLong(result.get()), 42);
  EXPECT_EQ(recorder_.frames, 0);
}

struct CountedEntry : EntryBase {
  explicit CountedEntry(int& alive) : alive_(alive) { ++alive_; }
  ~CountedEntry() override { --alive_; }
  int& alive_;
};

TEST_F(Hook, RetiredSitesLiveWhileAFrameDoes) {
  int alive = 0;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function("def f():\n  return 1\n")));
  CodeState* state = CodeState::of(code);
  state->site(0).entries.push_back(std::make_unique<CountedEntry>(alive));
  {
    const EntryUse running(code);
    const Site* site = state->find_site(0);
    reset_code_states();
    EXPECT_EQ(state->find_site(0), nullptr);
    EXPECT_EQ(site->entries.size(), 1u);
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
  state->site(0).entries.push_back(std::make_unique<CountedEntry>(alive));
  reset_code_states();
  EXPECT_EQ(alive, 0);
}

TEST_F(Hook, WhatAFrameDoesNotUseIsFreedWhileItRuns) {
  int alive = 0;
  auto* code =
      reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function("def f():\n  return 1\ndef g():\n  return f()\n")));
  const EntryUse caller(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(PyDict_GetItemString(names_.get(), "g"))));
  {
    const EntryUse running(code);
    CodeState::of(code)->site(0).entries.push_back(std::make_unique<CountedEntry>(alive));
    reset_code_states();
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0) << "the caller still runs";
  CodeState::of(code)->site(0).entries.push_back(std::make_unique<CountedEntry>(alive));
  reset_code_states();
  EXPECT_EQ(alive, 0) << "nothing runs it";
  CodeState::of(code)->site(0).entries.push_back(std::make_unique<CountedEntry>(alive));
  drop_entries([](const EntryBase&) { return true; });
  EXPECT_EQ(alive, 1) << "whose it is is not known";
  reset_code_states();
}

}  // namespace
}  // namespace framejit::frame_hook
