// frame_hook/trace/machine/exit.cpp — whether the exit of a trace can be rebuilt; if not, where the next attempt stops.
#include <algorithm>

#include "frame_hook/trace/machine/reachable.h"
#include "frame_hook/trace/machine/tracer.h"
#include "frame_hook/trace/protocol/protocol.h"

namespace framejit::frame_hook {

namespace {

// The clause at `position` ("except Name:") lets GeneratorExit pass: returns where execution continues, -1 if it may
// not.
int32_t after_clause(Tracer& t, const SymbolicFrame& f, int32_t position) {
  const Instruction* i = f.code->instructions.data() + position;
  if (i[0].op != Op::load_global || i[1].op != Op::check_exc_match || i[2].op != Op::pop_jump_if_false) return -1;
  auto* globals = as<DictValue>(f.globals);
  auto* builtins = as<DictValue>(f.builtins);
  Value* name = t.heap.constant_value(i[0].object);
  Value* type = t.dict_get(globals, name);
  if (!type) type = t.dict_get(builtins, name);
  PyObject* caught = type ? real_type(type) : nullptr;
  if (!caught ||
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(PyExc_GeneratorExit), reinterpret_cast<PyTypeObject*>(caught)))
    return -1;
  t.facts.guard_identity(type);
  return i[2].target_position;
}

// When a generator is dropped half-way, the code that protects its frame (finally, with) runs, at a time that the trace
// does not know. Clauses that let GeneratorExit pass run nothing.
bool runs_code_when_dropped(Tracer& t, const GeneratorValue* generator) {
  if (generator->state != GeneratorValue::State::suspended) return false;
  const SymbolicFrame& f = *generator->frame;
  const Instruction* instructions = f.code->instructions.data();
  int32_t raising = static_cast<int32_t>(f.position) - 1;
  for (int handlers = 0; handlers < 100; ++handlers) {
    const ExceptionRange* range = f.code->find_handler(instructions[raising].opcode_index);
    if (!range) return false;
    int32_t at = range->target_position;
    if (instructions[at].op == Op::stopiteration_error) return false;
    if (instructions[at].op == Op::push_exc_info) ++at;
    while (instructions[at].op == Op::load_global)
      if ((at = after_clause(t, f, at)) < 0) return true;
    while (instructions[at].op == Op::copy || instructions[at].op == Op::pop_except) ++at;
    if (instructions[at].op != Op::reraise) return true;
    raising = at;
  }
  return true;
}

}  // namespace

