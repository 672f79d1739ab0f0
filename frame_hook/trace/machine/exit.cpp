// frame_hook/trace/machine/exit.cpp — whether the exit of a trace can be rebuilt; if not, where the next attempt stops.
#include "frame_hook/trace/machine/exit.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "frame_hook/trace/machine/reachable.h"
#include "frame_hook/trace/types/builtins.h"

namespace framejit::frame_hook {

namespace {

// Where execution continues if the clause at `position` ("except Name:") lets GeneratorExit pass; -1 if it may catch
// it.
int32_t after_clause(Dicts& dicts, const SymbolicFrame& f, int32_t position) {
  const Instruction* i = f.code->instructions.data() + position;
  if (i[0].op != Op::load_global || i[1].op != Op::check_exc_match || i[2].op != Op::pop_jump_if_false) return -1;
  auto* globals = as<DictValue>(f.globals);
  auto* builtins = as<DictValue>(f.builtins);
  Value* name = dicts.heap.constant_value(i[0].object);
  Value* type = dicts.get(globals, name);
  if (!type) type = dicts.get(builtins, name);
  PyObject* caught = type ? real_type(type) : nullptr;
  if (!caught ||
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(PyExc_GeneratorExit), reinterpret_cast<PyTypeObject*>(caught)))
    return -1;
  dicts.facts.guard_identity(type);
  return i[2].target_position;
}

// When a generator is dropped half-way, the code that protects its frame (finally, with) runs, at a time that the trace
// does not know. Clauses that let GeneratorExit pass run nothing.
bool runs_code_when_dropped(Dicts& dicts, const GeneratorValue* generator) {
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
      if ((at = after_clause(dicts, f, at)) < 0) return true;
    while (instructions[at].op == Op::copy || instructions[at].op == Op::pop_except) ++at;
    if (instructions[at].op != Op::reraise) return true;
    raising = at;
  }
  return true;
}

struct Obstacle {  // what cannot be rebuilt at the exit, and the step to stop before
  uint64_t step;
  std::string what;
};

std::optional<Obstacle> find_obstacle(Tracer& t, const FrameTrace& trace) {
  std::optional<Obstacle> earliest;
  auto before = [&](uint64_t step, std::string what) {
    if (!earliest || step < earliest->step) earliest = {step, std::move(what)};
  };
  auto before_generator = [&](const GeneratorValue* v) {
    before(t.machine.generators().at(v),
           std::string("the running generator ") + text_of(v->function->code->co_qualname));
  };
  const auto leaf_made_at = [&](const Value* v) -> const uint64_t* {
    const auto made = trace.side_tables.gradients.new_leaves.find(v);
    return made == trace.side_tables.gradients.new_leaves.end() ? nullptr : &made->second;
  };
  auto visit = [&](Value* v) {
    if (v->kind == ValueKind::identity) before(as<IdentityValue>(v)->made_at, "id()");
    if (v->kind == ValueKind::array && as<ArrayValue>(v)->root->is_shared)
      before(as<ArrayValue>(v)->root->shared_at, "an array that shares memory with a tensor");
    if (const uint64_t* made_at = leaf_made_at(v)) before(*made_at, "a leaf that was made here");
    if (const auto* raised = t.attempts.find_raise(v)) before(raised->step, "the traceback of an exception");
    if (v->kind != ValueKind::generator) return;
    const auto* generator = as<GeneratorValue>(v);
    if (generator->state == GeneratorValue::State::suspended || generator->state == GeneratorValue::State::running)
      before_generator(generator);
  };
  Reachable reachable(visit);
  if (trace.returned) reachable.walk(trace.returned);
  if (trace.handled) reachable.walk(trace.handled);
  for (Value* v : trace.effects) reachable.walk(v);
  for (const auto& [callable, arguments] : trace.side_tables.calls_at_exit)
    for (Value* v : arguments.positional) reachable.walk(v);
  for (const auto& [tensor, gradient] : trace.side_tables.gradients.values)
    if (tensor->object) reachable.walk(gradient);
  for (const FrameExit& exit : trace.exit) {
    SymbolicFrame& frame = *exit.frame;
    for (Value* v : frame.stack) reachable.walk(v);
    for (size_t slot = 0; slot < frame.locals.size(); ++slot) {
      Value* v = frame.locals[slot];
      const bool has_a_past = v && (v->kind == ValueKind::generator || v->kind == ValueKind::identity ||
                                    v->kind == ValueKind::array || t.attempts.find_raise(v) || leaf_made_at(v));
      if (has_a_past && !frame.code->is_live(static_cast<int>(frame.position), static_cast<int>(slot)))
        frame.locals[slot] = nullptr;
      else reachable.walk(v);
    }
    for (Value* v : frame.handled)
      if (const auto* raised = t.attempts.find_raise(v)) before(raised->step, "an exception that is being handled");
  }
  PyObject* const record = trace.side_tables.warnings.empty() ? nullptr : record_of_warnings();
  if (record && t.heap.find(record))
    before(trace.side_tables.warnings.front().step, "a warning that goes to a list of the program");
  for (const auto& [lock, step] : t.attempts.held_locks()) before(step, "a lock that is taken here and kept");
  for (const auto& [generator, step] : t.machine.generators())
    if (runs_code_when_dropped(t.dicts, generator)) before_generator(generator);
  return earliest;
}

