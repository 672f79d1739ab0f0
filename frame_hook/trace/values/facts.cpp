#include "frame_hook/trace/values/facts.h"

#include <cmath>
#include <utility>

#include "frame_hook/trace/values/library_files.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "guards/class_state.h"
#include "guards/cpython/iterators.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::kNoSource;
using guards::SourceId;
using guards::SourceKind;

void Facts::reset() {
  unchanged_types_.clear();
  guard_lines_.clear();
}

namespace {

// Whether the innermost frame is torch's own.
bool is_in_torch(CallStack& stack) {
  const SymbolicFrame& user = stack.user_frame();
  if (&user != stack.frames().back().get()) return true;
  return stack.frames().size() == 1 && is_torch_file(user.code->code->co_filename);  // there is no user's frame
}

}  // namespace

guards::LineId Facts::user_line() {
  if (stack.frames().empty()) return guards::kNoLine;
  const SymbolicFrame& user = stack.user_frame();
  const SymbolicFrame* const of_program = stack.program_frame();
  PyCodeObject* const program = of_program ? of_program->code->code : nullptr;
  const int line = line_of_position(user), program_line = of_program ? line_of_position(*of_program) : 0;
  const bool in_torch = is_in_torch(stack);
  auto& known = guard_lines_[user.code->code];
  for (auto it = known.rbegin(); it != known.rend(); ++it)
    if (it->number == line && it->program == program && it->program_line == program_line && it->in_torch == in_torch)
      return it->id;
  const guards::LineId id = trace_.guards.add_line(stack.way_to(user) + text_of_position(user), in_torch);
  return known.emplace_back(line, program, program_line, in_torch, id).id;
}

SourceId Facts::source_of(Value* v) {
  if (v->source != kNoSource || !v->object) return v->source;
  return sources().add(SourceKind::constant, kNoSource, 0, v->object.get());
}

void Facts::guard_if_real(GuardKind kind, SourceId source, PyObject* object, int64_t number) {
  if (source == kNoSource) return;
  add_guard(kind, source, object, number);
}

void Facts::add_guard(guards::Guard guard) {
  if (guards::Guard* fresh = trace_.guards.add(std::move(guard))) fresh->line = user_line();
}

void Facts::add_guard(GuardKind kind, SourceId source, PyObject* object, int64_t number) {
  guards::Guard guard;
  guard.kind = kind;
  guard.source = source;
  guard.object = PyRef::borrow(object);
  guard.number = number;
  add_guard(std::move(guard));
}

PyTypeObject* Facts::type_of(Value* v) {
  if (!v->type_guarded) {
    v->type_guarded = true;
    if (!v->value_guarded) {
      PyTypeObject* real = v->object ? Py_TYPE(v->object.get())
                                     : v->type;  // a payload has the builtin class, its object the subclass
      add_guard(GuardKind::type_is, v->source, reinterpret_cast<PyObject*>(real));
      v->type_is_fixed = true;
    }
  }
  return v->type;
}

SourceId Facts::type_source(Value* v) {
  guards::SourceTable& sources = trace_.guards.sources;
  if (v->source != kNoSource && !v->type_is_fixed) return sources.add(SourceKind::type_of, v->source);
  return sources.add(SourceKind::constant, kNoSource, 0, reinterpret_cast<PyObject*>(v->type));
}

// Static types never change. `source` reaches the type itself.
void Facts::guard_type_unchanged(PyTypeObject* type, SourceId source) {
  if ((type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) || !unchanged_types_.try_emplace(type, true).second) return;
  add_guard(GuardKind::type_unchanged, source, reinterpret_cast<PyObject*>(type),
            static_cast<int64_t>(guards::class_state(type)));
}

PyTypeObject* unchanged_type_of(Facts& facts, Value* v) {
  PyTypeObject* type = facts.type_of(v);
  facts.guard_type_unchanged(type, facts.type_source(v));
  return type;
}

PyTypeObject* Facts::known_type(Value* v) {
  PyObject* type = real_type(v);
  if (!type) return nullptr;
  guard_identity(v);
  return reinterpret_cast<PyTypeObject*>(type);
}

// ---- values

// A computed number is fixed by the guards of its operands.
void Facts::guard_operands(Value* v) {
  const auto at = trace_.float_formulas.find(v);
  if (at == trace_.float_formulas.end()) return;
  guard_value(at->second.a);
  guard_value(at->second.b);
}