std::optional<Tracer::Obstacle> Tracer::find_obstacle() {
  std::optional<Obstacle> earliest;
  auto before = [&](uint64_t step, std::string what) {
    if (!earliest || step < earliest->step) earliest = {step, std::move(what)};
  };
  auto before_generator = [&](const GeneratorValue* v) {
    before(generator_made_at_.at(v),
           std::string("the running generator ") + PyUnicode_AsUTF8(v->function->code->co_qualname));
  };
  const auto leaf_made_at = [&](const Value* v) -> const uint64_t* {
    if (!trace_.protocol) return nullptr;
    const auto made = trace_.protocol->gradients.new_leaves.find(v);
    return made == trace_.protocol->gradients.new_leaves.end() ? nullptr : &made->second;
  };
  auto visit = [&](Value* v) {
    if (v->kind == ValueKind::identity) before(as<IdentityValue>(v)->made_at, "id()");
    if (v->kind == ValueKind::array && as<ArrayValue>(v)->root->is_shared)
      before(as<ArrayValue>(v)->root->shared_at, "an array that shares memory with a tensor");
    if (const uint64_t* made_at = leaf_made_at(v)) before(*made_at, "a leaf that was made here");
    if (const auto* raised = attempts.find_raise(v)) before(raised->step, "the traceback of an exception");
    if (v->kind != ValueKind::generator) return;
    const auto* generator = as<GeneratorValue>(v);
    if (generator->state == GeneratorValue::State::suspended || generator->state == GeneratorValue::State::running)
      before_generator(generator);
  };
  Reachable reachable(visit);
  if (trace_.returned) reachable.walk(trace_.returned);
  if (trace_.handled) reachable.walk(trace_.handled);
  for (Value* v : trace_.effects) reachable.walk(v);
  if (trace_.protocol)
    for (const auto& [callable, arguments] : trace_.protocol->calls_at_exit)
      for (Value* v : arguments.positional) reachable.walk(v);
  if (trace_.protocol)
    for (const auto& [tensor, gradient] : trace_.protocol->gradients.values)
      if (tensor->object) reachable.walk(gradient);
  for (const FrameExit& exit : trace_.exit) {
    SymbolicFrame& frame = *exit.frame;
    for (Value* v : frame.stack) reachable.walk(v);
    for (size_t slot = 0; slot < frame.locals.size(); ++slot) {
      Value* v = frame.locals[slot];
      const bool has_a_past = v && (v->kind == ValueKind::generator || v->kind == ValueKind::identity ||
                                    v->kind == ValueKind::array || attempts.find_raise(v) || leaf_made_at(v));
      if (has_a_past && !frame.code->is_live(static_cast<int>(frame.position), static_cast<int>(slot)))
        frame.locals[slot] = nullptr;
      else reachable.walk(v);
    }
    for (Value* v : frame.handled)
      if (const auto* raised = attempts.find_raise(v)) before(raised->step, "an exception that is being handled");
  }
  PyObject* const record = trace_.protocol && !trace_.protocol->warnings.empty() ? record_of_warnings() : nullptr;
  if (record && heap.find(record))
    before(trace_.protocol->warnings.front().step, "a warning that goes to a list of the program");
  for (const auto& [lock, step] : attempts.held_locks) before(step, "a lock that is taken here and kept");
  for (const auto& [generator, step] : generator_made_at_)
    if (runs_code_when_dropped(*this, generator)) before_generator(generator);
  return earliest;
}

// A written object and a read object of the same type were different objects in the trace, and must be different in
// later calls.
void Tracer::guard_effects_apart() {
  auto was_read = [](const Value* v) {
    if (v->kind == ValueKind::list) return static_cast<const ListValue*>(v)->loaded || v->mutated;
    if (v->kind == ValueKind::set) return static_cast<const SetValue*>(v)->loaded;
    if (v->kind == ValueKind::dict)
      return static_cast<const DictValue*>(v)->loaded || !static_cast<const DictValue*>(v)->read.empty();
    if (v->kind == ValueKind::cell) return static_cast<const CellValue*>(v)->loaded;
    return v->type_guarded;
  };
  auto is_namespace = [](const Value* v) {  // a class counts too: it is guarded by its identity
    return (v->object && PyType_Check(v->object.get())) ||
           (v->kind == ValueKind::dict && static_cast<const DictValue*>(v)->is_globals);
  };
  for (size_t k = 0; k < trace_.effects.size(); ++k) {
    Value* written = trace_.effects[k];
    if (written->source == guards::kNoSource || is_namespace(written)) continue;
    for (const Value* other : heap.all()) {
      if (!other->object || heap.find(other->object.get()) != other || other == written ||
          other->type != written->type || other->source == guards::kNoSource || is_namespace(other) || !was_read(other))
        continue;
      if (other->mutated && other < written) continue;  // once per pair
      guards::Guard guard;
      guard.kind = guards::GuardKind::distinct;
      guard.source = std::min(written->source, other->source);
      guard.other = std::max(written->source, other->source);
      trace_.guards.add(std::move(guard));
    }
  }
}

bool Tracer::accept_exit() {
  const auto obstacle = find_obstacle();
  if (!obstacle) return guard_effects_apart(), true;
  if (trace_.returned) {
    attempts.stop_before(obstacle->step, Reason::escaped_traced, obstacle->what, "");
  } else {
    attempts.stop_before(obstacle->step, trace_.reason, trace_.detail, trace_.where);
  }
  return false;
}

}  // namespace framejit::frame_hook