// A written object and a read object of the same type were different objects in the trace, and must be different in
// later calls.
void guard_effects_apart(Heap& heap, FrameTrace& trace) {
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
  for (size_t k = 0; k < trace.effects.size(); ++k) {
    Value* written = trace.effects[k];
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
      heap.facts.add_guard(std::move(guard));
    }
  }
}

// A dict that the trace read or wrote: the __dict__ of an object, or one that was met as a value.
struct UsedDict {
  guards::SourceId source;
  PyObject* object;  // borrowed; null: not a dict
  bool is_own;  // the source goes through an object
  bool is_listed = false;  // all its keys were read, or their number
  bool changes_keys = false;  // a write adds or removes one
  std::vector<std::string_view> names = {};
};

UsedDict used_dict(Heap& heap, guards::SourceId source) {
  const guards::Source& path = heap.facts.sources()[source];
  const bool is_own = path.kind == guards::SourceKind::instance_dict;
  const Value* of = heap.find(is_own ? path.base : source);
  PyObject* object = of ? of->object.get() : nullptr;
  PyObject** own = is_own && object ? _PyObject_GetDictPtr(object) : nullptr;
  if (is_own) object = own ? *own : nullptr;
  return {source, object && PyDict_Check(object) ? object : nullptr, is_own};
}

// Finds the dicts that the trace read: those whose keys it guards.
std::vector<UsedDict> read_dicts(Heap& heap) {
  std::vector<UsedDict> found;
  std::unordered_map<guards::SourceId, size_t> at;
  for (const guards::Guard& guard : heap.facts.guards().guards()) {
    const bool is_key = guard.kind == guards::GuardKind::dict_has || guard.kind == guards::GuardKind::dict_lacks;
    const bool is_all = guard.kind == guards::GuardKind::dict_keys || guard.kind == guards::GuardKind::dict_key_set ||
                        guard.kind == guards::GuardKind::length;
    if (!(is_all || (is_key && PyUnicode_CheckExact(guard.object.get())))) continue;
    const auto [place, fresh] = at.try_emplace(guard.source, found.size());
    if (fresh) found.push_back(used_dict(heap, guard.source));
    UsedDict& dict = found[place->second];
    if (is_key) dict.names.push_back(text_of(guard.object.get()));
    else dict.is_listed = true;
    const bool has_keys = is_all && guard.kind != guards::GuardKind::length;
    for (Py_ssize_t i = 0; has_keys && i < PyTuple_GET_SIZE(guard.object.get()); ++i)
      if (PyObject* key = PyTuple_GET_ITEM(guard.object.get(), i); PyUnicode_CheckExact(key))
        dict.names.push_back(text_of(key));
  }
  return found;
}

