// frame_hook/resume/compile_frame.cpp — from a live frame to a segment: trace, recipe, graph, guards.
//
// A trace without tensor work that breaks in its own frame becomes a plain segment: guards that select it, no graph, no recipe. One
// that breaks inside an inlined callee is a segment like any other, so that capture can go on inside the callee.
#include <chrono>

#include "frame_hook/bytecode/code.h"
#include "frame_hook/resume/segment.h"
#include "frame_hook/resume/stats.h"
#include "runtime/base/log.h"

namespace framejit::frame_hook {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

SlotId handled_slot(RecipeBuilder& recipe, const SymbolicFrame& frame) {
  return frame.handled.empty() ? kUnbound : recipe.slot(frame.handled.back());
}

FramePlan plan_frame(RecipeBuilder& recipe, const SymbolicFrame& frame, bool innermost, bool outermost) {
  FramePlan plan;
  const Instruction& instr = frame.code->instructions[frame.position];
  plan.code = PyRef::borrow(reinterpret_cast<PyObject*>(frame.code->code));
  plan.index = innermost ? instr.index : instr.opcode_index;
  plan.next_index = instr.next_index;
  if (!outermost) plan.function = recipe.slot(frame.function);
  for (Value* v : frame.locals) plan.locals.push_back(recipe.slot(v));
  for (Value* v : frame.stack) plan.stack.push_back(recipe.slot(v));
  plan.on_return = frame.on_return;
  if (frame.pending_object) plan.pending_object = recipe.slot(frame.pending_object);
  plan.writes_handled = !frame.handled.empty();
  plan.handled = handled_slot(recipe, frame);
  return plan;
}

void log_guards(const Segment& segment, const std::string& where) {
  if (!log::enabled(log::Channel::guards)) return;
  for (const std::string& text : segment.guards->texts()) log::emit({log::Channel::guards, "", "Guard", where, {{"guard", text}}, ""});
}

TraceOptions trace_options(const CompileOptions& options, const TraceHints& hints) {
  TraceOptions result;
  result.hints = hints;
  result.hints.dynamic_all = options.dynamic == 1;
  result.hints.dynamic_never = options.dynamic == 0;
  return result;
}

// Exit, effects and outputs of the trace, in recipe order: what the exit needs first, then the writes.
void plan_exit(FrameTrace& trace, RecipeBuilder& recipe, Segment& segment) {
  if (trace.returned) {
    segment.exit = ExitKind::returned;
    segment.returned = recipe.slot(trace.returned);
  } else {
    segment.exit = ExitKind::broke;
    for (size_t i = 0; i < trace.exit.size(); ++i)
      segment.frames.push_back(plan_frame(recipe, *trace.exit[i].frame, i + 1 == trace.exit.size(), i == 0));
    segment.reason = trace.reason;
    segment.where = trace.where;
  }
  recipe.add_effects();
}

// The graph, if there is one. Null with a Python error set when a user's backend raised.
bool compile_graph(FrameTrace& trace, const RecipeBuilder& recipe, Segment& segment) {
  if (trace.recording->op_count() == 0 && recipe.traced_outputs().empty()) return true;
  auto finished = trace.recording->finish(recipe.traced_outputs());
  if (!finished.ok()) graph_break(BreakReason::recording_failed, finished.error().message);
  auto compiled = trace.recording->compile(segment.options->request);
  if (PyErr_Occurred()) return false;
  if (!compiled.ok()) graph_break(BreakReason::recording_failed, compiled.error().message);
  segment.call = compiled.take();
  return true;
}

void compile_guards(FrameTrace& trace, std::vector<guards::SourceId> wanted, PyCodeObject* code, Segment& segment) {
  trace.guards.size_facts = trace.recording->shapes().facts();
  trace.guards.symbol_count = trace.recording->shapes().symbol_count();
  auto program = guards::GuardProgram::compile(trace.guards, wanted, code);
  if (!program.ok()) throw InternalError("guards: " + program.error().message);
  segment.guards = program.take();
}

std::unique_ptr<Segment> build_segment(FrameTrace& trace, const guards::FrameAccess& frame, const std::shared_ptr<const CompileOptions>& options) {
  auto segment = std::make_unique<Segment>();
  segment->options = options;
  RecipeBuilder recipe(trace, *tensor_frontend());
  plan_exit(trace, recipe, *segment);
  if (!compile_graph(trace, recipe, *segment)) return nullptr;
  std::vector<guards::SourceId> wanted = recipe.wanted_sources();
  if (segment->call) wanted.insert(wanted.end(), trace.input_sources.begin(), trace.input_sources.end());
  compile_guards(trace, wanted, frame.code, *segment);
  if (segment->call)
    for (guards::SourceId source : trace.input_sources) segment->input_registers.push_back(segment->guards->register_of(source));
  segment->recipe = recipe.finish([&](guards::SourceId source) { return segment->guards->register_of(source); });
  return segment;
}

std::unique_ptr<Segment> plain_segment(FrameTrace& trace, int until, const guards::FrameAccess& frame, const std::shared_ptr<const CompileOptions>& options) {
  auto segment = std::make_unique<Segment>();
  segment->options = options;
  segment->exit = ExitKind::plain;
  segment->plain_until = until;
  segment->reason = trace.reason;
  segment->where = trace.where;
  compile_guards(trace, {}, frame.code, *segment);
  return segment;
}

}  // namespace

