// frame_hook/trace/machine/tracer.cpp — attempts at tracing a frame, and the loop that executes instructions.
//
// A graph break happens in the middle of an instruction, when values have been written and ops recorded. To get the
// state before the instruction, tracing starts again from the beginning with stop_at_step_ set. Tracing is
// deterministic, so step n is the same instruction. If the frames at the exit cannot be rebuilt, the stop moves
// outwards, and tracing starts again. That is so for a callee that cannot be resumed in place, a generator that is
// half-way, and an exception being handled (its traceback exists only natively).
#include "frame_hook/trace/machine/tracer.h"

#include <algorithm>
#include <unordered_set>

#include "frame_hook/trace/machine/opcode_handlers.h"
#include "frame_hook/trace/protocol/protocol.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "graph/int64_range.h"
#include "guards/cpython/interpreter_end.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/running_compile.h"
#include "runtime/base/c_stack.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

using guards::SourceKind;

namespace {

constexpr uint64_t kPollInterval = 1024;

}  // namespace

Tracer::Tracer(TensorFrontend& frontend, const TraceOptions& options)
    : options_(options),
      dynamic(options_.hints, trace_.guards.sources),
      heap(trace_, stack, facts, dynamic, frontend),
      frontend_(frontend),
      answer_(options.hints.answers_compiling ? CompilingAnswer::yes : CompilingAnswer::no_as_before) {
  set_interrupt_reader(compile_interrupted);  // for the passes and the code generation that follow
}

void Tracer::stop_place_here() {
  stop_where_ = stack.here();
  if (stack.frames().empty()) return;
  // A trace that begins in library code, as after a break in an inlined call, has no line of the program.
  const auto is_library = [](const auto& f) { return is_library_file(f->code->code->co_filename); };
  if (std::ranges::all_of(stack.frames(), is_library)) stop_where_ = place_of_caller() + stop_where_;
  const SymbolicFrame& f = *stack.frames().back();
  stop_place_ = {PyRef::borrow(f.code->code->co_filename), f.code->span(f.code->instructions[f.position])};
}

void Tracer::set_user_line() {
  const SymbolicFrame& user = stack.user_frame();
  PyCodeObject* code = user.code->code;
  const int number = user.code->instructions[user.position].line;
  if (last_line_ == std::pair(code, number)) return;
  last_line_ = {code, number};
  const char* name = PyUnicode_AsUTF8(code->co_qualname);
  recording().set_line({file_name(code), number, name ? name : "?"});
}

// ---- attempts

FrameTrace Tracer::trace_frame(const guards::FrameAccess& frame, std::shared_ptr<const Code> code, size_t start) {
  stop_at_step_ = UINT64_MAX;
  stop_facts_.clear();
  if (code->is_generator_like())
    stop_before(1, Reason::generator_frame, PyUnicode_AsUTF8(code->code->co_qualname), "");
  int attempts = 0;
  while (!attempt(frame, code, start)) {
    if (interrupt_is_kept()) throw Interrupted{};
    FJ_ASSERT(++attempts < 100, "a trace that never ends in an exit");
  }
  if (compiling_was_asked_) trace_.answer = answer_;
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
  raised_at_.clear();
  errors.reset();
  generator_made_at_.clear();
  dropped_real_ = compiling_was_asked_ = false;
  break_step_.reset();
  last_line_ = {nullptr, 0};
  keys_.clear();
  break_facts_.clear();
  live_ = frame;
  heap.reset();
  dynamic.reset(frame.code);
  step_ = 0;
  next_poll_ = std::min(stop_at_step_, kPollInterval);
}

void Tracer::stop_before(uint64_t step, Reason reason, std::string detail, std::string where) {
  FJ_ASSERT(step < stop_at_step_, "a second trace of a frame took different steps");
  stop_at_step_ = step;
  stop_reason_ = reason;
  stop_detail_ = std::move(detail);
  stop_where_ = std::move(where);
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
    trace_.guards.modes.insert(trace_.guards.modes.end(), stop_facts_.begin(), stop_facts_.end());
    trace_.reason = stop_reason_;
    trace_.detail = stop_detail_;
    if (!stop_where_.empty()) trace_.where = stop_where_;
    trace_.place = stop_place_;
  } catch (const GraphBreak& b) {
    if (changes_answer_at_break(b)) return false;
    stop_facts_ = std::exchange(break_facts_, {});
    stop_before(break_step_.value_or(1), b.reason, b.detail, stop_where_);
    return false;
  } catch (const SymbolicRaise& raised) {
    if (changes_answer_after_error()) return false;
    const RaisePoint& point = raised_at_.at(raised.exception);
    stop_before(point.step, Reason::exception_raised, raised.exception->type->tp_name, point.where);
    return false;
  }
  trace_.steps = step_;
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

// ---- where a trace may stop