std::vector<UsedDict> written_dicts(Heap& heap, const FrameTrace& trace) {
  std::vector<UsedDict> found;
  for (Value* v : trace.effects) {
    if (!v->object || v->source == guards::kNoSource) continue;
    const bool is_instance = v->kind == ValueKind::instance && !as<InstanceValue>(v)->attrs.empty();
    if (!is_instance && !(v->kind == ValueKind::dict && PyDict_Check(v->object.get()))) continue;
    const guards::SourceId source =
        is_instance ? heap.facts.sources().add(guards::SourceKind::instance_dict, v->source) : v->source;
    UsedDict& dict = found.emplace_back(used_dict(heap, source));
    if (!is_instance) dict.object = v->object.get();
    std::unordered_set<PyObject*> before;
    PyObject *key, *item;
    for (Py_ssize_t position = 0; dict.object && PyDict_Next(dict.object, &position, &key, &item);) before.insert(key);
    const auto note = [&](PyObject* written, bool stays) {  // null: a key that the trace made
      if (written && PyUnicode_CheckExact(written)) dict.names.push_back(text_of(written));
      dict.changes_keys = dict.changes_keys || !stays || !before.contains(written);
    };
    if (is_instance)
      for (const auto& [name, to] : as<InstanceValue>(v)->attrs) note(name.get(), to);
    else
      for (const DictEntry& e : as<DictValue>(v)->entries)
        note(e.key->object.get(), e.value || as<DictValue>(v)->loaded);
    if (is_instance || !as<DictValue>(v)->loaded) continue;
    dict.changes_keys = dict.changes_keys || as<DictValue>(v)->entries.size() != before.size();
    for (PyObject* removed : before)
      if (PyUnicode_CheckExact(removed)) dict.names.push_back(text_of(removed));
  }
  return found;
}

// Other calls may pass objects that share one __dict__, or a dict together with the object whose __dict__ it is.
void guard_own_dicts_apart(Heap& heap, const FrameTrace& trace) {
  const std::vector<UsedDict> written = written_dicts(heap, trace);
  if (written.empty()) return;
  std::vector<UsedDict> others = read_dicts(heap);
  others.insert(others.end(), written.begin(), written.end());
  std::unordered_map<std::string_view, std::vector<const UsedDict*>> by_name;
  std::vector<const UsedDict*> listed;
  for (const UsedDict& other : others) {
    if (other.is_listed) listed.push_back(&other);
    for (const std::string_view name : other.names) by_name[name].push_back(&other);
  }
  const auto keep_apart = [&](const UsedDict& a, const UsedDict& b) {
    if (a.source == b.source || !(a.is_own || b.is_own) || !a.object || !b.object || a.object == b.object) return;
    guards::Guard guard;
    guard.kind = guards::GuardKind::distinct;
    guard.source = std::min(a.source, b.source);
    guard.other = std::max(a.source, b.source);
    heap.facts.add_guard(std::move(guard));
  };
  for (const UsedDict& one : written) {
    for (const std::string_view name : one.names)
      for (const UsedDict* other : by_name[name]) keep_apart(one, *other);
    if (!one.changes_keys) continue;
    for (const UsedDict* other : listed) keep_apart(one, *other);
  }
}

}  // namespace

bool accept_exit(Tracer& t, FrameTrace& trace) {
  const auto obstacle = find_obstacle(t, trace);
  if (!obstacle) {
    guard_effects_apart(t.heap, trace);
    guard_own_dicts_apart(t.heap, trace);
    return true;
  }
  if (trace.returned) {
    t.attempts.stop_before(obstacle->step, Reason::escaped_traced, obstacle->what, "");
  } else {
    t.attempts.stop_before(obstacle->step, trace.reason, trace.detail, trace.where);
  }
  return false;
}

}  // namespace framejit::frame_hook
