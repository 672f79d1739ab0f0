// frame_hook/resume/compile_segment.cpp — from a live frame to a segment: trace, recipe, graph, guards.
//
// A trace without tensor work that breaks in its own frame becomes a plain segment: guards that select it, no graph, no
// recipe. A trace that breaks inside an inlined callee becomes an ordinary segment, so that capture can continue inside
// the callee.
#include <algorithm>
#include <chrono>

#include "frame_hook/bytecode/code.h"
#include "frame_hook/resume/segment.h"
#include "frame_hook/resume/source_text.h"
#include "frame_hook/resume/stats.h"
#include "frame_hook/trace/machine/trace_frame.h"
#include "frame_hook/trace/torch/traced_tensors.h"
#include "graph/compiler.h"
#include "graph/int64_range.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/names.h"
#include "guards/cpython/running_compile.h"
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
  plan.index = innermost ? instr.index : instr.opcode_index;
  plan.next_index = instr.next_index;
  if (!outermost) plan.function = recipe.slot(frame.function);
  for (size_t slot = 0; slot < frame.locals.size(); ++slot) {
    const bool untouched = outermost && !frame.is_written[slot];
    plan.locals.push_back(untouched ? kAsItIs : recipe.slot(frame.locals[slot]));
  }
  for (Value* v : frame.stack) plan.stack.push_back(recipe.slot(v));
  plan.on_return = frame.on_return;
  if (frame.pending_object) plan.pending_object = recipe.slot(frame.pending_object);
  plan.writes_handled = !frame.handled.empty();
  plan.handled = handled_slot(recipe, frame);
  return plan;
}

// Locals that only the trace has seen are unbound then: nothing reads them but a look into the frame object.
FramePlan plan_end(RecipeBuilder& recipe, const SymbolicFrame& frame) {
  FramePlan plan;
  plan.index = frame.code->instructions[frame.position].opcode_index;
  for (size_t slot = 0; slot < frame.locals.size(); ++slot)
    plan.locals.push_back(frame.is_written[slot] ? recipe.slot_if_at_hand(frame.locals[slot]) : kAsItIs);
  return plan;
}

void log_guards(const Segment& segment, const std::string& where) {
  if (!log::enabled(log::Kind::Guard)) return;
  const std::vector<std::string> texts = segment.guards->texts();
  const std::vector<bool> are_plumbing = segment.guards->are_plumbing();
  for (size_t i = 0; i < texts.size(); ++i)
    log::emit(log::Kind::Guard, where, {{"guard", texts[i]}, {"of", are_plumbing[i] ? "plumbing" : "program"}});
}

void log_bytecode(const Code& code) {
  if (log::enabled(log::Kind::Bytecode))
    log::emit(log::Kind::Bytecode, "",
              {{"code", text_of(code.code->co_qualname)}, {"instructions", std::to_string(code.instructions.size())}},
              to_text(code));
}

// Limits of a trace under FRAMEJIT_TRACE_ALL. It meets loops of any length, and traces again from each break inside an
// inlined call.
constexpr uint64_t kShortTrace = 2000;
constexpr int kShallowTrace = 12;

TraceOptions trace_options(const CompileOptions& options, const TraceHints& hints) {
  TraceOptions result;
  result.hints = hints;
  result.hints.dynamic_all = options.dynamic == 1;
  result.hints.dynamic_never = options.dynamic == 0;
  if (options.every_frame) {
    result.max_steps = kShortTrace;
    result.max_inline_depth = kShallowTrace;
  }
  return result;
}