Stats& stats() {
  static Stats totals;
  return totals;
}

void count_break(BreakReason reason, const std::string& detail, const std::string& where, const std::string& caret) {
  stats().graph_breaks += 1;
  stats().break_reasons[row_of(reason).name] += 1;
  if (log::enabled(log::Channel::graph_breaks))
    log::emit({log::Channel::graph_breaks, "", "Break", where, {{"reason", row_of(reason).name}, {"detail", detail}, {"hint", row_of(reason).hint}}, caret});
}

CompileOutcome compile_segment(const guards::FrameAccess& frame, std::shared_ptr<const Code> code, int index, const std::shared_ptr<const CompileOptions>& options,
                               const TraceHints& hints) {
  const auto start = Clock::now();
  CompileOutcome outcome;
  Tracer tracer(*tensor_frontend(), trace_options(*options, hints));
  FrameTrace trace = tracer.trace_frame(frame, code, static_cast<size_t>(code->position_at(index)));
  stats().trace_seconds += seconds_since(start);
  stats().traced_instructions += trace.steps;
  stats().inlined_calls += trace.python_calls_inlined;
  outcome.broke = trace.returned == nullptr;
  outcome.reason = trace.reason;
  outcome.detail = trace.detail;
  outcome.where = trace.where;

  const bool tensor_work = trace.recording->op_count() > 0;
  if (!tensor_work && !trace.returned && trace.exit.size() == 1) {
    outcome.segment = plain_segment(trace, code->instructions[trace.exit[0].frame->position].index, frame, options);
  } else {
    try {
      outcome.segment = build_segment(trace, frame, options);
    } catch (const GraphBreak& b) {  // something at the exit cannot be rebuilt: from here the frame runs plainly
      outcome.broke = true;
      outcome.reason = b.reason;
      outcome.detail = b.detail;
      outcome.segment = plain_segment(trace, -1, frame, options);
    }
  }
  if (outcome.broke) count_break(outcome.reason, outcome.detail, outcome.where, outcome.caret);
  if (outcome.segment) {
    if (const CompiledCall* call = outcome.segment->call.get()) {
      stats().graphs += 1;
      stats().ops += call->op_count;
      stats().kernels += call->kernel_count;
    }
    log_guards(*outcome.segment, outcome.where);
  }
  const double seconds = seconds_since(start);
  stats().compile_seconds += seconds;
  if (log::enabled(log::Channel::timing))
    log::emit({log::Channel::timing, "", "Stage", trace.where, {{"stage", "compile"}, {"milliseconds", std::to_string(seconds * 1e3)}}, ""});
  return outcome;
}

}  // namespace framejit::frame_hook
