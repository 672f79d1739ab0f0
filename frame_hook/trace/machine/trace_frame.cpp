// frame_hook/trace/machine/trace_frame.cpp — attempts at tracing a frame, until one ends in an exit that can be
// rebuilt.
//
// attempts.h says why there are several attempts. The stop moves outwards for a callee that cannot be resumed in place,
// a generator that is half-way, and an exception being handled (its traceback exists only natively).
#include "frame_hook/trace/machine/trace_frame.h"

#include "frame_hook/trace/machine/exit.h"
#include "guards/cpython/interpreter_end.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/running_compile.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

namespace {

// False: start over.
bool run_root(Tracer& t, FrameTrace& trace, std::shared_ptr<SymbolicFrame> root) {
  try {
    trace.where = text_of_position(*root);
    trace.returned = t.machine.run_frame(root);
    trace.returned_from = root;
    trace.leaves_handler = !root->handled.empty();
    if (trace.leaves_handler) trace.handled = root->handled.back();
  } catch (const StopTracing&) { t.attempts.hand_over_stop(); } catch (const GraphBreak& b) {
    t.attempts.after_break(b);
    return false;
  } catch (const SymbolicRaise& raised) {
    t.attempts.after_raise(raised.exception);
    return false;
  }
  trace.steps = t.attempts.step();
  return accept_exit(t, trace);
}

// False: start over.
bool attempt(Tracer& t, FrameTrace& trace, const guards::FrameAccess& frame, const std::shared_ptr<const Code>& code,
             size_t start) {
  TensorFrontend& frontend = t.frontend();
  const std::shared_ptr<void> modes = frontend.save_modes();
  bool done = false;
  try {
    stays_if_python_ends([&] {
      t.reset(frame.code);
      done = run_root(t, trace, t.machine.root_frame(frame, code, start));
    });
    FJ_ASSERT(!PyErr_Occurred(), "a Python error is left set by the tracer");
  } catch (...) {
    frontend.restore_modes(modes);
    drop_error();
    throw;
  }
  if (const auto now = frontend.save_modes(); !frontend.same_modes(modes, now)) {
    frontend.restore_modes(modes);
    trace.modes_at_exit = now;
  }
  return done;
}

}  // namespace

FrameTrace trace_frame(TensorFrontend& frontend, const TraceOptions& options, const guards::FrameAccess& frame,
                       std::shared_ptr<const Code> code, size_t start) {
  set_interrupt_reader(compile_interrupted);  // for the passes and the code generation that follow
  FrameTrace trace;
  Tracer t(trace, options, frontend);
  t.attempts.begin_trace();
  if (code->is_generator_like())
    t.attempts.stop_before(1, Reason::generator_frame, text_of(code->code->co_qualname), "");
  int count = 0;
  while (!attempt(t, trace, frame, code, start)) {
    if (interrupt_is_kept()) throw Interrupted{};
    FJ_ASSERT(++count < 100, "a trace that never ends in an exit");
  }
  trace.answer = t.attempts.compiling().answer();
  return trace;
}

}  // namespace framejit::frame_hook
