// frame_hook/trace/types/lru_cache.cpp — calls of functools.lru_cache wrappers.
//
// A cached result is read from the cache, under guards. A call that is not cached is traced like any function, if it
// writes nothing. The exit then calls the wrapper with the known result (guards::lru_account), in the order of the
// program. So the cache counts, keeps and evicts entries as in plain Python, and no code of the program runs for it.
// Any other call breaks: it runs in plain Python and fills the cache, and the next call is traced again, without a
// break.
#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/values/describe.h"
#include "guards/cpython/lru_cache.h"

#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/containers.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/weak_objects.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::SourceKind;

namespace {

std::string name_of(PyObject* callable) { return "a function with lru_cache, " + name_of_callable(callable) + ","; }

// A value made in the trace is hashed by its identity; in keys a real object stands for it.
PyObject* identity_in_keys(Shadows& shadows, Value* v) {
  PyRef& known = shadows.tables().identities[v];
  if (!known) known = PyRef::steal(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
  return known.get();
}

// A torch.Size of known sizes, as a real one. Null: another kind of value.
PyRef real_size(Shadows& shadows, Value* v) {
  if (v->kind != ValueKind::instance || payload_of(v)->kind != ValueKind::tuple) return PyRef();
  const PyTypeObject* type = shadows.facts.type_of(v);
  const bool is_tuple_in_keys = !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && type->tp_hash == PyTuple_Type.tp_hash &&
                                type->tp_richcompare == PyTuple_Type.tp_richcompare;
  Value* items = is_tuple_in_keys ? without_symbols(shadows, v) : nullptr;
  if (!items || !shadows.heap.is_constant(items)) return PyRef();
  return PyRef::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(v->type), constant_of(shadows, items)));
}

struct Key {
  PyRef key;
  bool is_new = false;  // it contains a value made in the trace, so the cache cannot hold it
};

Key key_of(Shadows& shadows, PyObject* callable, const Arguments& args) {
  std::vector<PyObject*> objects;
  std::vector<PyRef> sizes;
  Key made;
  auto add = [&](Value* v) {
    // `self`, if a method is cached.
    const bool by_identity = is_identity_key(v) && shadows.facts.type_of(v)->tp_hash == PyBaseObject_Type.tp_hash;
    if (by_identity && !v->object) {
      made.is_new = true;
      return objects.push_back(identity_in_keys(shadows, v));
    }
    if (by_identity) shadows.facts.guard_identity(v);
    else if (PyRef size = real_size(shadows, v)) return objects.push_back(sizes.emplace_back(std::move(size)).get());
    else if (!shadows.heap.is_constant(v))
      graph_break(Reason::unknown_callable, name_of(callable) + " on an argument that is not a constant");
    objects.push_back(by_identity ? v->object.get() : constant_of(shadows, v));
  };
  for (Value* v : args.positional) add(v);
  PyRef names =
      args.keywords.empty() ? PyRef() : PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(args.keywords.size())));
  for (size_t i = 0; i < args.keywords.size(); ++i) {
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(args.keywords[i].first));
    add(args.keywords[i].second);
  }
  made.key = PyRef::steal(
      guards::lru_key(callable, objects.data(), static_cast<Py_ssize_t>(args.positional.size()), names.get()));
  if (!made.key || !guards::lru_cache_of(callable)) graph_break(Reason::unknown_callable, name_of(callable));
  if (PyObject_Hash(made.key.get()) == -1) shadows.errors.raise_pending();
  return made;
}

struct Actions {
  explicit Actions(Tracer& t)
      : writes(t.shadows.tables().writes), ops(t.recording().op_count()), modes(t.frontend().save_modes()) {
    for (const auto& [variable, values] : t.shadows.tables().context_values) contexts += values.size();
    locks = t.shadows.tables().taken_locks.size() + t.attempts.held_locks().size();
    warnings = t.shadows.tables().warnings.size();
  }
  uint64_t writes;
  size_t ops, contexts = 0, locks = 0, warnings = 0;
  std::shared_ptr<void> modes;
};

bool differ(TensorFrontend& frontend, const Actions& now, const Actions& before) {
  return now.writes != before.writes || now.ops != before.ops || now.contexts != before.contexts ||
         now.locks != before.locks || now.warnings != before.warnings || !frontend.same_modes(now.modes, before.modes);
}

// For a trace that breaks at a call which must run for real once. From then on, the call is traced as its cached
// result. A wrapper that has died since caches nothing: a program may make a new one in each call.
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

// A bounded cache can add this many entries before it evicts one.
class HasRoom final : public guards::ModeFacts {
 public:
  HasRoom(PyObject* callable, size_t entries)
      : callable_(PyRef::steal(PyWeakref_NewRef(callable, nullptr))), entries_(static_cast<Py_ssize_t>(entries)) {
    if (!callable_) drop_error();
  }
  static bool now(PyObject* callable, Py_ssize_t entries) {
    PyObject* const cache = guards::lru_cache_of(callable);
    return cache && PyDict_GET_SIZE(cache) + entries <= guards::lru_limit_of(callable);
  }
  bool matches() const override {
    PyObject* const callable = callable_ ? guards::weak_target(callable_.get()) : nullptr;
    return callable == nullptr || now(callable, entries_);
  }
  std::string mismatch() const override { return "a cache is full"; }

