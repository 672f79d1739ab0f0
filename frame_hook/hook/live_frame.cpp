// frame_hook/hook/live_frame.cpp — LiveFrame over the version layer.
#include "frame_hook/hook/live_frame.h"

#include <utility>

#include "frame_hook/hook/evaluator.h"
#include "frame_hook/hook/pyver.h"
#include "guards/cpython/interpreter_end.h"

namespace framejit::frame_hook {
namespace {

pyver::Link& link_in(unsigned char* storage) { return *std::launder(reinterpret_cast<pyver::Link*>(storage)); }

}  // namespace

HookStats& hook_stats() {
  static HookStats stats;
  return stats;
}

LiveFrame::LiveFrame(PyThreadState* thread, Frame* frame, CodeState& state, EvalFunction below)
    : thread_(thread), frame_(frame), state_(state), below_(below), use_(state.code()) {
  static_assert(sizeof(pyver::Link) <= sizeof(link_) && alignof(pyver::Link) <= 8);
}

LiveFrame::~LiveFrame() { leave(); }

bool LiveFrame::is_generator() const { return pyver::is_generator_frame(frame_); }
bool LiveFrame::is_fresh() const { return !is_generator() && pyver::next_index(frame_) == 0; }
PyCodeObject* LiveFrame::caller_code() const {
  Frame* caller = pyver::current(thread_);
  while (caller && pyver::is_incomplete(caller)) caller = caller->previous;
  return caller ? pyver::code(caller) : nullptr;
}
bool LiveFrame::is_observed() const { return pyver::is_observed(thread_, code()); }

guards::FrameAccess LiveFrame::access() const {
  PyObject** base = pyver::stack_base(frame_);
  return {code(), pyver::function(frame_), pyver::globals(frame_), pyver::builtins(frame_), pyver::locals(frame_), base,
          static_cast<int>(pyver::stack_top(frame_) - base)};
}

int LiveFrame::next_index() const { return pyver::next_index(frame_); }
void LiveFrame::set_next(int index) { pyver::set_next(frame_, index); }
int LiveFrame::current_index() const { return pyver::current_index(frame_); }
void LiveFrame::set_current(int index) { pyver::set_current(frame_, index); }

std::span<PyObject*> LiveFrame::locals() const {
  return {pyver::locals(frame_), static_cast<size_t>(code()->co_nlocalsplus)};
}
std::span<PyObject*> LiveFrame::stack() const { return {pyver::stack_base(frame_), pyver::stack_top(frame_)}; }

bool LiveFrame::is_held() const { return pyver::is_held(frame_); }

void LiveFrame::push(PyObject* value) {
  PyObject** top = pyver::stack_top(frame_);
  *top = value;
  pyver::set_stack_top(frame_, top + 1);
}

void LiveFrame::replace(std::span<PyObject*> locals, std::span<PyObject*> stack, int next_index) {
  PyObject** slots = pyver::locals(frame_);
  for (size_t slot = 0; slot < locals.size(); slot++) std::swap(slots[slot], locals[slot]);
  PyObject** base = pyver::stack_base(frame_);
  const auto old_size = static_cast<size_t>(pyver::stack_top(frame_) - base);
  const size_t shared = old_size < stack.size() ? old_size : stack.size();
  for (size_t i = 0; i < shared; i++) std::swap(base[i], stack[i]);
  for (size_t i = shared; i < stack.size(); i++) base[i] = std::exchange(stack[i], nullptr);
  // The frame no longer owns entries above the new top. Nothing writes there until they are dropped below.
  pyver::set_stack_top(frame_, base + stack.size());
  pyver::set_next(frame_, next_index);
  for (size_t i = shared; i < old_size; i++) Py_XDECREF(base[i]);
  for (PyObject*& old : stack) Py_CLEAR(old);
  for (PyObject*& old : locals) Py_CLEAR(old);
}

PyObject* LiveFrame::handled() const { return pyver::handled(thread_); }
void LiveFrame::set_handled(PyObject* exception) {
  pyver::set_handled(thread_, exception ? pyver::none_as_handled(exception) : nullptr);
}

bool LiveFrame::enter() {
  if (!pyver::enter_recursion(thread_)) {
    pyver::end_unentered_frame(thread_, frame_);
    return false;
  }
  (new (link_) pyver::Link(thread_, frame_))->enter();
  entered_ = true;
  hook_stats().frames++;
  return true;
}

void LiveFrame::leave() {
  if (!entered_) return;
  link_in(link_).leave();
  pyver::leave_recursion(thread_);
  entered_ = false;
}

EvalResult LiveFrame::run(const EvalLimits& limits) {
  if (!decoded()) {
    PyErr_Clear();
    return {EvalStop::left, nullptr, next_index(), 0};
  }
  return stays_if_python_ends([&] { return Evaluator(thread_, frame_, *decoded()).run(limits); });
}

EvalResult LiveFrame::raise_and_run(const EvalLimits& limits) {
  return stays_if_python_ends([&] { return Evaluator(thread_, frame_, *decoded()).unwind_and_run(limits); });
}

bool LiveFrame::poll() { return !pyver::breaker_is_set(thread_) || pyver::poll(thread_, trivial_function()); }

PyObject* LiveFrame::pass_through(int throwing) {
  hook_stats().passed++;
  leave();
  return stays_if_python_ends(
      [&] { return below_ ? below_(thread_, frame_, throwing) : pyver::interpret(thread_, frame_, throwing); });
}

PyObject* LiveFrame::return_value(PyObject* value) {
  hook_stats().returns++;
  const bool was_entered = entered_;
  leave();
  was_entered ? pyver::end_frame(thread_, frame_) : pyver::end_unentered_frame(thread_, frame_);
  return value;
}

PyObject* LiveFrame::raise() {
  hook_stats().raises++;
  leave();
  pyver::end_frame(thread_, frame_);
  return nullptr;
}

PyObject* LiveFrame::yield(const EvalResult& result) {
  hook_stats().yields++;
  leave();
  pyver::suspend_generator(thread_, frame_, result.index, result.yield_arg);
  return result.value;
}

PyObject* LiveFrame::hand_over() {
  hook_stats().hand_overs++;
  leave();
  return stays_if_python_ends([&] { return pyver::interpret(thread_, frame_, 0); });
}

PyObject* LiveFrame::conclude(const EvalResult& result) {
  switch (result.stop) {
    case EvalStop::returned: return return_value(result.value);
    case EvalStop::raised: return raise();
    case EvalStop::yielded: return yield(result);
    case EvalStop::reached:
    case EvalStop::left:
    case EvalStop::observed: return hand_over();
  }
  return nullptr;
}

}  // namespace framejit::frame_hook