// Exit, effects and outputs of the trace, in recipe order: first what the exit needs, then the writes.
void plan_exit(FrameTrace& trace, RecipeBuilder& recipe, Segment& segment) {
  if (trace.returned) {
    segment.exit = ExitKind::returned;
    segment.returned = recipe.slot(trace.returned);
    segment.leaves_handler = trace.leaves_handler;
    segment.handled = recipe.slot(trace.handled);
  } else {
    segment.exit = ExitKind::broke;
    for (size_t i = 0; i < trace.exit.size(); ++i)
      segment.frames.push_back(plan_frame(recipe, *trace.exit[i].frame, i + 1 == trace.exit.size(), i == 0));
    segment.reason = trace.reason;
    segment.where = trace.where;
  }
  recipe.add_effects();
  recipe.begin_end();
  if (trace.returned && trace.returned_from->is_resumed)
    segment.frames.push_back(plan_end(recipe, *trace.returned_from));
}

template <class T> T take_or_break(Result<T> result) {
  if (result.ok()) return result.take();
  graph_break(result.error().reason, result.error().message);
}

// Other threads run meanwhile, except while plans are timed.
Result<graph::CompiledGraph> ask_compiler(Recording& recording, graph::CapturedGraph captured,
                                          const CompileOptions& options) {
  try {
    if (options.autotune)
      return graph::compiler().compile(std::move(captured), options.backend, recording.make_timer());
    const Unlocked others_run;
    return graph::compiler().compile(std::move(captured), options.backend);
  } catch (const graph::NoInt64& e) { return Error{Reason::size_out_of_range, e.what()}; }
}

std::vector<bool> weights_of(const FrameTrace& trace) {
  std::vector<bool> weights;
  for (guards::SourceId owner : trace.input_owners) weights.push_back(owner != guards::kNoSource);
  return weights;
}

std::vector<guards::SourceId> owners_of(const FrameTrace& trace) {
  std::vector<guards::SourceId> owners;
  for (guards::SourceId owner : trace.input_owners)
    if (owner != guards::kNoSource) owners.push_back(owner);
  return owners;
}

// When the backward is recorded, the formulas of autograd read numbers that they have saved. Such a number is guarded.
void guard_numbers_of_formulas(FrameTrace& trace) {
  CallStack no_frames;
  Facts facts(trace, no_frames);
  guard_number_reads(trace, facts);
}

// The graph, if there is one. False with a Python error set if a user's backend raised.
bool compile_graph(FrameTrace& trace, const RecipeBuilder& recipe, Segment& segment) {
  if (trace.recording->op_count() == 0 && recipe.traced_outputs().empty()) return true;
  graph::CapturedGraph captured = take_or_break(trace.recording->build(recipe.traced_outputs()));
  guard_numbers_of_formulas(trace);
  if (captured.joint && segment.options->user_backend != nullptr)
    graph_break(Reason::unsupported_tensor,
                "a tensor that needs a gradient (under torch.no_grad() none does), for a backend of the program,");
  captured.weights = weights_of(trace);
  const size_t known = captured.graph.shapes.facts().size();
  graph::CompiledGraph compiled = take_or_break(ask_compiler(*trace.recording, std::move(captured), *segment.options));
  // Guards what the passes assumed about sizes.
  const auto& facts = compiled.functional.shapes.facts();
  graph::ShapeEnv& shapes = trace.recording->shapes();
  const size_t of_trace = shapes.facts().size();
  for (size_t i = known; i < facts.size(); ++i) shapes.add_fact(facts[i]);
  shapes.add_line(of_trace, trace.where);
  const log::Stopwatch stopwatch(trace.where, "make_call");
  segment.call =
      trace.recording->bind(std::move(compiled), segment.options->user_backend, segment.options->deriving);
  return segment.call != nullptr;
}

void compile_guards(FrameTrace& trace, std::vector<guards::SourceId> wanted, PyCodeObject* code, Segment& segment) {
  const log::Stopwatch stopwatch(trace.where, "guards");
  trace.guards.size_facts = trace.recording->shapes().facts();
  trace.guards.symbol_count = trace.recording->shapes().symbol_count();
  for (guards::SourceId source = 0; source < trace.guards.sources.size();
       ++source)  // even if nobody asks for it: it may raise
    if (trace.guards.sources[source].kind == guards::SourceKind::computed) wanted.push_back(source);
  wanted.insert(wanted.end(), trace.bound_sources.begin(), trace.bound_sources.end());
  auto program = guards::GuardProgram::compile(std::move(trace.guards), wanted, code);
  if (!program.ok()) throw InternalError("guards: " + program.error().message);
  segment.guards = program.take();
}