 private:
  const PyRef callable_;
  const Py_ssize_t entries_;
};

// The trace's new entries must not have evicted anything that was cached before the trace or in it.
void relies_on_all_entries(Facts& facts, PyObject* callable, TracedCache& traced) {
  if (guards::lru_limit_of(callable) < 0 || traced.misses <= traced.room_for) return;
  if (!HasRoom::now(callable, static_cast<Py_ssize_t>(traced.misses)))
    graph_break(Reason::unknown_callable, name_of(callable) + " whose cache is full");
  facts.rely_on_mode(std::make_shared<HasRoom>(callable, traced.misses));
  traced.room_for = traced.misses;
}

// The exit calls the wrapper, with this result of the function.
Value* account(Shadows& shadows, Value* v, const Arguments& args, Value* result) {
  Arguments all = args;
  all.positional.insert(all.positional.begin(), {v, result});
  shadows.tables().calls_at_exit.emplace_back(shadows.heap.constant_value(guards::lru_account()), std::move(all));
  return result;
}

Value* call_uncached(Tracer& t, Value* v, const Arguments& args, const Key& key) {
  PyObject* callable = v->object.get();
  Value* function = t.find_attribute(v, interned("__wrapped__"));
  if (!function || function->kind != ValueKind::function || function->object.get() != guards::lru_function_of(callable))
    graph_break(Reason::unknown_callable, name_of(callable));
  const Actions before(t);
  const size_t calls = t.shadows.tables().calls_at_exit.size();
  Value* result = nullptr;
  try {
    result = t.call(function, args);
  } catch (const SymbolicRaise&) {
    graph_break(Reason::unknown_callable, name_of(callable) + " which raises");  // the call counts, but has no result
  }
  if (differ(t.frontend(), Actions(t), before))
    graph_break(Reason::unknown_callable,
                name_of(callable) + ", called with these arguments for the first time,");
  if (key.is_new) return result;
  const bool calls_others = t.shadows.tables().calls_at_exit.size() != calls;  // a hit would not
  if (t.heap.is_constant(result) && !calls_others) {
    PyRef agreed = PyRef::steal(PyTuple_Pack(2, key.key.get(), constant_of(t.shadows, result)));
    t.facts.guard_if_real(GuardKind::cache_agrees, t.facts.source_of(v), agreed.get());
  } else {
    t.facts.guard_if_real(GuardKind::dict_lacks, t.facts.sources().add(SourceKind::lru_cache, t.facts.source_of(v)),
                          key.key.get());
  }
  return result;
}

}  // namespace

Value* call_lru_cache(Tracer& t, Value* v, const Arguments& given) {
  Unresumable guard(t.stack);
  PyObject* callable = v->object.get();
  t.facts.guard_identity(v);
  Arguments args = given;
  // A member of an enumeration is not a plain number, although it holds one.
  const auto plain = [&](Value* v) { return v->kind == ValueKind::instance ? v : without_symbols(t.shadows, v); };
  for (Value*& a : args.positional) a = plain(a);
  for (auto& [name, a] : args.keywords) a = plain(a);
  const Key key = key_of(t.shadows, callable, args);
  const auto traced = [&]() -> TracedCache& { return t.shadows.tables().caches[callable]; };
  if (PyObject* index = traced().keys ? PyDict_GetItemWithError(traced().keys.get(), key.key.get()) : nullptr) {
    relies_on_all_entries(t.facts, callable, traced());
    return account(t.shadows, v, args, traced().results[PyLong_AsSize_t(index)]);
  }
  PyObject* entry = key.is_new ? nullptr : PyDict_GetItemWithError(guards::lru_cache_of(callable), key.key.get());
  if (!entry && PyErr_Occurred()) t.errors.raise_pending();
  if (!entry) {
    if (!key.is_new) t.attempts.rely_until_break(std::make_shared<StillUncached>(callable, key.key.get()));
    Value* result = call_uncached(t, v, args, key);
    if (!key.is_new) t.attempts.forget_reliance();
    TracedCache& cache = traced();
    if (guards::lru_limit_of(callable) != 0) {
      if (!cache.keys) cache.keys = PyRef::steal(PyDict_New());
      const PyRef index = PyRef::steal(PyLong_FromSize_t(cache.results.size()));
      if (PyDict_SetItem(cache.keys.get(), key.key.get(), index.get()) < 0) t.errors.raise_pending();
      cache.results.push_back(result);
    }
    ++cache.misses;
    return account(t.shadows, v, args, result);
  }
  relies_on_all_entries(t.facts, callable, traced());
  guards::SourceTable& sources = t.facts.sources();
  const guards::SourceId cache = sources.add(SourceKind::lru_cache, t.facts.source_of(v));
  t.facts.guard_if_real(GuardKind::dict_has, cache, key.key.get());
  const guards::SourceId item = sources.add(SourceKind::dict_item, cache, 0, key.key.get());
  return account(t.shadows, v, args,
                 t.heap.wrap(guards::lru_result_of(entry), sources.add(SourceKind::lru_result, item)));
}

}  // namespace framejit::frame_hook
