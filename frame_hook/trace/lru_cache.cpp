// frame_hook/trace/lru_cache.cpp — calls of functools.lru_cache wrappers.
//
// What is cached is read from the cache, under guards. What is not is traced like any function where its result is a
// constant and it does nothing else; the exit then calls the wrapper, so that the cache fills as plain Python would
// have filled it. Anything else breaks: the call itself, in plain Python, fills the cache, and the next call is traced
// anew without a break.
#include "guards/lru_cache.h"

#include "frame_hook/trace/protocol.h"
#include "guards/interrupts.h"
#include "guards/weak_objects.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::SourceKind;

namespace {

std::string name_of(PyObject* callable) { return "a function with lru_cache, " + name_of_callable(callable) + ","; }

PyRef key_of(Tracer& t, PyObject* callable, const Arguments& args) {
  std::vector<PyObject*> objects;
  auto add = [&](Value* v) {
    const bool by_identity = v->object && is_identity_key(v) &&
                             v->type->tp_hash == PyBaseObject_Type.tp_hash;  // self, where the method is cached
    if (by_identity) t.guard_identity(v);
    else if (!t.is_constant(v))
      graph_break(Reason::unknown_callable, name_of(callable) + " on an argument that is no constant");
    objects.push_back(by_identity ? v->object.get() : t.constant(v));
  };
  for (Value* v : args.positional) add(v);
  PyRef names =
      args.keywords.empty() ? PyRef() : PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(args.keywords.size())));
  for (size_t i = 0; i < args.keywords.size(); ++i) {
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(args.keywords[i].first));
    add(args.keywords[i].second);
  }
  PyRef key = PyRef::steal(
      guards::lru_key(callable, objects.data(), static_cast<Py_ssize_t>(args.positional.size()), names.get()));
  if (!key || !guards::lru_cache_of(callable)) graph_break(Reason::unknown_callable, name_of(callable));
  if (PyObject_Hash(key.get()) == -1) t.raise_pending();
  return key;
}

struct Actions {
  explicit Actions(Tracer& t) : writes(t.writes()), ops(t.recording().op_count()), modes(t.frontend().save_modes()) {
    for (const auto& [variable, values] : t.protocol().context_values) contexts += values.size();
  }
  uint64_t writes;
  size_t ops, contexts = 0;
  std::shared_ptr<void> modes;
};

bool acted(Tracer& t, const Actions& before) {
  const Actions now(t);
  return now.writes != before.writes || now.ops != before.ops || now.contexts != before.contexts ||
         !t.frontend().same_modes(now.modes, before.modes);
}

// Of what was compiled around a call that has to run for real once: when it has run, the call is traced as its result.
// A wrapper that is gone (made anew in each call) caches nothing.
class StillUncached final : public guards::ModeFacts {
 public:
  StillUncached(PyObject* callable, PyObject* key)
      : callable_(PyRef::steal(PyWeakref_NewRef(callable, nullptr))),
        key_(PyRef::borrow(key)),
        name_(name_of_callable(callable)) {
    if (!callable_) drop_error();
  }
  bool matches() const override {
    PyObject* const callable = callable_ ? guards::weak_target(callable_.get()) : nullptr;
    if (callable == nullptr) return true;
    PyObject* cache = guards::lru_cache_of(callable);
    const bool found = cache && PyDict_GetItemWithError(cache, key_.get());
    if (!found) drop_error();
    return !found;
  }
  std::string mismatch() const override { return "the result of " + name_ + " is cached now"; }

 private:
  const PyRef callable_, key_;
  const std::string name_;
};

// Null: it did nothing but make an object, which plain Python makes and keeps.
Value* call_uncached(Tracer& t, Value* v, const Arguments& args, PyObject* key) {
  PyObject* callable = v->object.get();
  Value* function = t.find_attribute(v, interned("__wrapped__"));
  if (!function || function->kind != ValueKind::function || function->object.get() != guards::lru_function_of(callable))
    graph_break(Reason::unknown_callable, name_of(callable));
  const Actions before(t);
  Value* result = t.call(function, args);
  const bool alone = before.writes == 0 && before.contexts == 0 && t.protocol().calls_at_exit.empty();
  const bool known = t.is_constant(result), acts = acted(t, before);
  if (!known && !acts && alone && t.may_start_over()) return nullptr;
  if (!known || acts)
    graph_break(Reason::unknown_callable,
                name_of(callable) + " which this call is the first of with its arguments");
  PyRef agreed = PyRef::steal(PyTuple_Pack(2, key, t.constant(result)));
  note(t, GuardKind::cache_agrees, source_of(t, v), agreed.get());
  t.protocol().calls_at_exit.emplace_back(v, args);
  return result;
}

// Calls the wrapper now, as plain Python would have. It has an entry then.
void fill(Tracer& t, PyObject* callable, const Arguments& args, PyObject* key) {
  std::vector<PyObject*> given;
  const auto add = [&](Value* v) { given.push_back(t.is_constant(v) ? t.constant(v) : v->object.get()); };
  for (Value* v : args.positional) add(v);
  const PyRef names = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(args.keywords.size())));
  for (size_t i = 0; i < args.keywords.size(); ++i) {
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(args.keywords[i].first));
    add(args.keywords[i].second);
  }
  const PyRef made = PyRef::steal(PyObject_Vectorcall(callable, given.data(), args.positional.size(), names.get()));
  if (!made && error_is_interrupt()) {
    keep_error();
    throw Interrupted{};
  }
  if (made && PyDict_GetItemWithError(guards::lru_cache_of(callable), key)) return;
  drop_error();
  graph_break(Reason::unknown_callable, name_of(callable));
}

}  // namespace

Value* call_lru_cache(Tracer& t, Value* v, const Arguments& given) {
  Unresumable guard(t);
  PyObject* callable = v->object.get();
  t.guard_identity(v);
  Arguments args = given;
  // An enum's member is no plain number, though it holds one.
  const auto plain = [&](Value* v) { return v->kind == ValueKind::instance ? v : without_symbols(t, v); };
  for (Value*& a : args.positional) a = plain(a);
  for (auto& [name, a] : args.keywords) a = plain(a);
  const PyRef key = key_of(t, callable, args);
  PyObject* entry = PyDict_GetItemWithError(guards::lru_cache_of(callable), key.get());
  if (!entry && PyErr_Occurred()) t.raise_pending();
  if (!entry) {
    t.rely_until_break(std::make_shared<StillUncached>(callable, key.get()));
    Value* result = call_uncached(t, v, args, key.get());
    t.forget_reliance();
    if (result) return result;
    fill(t, callable, args, key.get());
    t.start_over();
  }
  guards::SourceTable& sources = t.guards().sources;
  const guards::SourceId cache = sources.add(SourceKind::lru_cache, source_of(t, v));
  note(t, GuardKind::dict_has, cache, key.get());
  const guards::SourceId item = sources.add(SourceKind::dict_item, cache, 0, key.get());
  return t.wrap(guards::lru_result_of(entry), sources.add(SourceKind::lru_result, item));
}

}  // namespace framejit::frame_hook