// A graph that writes to an input is valid only for inputs that overlap it the way those of the trace did.
std::vector<guards::SourceId> plan_memory(const FrameTrace& trace, Segment& segment) {
  std::vector<guards::SourceId> sources;
  const std::vector<size_t> written = trace.recording->written_inputs();
  if (written.empty() || trace.input_sources.size() < 2) return sources;
  segment.written_count = written.size();
  for (size_t i : written) sources.push_back(trace.input_sources[i]);
  for (const guards::Guard& guard : trace.guards.guards())  // the other inputs that are tensors
    if (guard.kind == guards::GuardKind::tensor && std::ranges::count(trace.input_sources, guard.source) > 0 &&
        std::ranges::count(sources, guard.source) == 0)
      sources.push_back(guard.source);
  return sources;
}

std::vector<size_t> registers_of(const std::vector<guards::SourceId>& sources, const guards::GuardProgram& guards) {
  std::vector<size_t> registers;
  for (guards::SourceId source : sources) registers.push_back(guards.register_of(source));
  std::sort(registers.begin(), registers.end());
  registers.erase(std::unique(registers.begin(), registers.end()), registers.end());
  return registers;
}

// The recipe, and what becomes of its slots.
std::string exit_text(const Segment& segment) {
  const auto slots = [](const std::vector<SlotId>& of) {
    std::string text;
    for (const SlotId slot : of) text += " " + slot_text(slot);
    return text;
  };
  std::string text = segment.recipe.text();
  if (segment.exit == ExitKind::returned) text += "returns " + slot_text(segment.returned) + "\n";
  else
    for (const FramePlan& frame : segment.frames)
      text += "frame with locals" + slots(frame.locals) + ", stack" + slots(frame.stack) + "\n";
  return text;
}

std::unique_ptr<Segment> build_segment(FrameTrace& trace, const guards::FrameAccess& frame,
                                       const std::shared_ptr<const CompileOptions>& options) {
  auto segment = std::make_unique<Segment>();
  segment->options = options;
  segment->steps = trace.steps;
  segment->answer = trace.answer;
  RecipeBuilder recipe(trace, *tensor_frontend());
  plan_exit(trace, recipe, *segment);
  if (!compile_graph(trace, recipe, *segment)) return nullptr;
  std::vector<guards::SourceId> wanted = recipe.wanted_sources();
  if (segment->call) wanted.insert(wanted.end(), trace.input_sources.begin(), trace.input_sources.end());
  const std::vector<guards::SourceId> memory =
      segment->call ? plan_memory(trace, *segment) : std::vector<guards::SourceId>();
  std::vector<guards::SourceId> locks;
  for (const Value* lock : trace.side_tables.taken_locks) locks.push_back(lock->source);
  wanted.insert(wanted.end(), locks.begin(), locks.end());
  const std::vector<guards::SourceId> owners = segment->call ? owners_of(trace) : std::vector<guards::SourceId>();
  std::vector<guards::SourceId> fetched = wanted;
  fetched.insert(fetched.end(), owners.begin(), owners.end());
  compile_guards(trace, fetched, frame.code, *segment);
  segment->owner_registers = registers_of(owners, *segment->guards);
  segment->lock_registers = registers_of(locks, *segment->guards);
  if (segment->call)
    for (guards::SourceId source : trace.input_sources)
      segment->input_registers.push_back(segment->guards->register_of(source));
  for (guards::SourceId source : memory) segment->memory_registers.push_back(segment->guards->register_of(source));
  segment->kept_registers = registers_of(wanted, *segment->guards);
  segment->recipe = recipe.build([&](guards::SourceId source) { return segment->guards->register_of(source); });
  if (log::enabled(log::Kind::Exit))
    log::emit(log::Kind::Exit, "", {{"steps", std::to_string(segment->recipe.steps().size())}}, exit_text(*segment));
  return segment;
}

