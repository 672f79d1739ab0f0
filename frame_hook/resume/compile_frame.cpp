// frame_hook/resume/compile_frame.cpp — from a live frame to a segment: trace, recipe, graph, guards.
//
// A trace without tensor work is not worth an entry when it ends in the same frame: plain execution is as good and needs no
// guards. A trace that broke inside an inlined callee gets one even then, so that capture can go on inside the callee.
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

void log_break(const CompileOutcome& outcome) {
  stats().graph_breaks += 1;
  stats().break_reasons[row_of(outcome.reason).name] += 1;
  if (!log::enabled(log::Channel::graph_breaks)) return;
  log::emit({log::Channel::graph_breaks, "", "Break", outcome.where,
             {{"reason", row_of(outcome.reason).name}, {"detail", outcome.detail}, {"hint", row_of(outcome.reason).hint}}, outcome.caret});
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

std::unique_ptr<Segment> build_segment(FrameTrace& trace, const guards::FrameAccess& frame, const std::shared_ptr<const CompileOptions>& options) {
  auto segment = std::make_unique<Segment>();
  segment->options = options;
  RecipeBuilder recipe(trace, *tensor_frontend());
  plan_exit(trace, recipe, *segment);

  if (trace.recording->op_count() > 0 || !recipe.traced_outputs().empty()) {
    auto finished = trace.recording->finish(recipe.traced_outputs());
    if (!finished.ok()) graph_break(BreakReason::recording_failed, finished.error().message);
    auto compiled = trace.recording->compile(options->request);
    if (PyErr_Occurred()) return nullptr;  // a user's backend raised: its exception passes through
    if (!compiled.ok()) graph_break(BreakReason::recording_failed, compiled.error().message);
    segment->call = compiled.take();
  }
  std::vector<guards::SourceId> wanted = recipe.wanted_sources();
  wanted.insert(wanted.end(), trace.input_sources.begin(), trace.input_sources.end());
  trace.guards.size_facts = trace.recording->shapes().facts();
  trace.guards.symbol_count = trace.recording->shapes().symbol_count();
  auto program = guards::GuardProgram::compile(std::move(trace.guards), wanted, frame.code);
  if (!program.ok()) throw InternalError("guards: " + program.error().message);
  segment->guards = program.take();
  for (guards::SourceId source : trace.input_sources) segment->input_registers.push_back(segment->guards->register_of(source));
  segment->recipe = recipe.finish([&](guards::SourceId source) { return segment->guards->register_of(source); });
  return segment;
}

}  // namespace

Stats& stats() {
  static Stats totals;
  return totals;
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
  if (!tensor_work && (trace.returned || trace.exit.size() == 1)) {
    if (!trace.returned) outcome.plain_until = code->instructions[trace.exit[0].frame->position].index;
  } else {
    try {
      outcome.segment = build_segment(trace, frame, options);
    } catch (const GraphBreak& b) {  // something at the exit cannot be rebuilt: this frame runs plainly
      outcome.broke = true;
      outcome.reason = b.reason;
      outcome.detail = b.detail;
    }
  }
  if (outcome.broke) log_break(outcome);
  if (outcome.segment) {
    stats().graphs += tensor_work;
    stats().ops += outcome.segment->call ? outcome.segment->call->op_count : 0;
    stats().kernels += outcome.segment->call ? outcome.segment->call->kernel_count : 0;
    log_guards(*outcome.segment, outcome.where);
  }
  const double seconds = seconds_since(start);
  stats().compile_seconds += seconds;
  if (log::enabled(log::Channel::timing))
    log::emit({log::Channel::timing, "", "Stage", trace.where, {{"stage", "compile"}, {"milliseconds", std::to_string(seconds * 1e3)}}, ""});
  return outcome;
}

}  // namespace framejit::frame_hook