void Facts::guard_identity(Value* v) {
  if (v->value_guarded && v->identity_guarded) return;
  if (is_computed(v->source)) return guard_value(v);  // it is a new object in each call
  v->value_guarded = v->identity_guarded = true;
  if (v->source != kNoSource) add_guard(GuardKind::is, v->source, v->object.get());
  else guard_operands(v);
}

// By value if the type is compared by value, otherwise by identity.
void Facts::guard_value(Value* v) {
  if (v->value_guarded) return;
  v->value_guarded = v->type_guarded = true;
  if (v->source == kNoSource) return guard_operands(v);
  const bool is_nan = PyFloat_CheckExact(v->object.get()) &&
                      std::isnan(PyFloat_AS_DOUBLE(v->object.get()));  // equal only to itself, as a key and in lists
  const bool by_value =
      is_computed(v->source) || (holds_only_scalars(v->object.get()) && !is_singleton(v->object.get()) && !is_nan);
  v->identity_guarded = !by_value;
  add_guard(by_value ? GuardKind::equals : GuardKind::is, v->source, v->object.get());
}

// ---- keys of dicts

PyRef keys_of(PyObject* dict) {
  PyRef keys = PyRef::steal(PyTuple_New(PyDict_GET_SIZE(dict)));
  PyObject *key, *value;
  Py_ssize_t position = 0;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, &value); ++i)
    PyTuple_SET_ITEM(keys.get(), i, Py_NewRef(key));
  return keys;
}

void guard_order(guards::GuardSet& guards, std::vector<DictValue*>& dicts) {
  for (DictValue* v : std::exchange(dicts, {})) {
    guards::Guard guard;
    guard.kind = GuardKind::dict_keys;
    guard.source = v->source;
    guard.object = keys_of(v->object.get());
    guard.line = v->keys_line;
    guards.add(std::move(guard));
  }
}

void Facts::guard_order(std::vector<DictValue*>& dicts) { frame_hook::guard_order(trace_.guards, dicts); }

// ---- modes, variables, and the exception being handled

void Facts::rely_on_mode(std::shared_ptr<const guards::ModeFacts> mode) {
  trace_.guards.modes.push_back(std::move(mode));
}

void Facts::relies_on_binding(SourceId source, bool bound) {
  if (bound) trace_.bound_sources.push_back(source);
  else guard_if_real(GuardKind::is, source, nullptr);
}

// If the segment begins at a call, the arguments are bound and the other locals are not: there is nothing to guard.
void Facts::relies_on_binding(const SymbolicFrame& f, int slot) {
  if (!f.is_resumed || f.is_written[static_cast<size_t>(slot)]) return;
  const SourceId source = sources().add(SourceKind::local, kNoSource, slot);
  relies_on_binding(source, f.locals[static_cast<size_t>(slot)] != nullptr);
}

namespace {

// No exception is being handled where the segment begins.
class NothingHandled final : public guards::ModeFacts {
 public:
  static bool now() { return !PyRef::steal(PyErr_GetHandledException()); }
  bool matches() const override { return now(); }
  std::string mismatch() const override { return "an exception is being handled"; }
};

}  // namespace

bool Facts::relies_on_nothing_handled() {
  if (!NothingHandled::now()) return false;
  if (!relies_on_mode<NothingHandled>()) rely_on_mode(std::make_shared<NothingHandled>());
  return true;
}

// The real zip, map, ... has exactly these parts, and the same strictness.
void guard_parts(Facts& facts, IteratorValue* it) {
  facts.type_of(it);
  it->value_guarded = true;
  if (it->over == IteratorValue::Over::real || it->over == IteratorValue::Over::enumerate) return;
  auto part = [&](int64_t i) {
    return facts.sources().add(SourceKind::iterator_part, it->source, static_cast<int32_t>(i));
  };
  facts.guard_if_real(GuardKind::is, part(guards::part_count(it->object.get())), nullptr);
  if (it->over == IteratorValue::Over::zip)
    facts.guard_if_real(GuardKind::is, part(-1), guards::is_strict_zip(it->object.get()) ? Py_True : Py_False);
}

void guard_keyword_order(Facts& facts, const Arguments& args) {
  std::vector<DictValue*> order_from = args.keywords.order_from;
  facts.guard_order(order_from);
}

}  // namespace framejit::frame_hook
