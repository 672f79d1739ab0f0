// frame_hook/trace/machine/tracer.cpp — attempts at tracing a frame, and the loop that executes instructions.
//
// attempts.h says why there are several attempts. The stop moves outwards for a callee that cannot be resumed in place,
// a generator that is half-way, and an exception being handled (its traceback exists only natively).
#include "frame_hook/trace/machine/tracer.h"

#include "frame_hook/trace/machine/opcode_handlers.h"
#include "frame_hook/trace/protocol/protocol.h"
#include "graph/int64_range.h"
#include "guards/cpython/interpreter_end.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/running_compile.h"
#include "runtime/base/c_stack.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

using guards::SourceKind;

Tracer::Tracer(TensorFrontend& frontend, const TraceOptions& options)
    : options_(options),
      dynamic(options_.hints, trace_.guards.sources),
      heap(trace_, facts, dynamic, frontend),
      tensors(trace_, frontend, dynamic, numbers),
      frontend_(frontend) {
  set_interrupt_reader(compile_interrupted);  // for the passes and the code generation that follow
}

// ---- attempts

FrameTrace Tracer::trace_frame(const guards::FrameAccess& frame, std::shared_ptr<const Code> code, size_t start) {
  attempts.begin_trace();
  if (code->is_generator_like())
    attempts.stop_before(1, Reason::generator_frame, PyUnicode_AsUTF8(code->code->co_qualname), "");
  int count = 0;
  while (!attempt(frame, code, start)) {
    if (interrupt_is_kept()) throw Interrupted{};
    FJ_ASSERT(++count < 100, "a trace that never ends in an exit");
  }
  trace_.answer = attempts.compiling_answer();
  return std::move(trace_);
}

void Tracer::reset(const guards::FrameAccess& frame) {
  stack.clear();
  facts.reset();
  trace_.exit.clear();
  trace_.values.clear();  // before the recording that made their tensors
  trace_ = FrameTrace{};
  trace_.recording = frontend_.begin();
  if (auto modes = frontend_.current_modes()) trace_.guards.modes.push_back(std::move(modes));
  code_caches_.clear();
  errors.reset();
  generator_made_at_.clear();
  drops.reset();
  keys_.clear();
  live_ = frame;
  heap.reset();
  dynamic.reset(frame.code);
  numbers.reset();
  tensors.reset();
  attempts.reset();
}

bool Tracer::attempt(const guards::FrameAccess& frame, const std::shared_ptr<const Code>& code, size_t start) {
  const std::shared_ptr<void> modes = frontend_.save_modes();
  bool done = false;
  try {
    stays_if_python_ends([&] {
      reset(frame);
      done = run_root(root_frame(frame, code, start));
    });
  } catch (...) {
    frontend_.restore_modes(modes);
    drop_error();
    throw;
  }
  if (const auto now = frontend_.save_modes(); !frontend_.same_modes(modes, now)) {
    frontend_.restore_modes(modes);
    trace_.modes_at_exit = now;
  }
  FJ_ASSERT(!PyErr_Occurred(), "a Python error is left set by the tracer");
  return done;
}

bool Tracer::run_root(std::shared_ptr<SymbolicFrame> root) {
  try {
    trace_.where = text_of_position(*root);
    trace_.returned = run_frame(root);
    trace_.leaves_handler = !root->handled.empty();
    if (trace_.leaves_handler) trace_.handled = root->handled.back();
  } catch (const StopTracing&) {
    attempts.hand_over_stop();
  } catch (const GraphBreak& b) {
    attempts.after_break(b);
    return false;
  } catch (const SymbolicRaise& raised) {
    attempts.after_raise(raised.exception);
    return false;
  }
  trace_.steps = attempts.step();
  return accept_exit();
}

std::shared_ptr<SymbolicFrame> Tracer::root_frame(const guards::FrameAccess& frame, std::shared_ptr<const Code> code,
                                                  size_t start) {
  auto root = std::make_shared<SymbolicFrame>();
  guards::SourceTable& sources = facts.sources();
  root_code_ = code->code;
  codes_[root_code_] = code;
  prepare_frame(*root, std::move(code));
  root->position = start;
  root->is_resumed = start > 0;
  root->is_written.assign(root->locals.size(), false);
  if (frame.function && PyFunction_Check(frame.function))
    root->function = as<FunctionValue>(heap.wrap(frame.function, sources.add(SourceKind::frame_function)));
  auto dictionary = [&](PyObject* object, SourceKind kind) {
    Value* v = heap.wrap(object, sources.add(kind));
    if (v->kind != ValueKind::dict) graph_break(Reason::odd_scope, "globals of another type than dict");
    as<DictValue>(v)->is_globals = true;
    v->type_guarded = true;
    return v;
  };
  root->globals = dictionary(frame.globals, SourceKind::globals);
  root->builtins = dictionary(frame.builtins, SourceKind::builtins);
  for (size_t slot = 0; slot < root->locals.size(); ++slot)
    if (PyObject* object = frame.locals[slot])
      root->locals[slot] =
          heap.wrap(object, sources.add(SourceKind::local, guards::kNoSource, static_cast<int32_t>(slot)));
  for (int k = 0; k < frame.stack_size; ++k) {
    PyObject* object = frame.stack[k];
    const guards::SourceId source = sources.add(SourceKind::stack, guards::kNoSource, k);
    root->push(object ? heap.wrap(object, source) : heap.null_value());
    facts.relies_on_binding(source, object != nullptr);
  }
  return root;
}

// ---- the loop

Value* Tracer::run_frame(std::shared_ptr<SymbolicFrame> frame) {
  SymbolicFrame& f = *frame;
  // How much stack is left differs a little between traces of a frame: only the first checks.
  if (stack.frames().size() > static_cast<size_t>(options_.max_inline_depth) ||
      (attempts.is_first() && c_stack_is_low()))
    graph_break(Reason::recursion_limit, PyUnicode_AsUTF8(f.code->code->co_qualname));
  stack.push(std::move(frame));
  struct Leave {
    CallStack& stack;
    ~Leave() { stack.pop(); }
  } leave{stack};
  for (;;) {
    Value* raised = nullptr;
    try {
      run_instructions(f);
      if (heap.has_half_way() && !f.yielded && stack.frames().size() > 1) drops.drop_locals(f);
      return f.result;
    } catch (const SymbolicRaise& r) {
      raised = r.exception;
      errors.forget_own_error(raised);  // from here on it is an exception of the program
      attempts.note_raise(raised);
    } catch (const GraphBreak&) {
      attempts.note_break();
      throw;
    } catch (const graph::NoInt64& e) {
      attempts.note_break();
      graph_break(Reason::too_large, e.what());
    }
    enter_handler(f, raised);
  }
}

void Tracer::run_instructions(SymbolicFrame& f) {
  f.yielded = false;
  if (f.thrown) throw SymbolicRaise{std::exchange(f.thrown, nullptr)};
  const Instruction* instructions = f.code->instructions.data();
  for (;;) {
    const Instruction& i = instructions[f.position];
    if (!i.has(Instruction::kSecondHalf)) attempts.begin_instruction(f);
    const OpcodeHandler handler = handler_of(i.op);
    if (!handler)
      graph_break(Reason::unsupported_opcode,
                  i.op == Op::unknown ? std::string(raw_name_of(i.raw)) : name_of(i.op));
    const Flow flow = handler(*this, f, i);
    if (flow == Flow::next) ++f.position;
    else if (flow == Flow::leave) return;
  }
}

}  // namespace framejit::frame_hook