bool Tracer::resumable_here() const { return resumable_step() == stack.frames().back()->step_at_instruction; }

uint64_t Tracer::resumable_step() const {
  uint64_t step = 1;
  for (const auto& frame : stack.frames()) {
    if (frame->generator) break;
    step = frame->step_at_instruction;
    if (frame->on_return == OnReturn::not_resumable) break;
  }
  if (trace_.protocol && !trace_.protocol->locks.held.empty())
    step = std::min(step, trace_.protocol->locks.held.front().second);
  return step;
}

void Tracer::stop_here() {
  for (const auto& frame : stack.frames()) trace_.exit.push_back({frame});
  throw StopTracing{};
}

void Tracer::poll() {
  if (step_ == stop_at_step_) stop_here();
  next_poll_ = std::min(stop_at_step_, step_ + kPollInterval);
  if (interrupt_is_kept()) throw Interrupted{};
  Reason reason{};
  std::string detail;
  if (step_ >= options_.max_steps) {
    reason = Reason::trace_too_long;
    detail = std::to_string(options_.max_steps);
  } else if (ctrl_c_is_pending()) {
    reason = Reason::interrupted;
    detail = "a signal";
  } else {
    return;
  }
  if (!resumable_here()) {  // soon
    next_poll_ = step_ + 1;
    return;
  }
  stop_reason_ = reason;
  stop_detail_ = detail;
  stop_place_here();
  stop_here();
}

namespace {

// Values that an exit would have to rebuild, and real iterators, each once.
class Reachable {
 public:
  explicit Reachable(std::function<void(Value*)> visit) : visit_(std::move(visit)) {}
  void walk(Value* root) {
    add(root);
    while (!pending_.empty()) {
      Value* v = pending_.back();
      pending_.pop_back();
      visit_(v);
      add_parts(v);
    }
  }

 private:
  void add(Value* v) {
    if (v && v->kind != ValueKind::null && (v->kind != ValueKind::object || may_be_half_way(v->type)) &&
        seen_.insert(v).second)
      pending_.push_back(v);
  }
  void add(const std::vector<Value*>& values) {
    for (Value* v : values) add(v);
  }
  void add_parts(Value* v) {
    switch (v->kind) {
      case ValueKind::tuple: add(as<TupleValue>(v)->items); break;
      case ValueKind::list: add(as<ListValue>(v)->items); break;
      case ValueKind::set: add(as<SetValue>(v)->items); break;
      case ValueKind::dict:
        for (const DictEntry& e : as<DictValue>(v)->entries) {
          add(e.key);
          add(e.value);
        }
        break;
      case ValueKind::cell: add(as<CellValue>(v)->contents); break;
      case ValueKind::function:
        add(as<FunctionValue>(v)->closure);
        add(as<FunctionValue>(v)->defaults);
        break;
      case ValueKind::method:
        add(as<MethodValue>(v)->function);
        add(as<MethodValue>(v)->self);
        break;
      case ValueKind::instance:
        add(as<InstanceValue>(v)->payload);
        for (const auto& [name, attribute] : as<InstanceValue>(v)->attrs) add(attribute);
        break;
      case ValueKind::iterator: add(as<IteratorValue>(v)->operands); break;
      case ValueKind::view: add(as<ViewValue>(v)->dict); break;
      case ValueKind::super: add(as<SuperValue>(v)->self); break;
      case ValueKind::generator:
        if (as<GeneratorValue>(v)->state == GeneratorValue::State::created) add(as<GeneratorValue>(v)->frame->locals);
        break;
      case ValueKind::null:
      case ValueKind::object:
      case ValueKind::tensor:
      case ValueKind::sym_int:
      case ValueKind::slice:
      case ValueKind::identity: case ValueKind::array: break;
    }
  }

  std::function<void(Value*)> visit_;
  std::unordered_set<Value*> seen_;
  std::vector<Value*> pending_;
};

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
    if (const auto raised = raised_at_.find(v); raised != raised_at_.end())
      before(raised->second.step, "the traceback of an exception");
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
                                    v->kind == ValueKind::array || raised_at_.contains(v) || leaf_made_at(v));
      if (has_a_past && !frame.code->is_live(static_cast<int>(frame.position), static_cast<int>(slot)))
        frame.locals[slot] = nullptr;
      else reachable.walk(v);
    }
    for (Value* v : frame.handled)
      if (auto raised = v ? raised_at_.find(v) : raised_at_.end(); raised != raised_at_.end())
        before(raised->second.step, "an exception that is being handled");
  }
  if (trace_.protocol)
    for (const auto& [lock, step] : trace_.protocol->locks.held) before(step, "a lock that is taken here and kept");
  for (const auto& [generator, step] : generator_made_at_)
    if (runs_code_when_dropped(*this, generator)) before_generator(generator);
  return earliest;
}