// `until`: the code unit at which native execution stops, because its instruction cannot be traced; -1: none. After a
// trace that became too long, the next one would be too long as well, so the rest of the frame runs plainly.
std::unique_ptr<Segment> plain_segment(FrameTrace& trace, Reason reason, int until,
                                       const guards::FrameAccess& frame,
                                       const std::shared_ptr<const CompileOptions>& options) {
  auto segment = std::make_unique<Segment>();
  segment->options = options;
  segment->exit = ExitKind::plain;
  segment->plain_until = reason == Reason::trace_too_long ? -1 : until;
  segment->reason = reason;
  segment->where = trace.where;
  segment->overlapping = reason == Reason::overlapping_inputs;
  const std::vector<guards::SourceId> memory =
      segment->overlapping ? plan_memory(trace, *segment) : std::vector<guards::SourceId>();
  compile_guards(trace, memory, frame.code, *segment);
  for (guards::SourceId source : memory) segment->memory_registers.push_back(segment->guards->register_of(source));
  return segment;
}

}  // namespace

CompileOutcome compile_segment(const guards::FrameAccess& frame, std::shared_ptr<const Code> code, int index,
                               const std::shared_ptr<const CompileOptions>& options, const TraceHints& hints) {
  const auto start = Clock::now();
  CompileOutcome outcome;
  log_bytecode(*code);
  FrameTrace trace = trace_frame(*tensor_frontend(), trace_options(*options, hints), frame, code,
                                 static_cast<size_t>(code->position_at(index)));
  const double traced = seconds_since(start);
  stats().trace_seconds += traced;
  log::emit_stage(trace.where, "trace", traced * 1e3);
  stats().traced_instructions += trace.steps;
  stats().inlined_calls += trace.python_calls_inlined;
  outcome.broke = trace.returned == nullptr;
  outcome.reason = trace.reason;
  outcome.detail = trace.detail;
  outcome.where = trace.where;

  const Instruction* stopped_at = trace.returned ? nullptr : &code->instructions[trace.exit[0].frame->position];
  if (stopped_at) outcome.at = stopped_at->opcode_index;
  const bool tensor_work = trace.recording->op_count() > 0;
  if (options->whole && (outcome.broke || !tensor_work)) {
    // The function is compiled whole or not at all: no segment is made, and no break is counted.
  } else if (!tensor_work && !options->every_frame && stopped_at && trace.exit.size() == 1) {
    outcome.segment = plain_segment(trace, trace.reason, stopped_at->index, frame, options);
  } else {
    try {
      outcome.segment = build_segment(trace, frame, options);
    } catch (const GraphBreak& b) {
      // Something at the exit cannot be rebuilt, or no graph can be made: plain Python runs up to the break.
      outcome.broke = true;
      outcome.failed = is_failure(b.reason);
      outcome.reason = b.reason;
      outcome.detail = b.detail;
      if (!options->whole)
        outcome.segment = plain_segment(trace, b.reason, stopped_at ? stopped_at->index : -1, frame, options);
      if (outcome.segment) outcome.segment->failed = outcome.failed;
    }
  }
  if (outcome.broke && (options->fullgraph || log::enabled(log::Kind::Break)))
    outcome.caret = caret_text(trace.place.file.get(), trace.place.span);
  if (interrupt_is_kept()) throw Interrupted{};
  if (outcome.broke && outcome.reason == Reason::interrupted) count_interrupted(outcome.detail, outcome.where);
  else if (outcome.broke && !outcome.failed && !options->whole)
    count_break(outcome.reason, outcome.detail, outcome.where, outcome.caret, options->fullgraph);
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
  log::emit_stage(trace.where, "compile", seconds * 1e3);
  return outcome;
}

}  // namespace framejit::frame_hook