namespace {

// A real object that a frame holds: dropping it there may drop the last reference.
bool is_held_by_frame(Facts& facts, Value* v) {
  const SourceKind kind = v->source == guards::kNoSource ? SourceKind::constant : facts.sources()[v->source].kind;
  return kind == SourceKind::local || kind == SourceKind::stack || kind == SourceKind::cell_contents ||
         kind == SourceKind::iterator_part;
}

// The dropped object must not be a generator in later calls either.
void guard_dropped(Facts& facts, Value* v) {
  if (!is_held_by_frame(facts, v)) return;
  facts.type_of(v);
  if (v->kind != ValueKind::iterator) return;
  if (v->object && !v->value_guarded) guard_parts(facts, as<IteratorValue>(v));
  for (Value* part : as<IteratorValue>(v)->operands) guard_dropped(facts, part);
}

}  // namespace

// A real generator that the trace drops lives on until the exit; plain Python runs its exit code at the drop.
void Tracer::drops(Value* v, Value* kept) {
  if (!v || v->kind == ValueKind::null || v->kind == ValueKind::tensor) return;
  guard_dropped(facts, v);
  dropped_real_ = dropped_real_ || (v->kind != ValueKind::object && v->kind != ValueKind::function && v->object &&
                                    is_held_by_frame(facts, v));
  std::vector<Value*> dropped;
  if (is_held_by_frame(facts, v) && holds_half_way(v->object.get())) dropped.push_back(v);
  if (!heap.has_half_way() && dropped.empty()) return;
  Reachable([&](Value* part) {
    if (part->object && may_be_half_way(part->type)) dropped.push_back(part);
  }).walk(v);
  if (dropped.empty()) return;
  Reachable held([&](Value* part) { std::erase(dropped, part); });
  if (kept) held.walk(kept);
  for (Value* written : trace_.effects) held.walk(written);
  for (const auto& frame : stack.frames()) {
    for (Value* entry : frame->stack) held.walk(entry);
    for (Value* local : frame->locals) held.walk(local);
  }
  if (!dropped.empty())
    graph_break(Reason::real_iterator, std::string(dropped.front()->type->tp_name) + " that is dropped here");
}

// An object that a del statement drops may die at once, and weak references show that.
void Tracer::deletes(Value* v) {
  drops(v);
  if (v->kind == ValueKind::tensor || !v->object || !is_held_by_frame(facts, v)) return;
  if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(v->object.get())) && *PyObject_GET_WEAKREFS_LISTPTR(v->object.get()))
    graph_break(Reason::outside_effect, "del of an object with weak references");
}

void Tracer::drop_locals(SymbolicFrame& f) {
  const std::vector<Value*> locals = std::exchange(f.locals, {});
  for (Value* v : locals) drops(v, f.result);
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
    stop_before(obstacle->step, Reason::escaped_traced, obstacle->what, "");
  } else {
    stop_before(obstacle->step, trace_.reason, trace_.detail, trace_.where);
  }
  return false;
}

// ---- the loop

Value* Tracer::run_frame(std::shared_ptr<SymbolicFrame> frame) {
  SymbolicFrame& f = *frame;
  // How much stack is left differs a little between traces of a frame: only the first checks.
  const bool is_first = stop_at_step_ == UINT64_MAX;
  if (stack.frames().size() > static_cast<size_t>(options_.max_inline_depth) || (is_first && c_stack_is_low()))
    graph_break(Reason::recursion_limit, PyUnicode_AsUTF8(f.code->code->co_qualname));
  stack.push(std::move(frame));
  struct Leave {
    CallStack& stack;
    ~Leave() { stack.pop(); }
  } leave{stack};
  const auto stop_here_once = [this] {
    if (break_step_) return;
    break_step_ = resumable_step();
    break_frames_.clear();
    break_handled_ = 0;
    for (const auto& frame : stack.frames()) {
      break_frames_.emplace_back(frame->code->code, frame->position);
      break_handled_ += frame->handled.size() - std::ranges::count(frame->handled, nullptr);
    }
    stop_place_here();
  };
  for (;;) {
    Value* raised = nullptr;
    try {
      run_instructions(f);
      if (heap.has_half_way() && !f.yielded && stack.frames().size() > 1) drop_locals(f);
      return f.result;
    } catch (const SymbolicRaise& r) {
      raised = r.exception;
      errors.forget_own_error(raised);  // from here on it is an exception of the program
      if (!raised_at_.contains(raised)) raised_at_.emplace(raised, RaisePoint{resumable_step(), stack.here()});
    } catch (const GraphBreak&) {
      stop_here_once();
      throw;
    } catch (const graph::NoInt64& e) {
      stop_here_once();
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
    if (!i.has(Instruction::kSecondHalf)) {
      f.step_at_instruction = ++step_;
      f.on_return = OnReturn::not_resumable;
      if (step_ >= next_poll_) [[unlikely]]
        poll();
    }
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
