// frame_hook/trace/types/dict_shadows.cpp — shadows of dicts: keys, lookups in real dicts by key, writes.
//
// A real dict is read key by key (dict_has and the item's source, or dict_lacks) until its keys as a whole are needed:
// iteration, length after a write, a write. Keys are compared as CPython does, except that a hash or equality written
// in Python is inlined or breaks.
// The __dict__ of a traced instance (owner set) has no entries of its own: only the instance's attributes count.
#include <algorithm>
#include <bit>

#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/own_dict.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/keys_of_program.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/key_hashes.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"
#include "guards/guard_functions.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::SourceKind;

namespace {

bool is_enum_member(Value* v) { return v->object && _PyType_Lookup(v->type, interned("_member_map_")); }

Py_hash_t pointer_hash(const void* p) { return static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(p) >> 4); }

Py_hash_t c_hash(Errors& errors, PyObject* object) {
  const Py_hash_t h = PyObject_Hash(object);
  if (h == -1 && PyErr_Occurred()) errors.raise_pending();
  return h;
}

[[noreturn]] void raise_unhashable(Errors& errors, Value* key) {
  errors.raise_new(PyExc_TypeError, std::string("unhashable type: '") + errors.heap.facts.type_of(key)->tp_name + "'");
}

Py_hash_t identity_hash(Value* key) { return pointer_hash(key->object ? static_cast<void*>(key->object.get()) : key); }

Py_hash_t instance_hash(Tracer& t, Value* key) {
  if (unchanged_type_of(t.facts, key)->tp_hash == PyObject_HashNotImplemented) raise_unhashable(t.errors, key);
  if (is_identity_key(key)) {
    // What it returns finds nothing else. But it may raise, or write.
    if (defined_in_python(key->type, "__hash__") && !is_enum_member(key)) {
      Unresumable guard(t.stack);
      returned_hash(t.shadows, t.call(python_special(t, key, "__hash__"), {}));
    }
    return identity_hash(key);
  }
  Value* payload = payload_of(key);
  if (payload != key && !defined_in_python(key->type, "__hash__") && !defined_in_python(key->type, "__eq__"))
    return t.dicts.hash(payload);
  Value* method = python_special(t, key, "__hash__");
  if (!method)
    graph_break(Reason::unsupported_key, std::string("an object of type ") + key->type->tp_name + " as a key");
  Unresumable guard(t.stack);
  return returned_hash(t.shadows, t.call(method, {}));
}

bool is_key_of_program(Value* key) {
  if (key->object) return hashes_in_program(key->object.get());
  const auto any = [](const std::vector<Value*>& items) { return std::ranges::any_of(items, is_key_of_program); };
  if (key->kind == ValueKind::tuple) return any(as<TupleValue>(key)->items);
  if (key->kind == ValueKind::set) return any(as<SetValue>(key)->items);
  return key->kind == ValueKind::instance &&
         (defined_in_python(key->type, "__hash__") || defined_in_python(key->type, "__eq__"));
}

// Hashes a tuple as CPython does: a __hash__ in Python may return the hash of a tuple.
class TupleHash {
 public:
  void add(Py_hash_t item) {
    h_ = std::rotl(h_ + static_cast<uint64_t>(item) * 14029467366897019727ULL, 31) * 11400714785074694791ULL;
  }
  Py_hash_t of(size_t length) const {
    const uint64_t h = h_ + (length ^ (kStart ^ 3527539ULL));
    return h == UINT64_MAX ? 1546275796 : static_cast<Py_hash_t>(h);
  }

 private:
  static constexpr uint64_t kStart = 2870177450012600261ULL;
  uint64_t h_ = kStart;
};

// One hash for all keys that are hashed by identity: same_object says which are equal, and guards the answer.
constexpr Py_hash_t kIdentityHash = 0x1d;

}  // namespace

// The hash that hash() derives from the number that a __hash__ returned.
Py_hash_t returned_hash(Shadows& shadows, Value* result) {
  Value* number = without_symbols(shadows, result);
  shadows.facts.type_of(number);
  if (number->kind != ValueKind::object || !PyLong_Check(number->object.get()))
    shadows.errors.raise_new(PyExc_TypeError, "__hash__ method should return an integer");
  PyObject* real = constant_of(shadows, number);
  Py_ssize_t h = PyLong_AsSsize_t(real);
  if (h == -1 && PyErr_Occurred()) drop_error(), h = PyLong_Type.tp_hash(real);
  return h == -1 ? -2 : h;
}

bool is_identity_key(Value* key) {
  switch (key->kind) {
    case ValueKind::tensor:
    case ValueKind::function:
    case ValueKind::iterator:
    case ValueKind::generator:
    case ValueKind::cell:
    case ValueKind::super: return true;
    case ValueKind::object:
      return key->object && !is_plain(key->object.get()) &&
             Py_TYPE(key->object.get())->tp_richcompare == PyBaseObject_Type.tp_richcompare;
    case ValueKind::instance: {
      if (key->type->tp_richcompare == PyBaseObject_Type.tp_richcompare) return true;
      PyObject* eq = _PyType_Lookup(key->type, interned("__eq__"));
      PyObject* plain = _PyType_Lookup(&PyBaseObject_Type, interned("__eq__"));
      if (eq == plain) return true;
      // If it is also a str or int, it is hashed by its name, so only the member itself is found.
      return defined_in_python(key->type, "__hash__") && is_enum_member(key);
    }
    default: return false;
  }
}

void refuse_key_of_program(Value* key) {
  if (is_key_of_program(key)) graph_break(Reason::unsupported_key, "a key with a __hash__ or __eq__ of the program");
}

bool is_hashed_by_python(Value* key) {
  return key->kind == ValueKind::instance && !is_identity_key(key) && defined_in_python(key->type, "__hash__");
}

Py_hash_t Dicts::hash(Value* key) {
  switch (key->kind) {
    case ValueKind::object: {
      PyTypeObject* type = Py_TYPE(key->object.get());
      if (!heap.is_constant(key)) {
        if (!is_identity_key(key))
          graph_break(Reason::unsupported_key, std::string("an object of type ") + type->tp_name + " as a key");
        facts.guard_identity(key);
        return pointer_hash(key->object.get());
      }
      PyObject* object = constant_of(shadows, key);
      if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) && defined_in_python(type, "__hash__")) return pointer_hash(object);
      return c_hash(errors, object);
    }
    case ValueKind::sym_int: return c_hash(errors, constant_of(shadows, key));
    case ValueKind::identity: return kIdentityHash;
    case ValueKind::tuple: {
      TupleHash h;
      auto* tuple = as<TupleValue>(key);
      guard_length(facts, tuple);
      for (size_t i = 0; i < tuple->items.size(); ++i) h.add(hash(shadows.item(tuple, i)));
      return h.of(tuple->items.size());
    }
    case ValueKind::set:
      if (facts.type_of(key) != &PyFrozenSet_Type) raise_unhashable(errors, key);
      return heap.is_constant(key) ? c_hash(errors, constant_of(shadows, key)) : 1;
    case ValueKind::instance:
      facts.type_of(key);
      if (key->object && is_identity_key(key)) guard_key(shadows, key);
      return instance_hash(t_, key);
    case ValueKind::slice:
      if (PySlice_Type.tp_hash == PyObject_HashNotImplemented) raise_unhashable(errors, key);  // before 3.12
      graph_break(Reason::unsupported_key, "a slice as a key");
    case ValueKind::list:
    case ValueKind::dict:
    case ValueKind::array: raise_unhashable(errors, key);
    case ValueKind::null: case ValueKind::view: case ValueKind::method:
      graph_break(Reason::unsupported_key, std::string("an object of type ") + key->type->tp_name + " as a key");
    case ValueKind::tensor:
    case ValueKind::function:
    case ValueKind::iterator:
    case ValueKind::generator:
    case ValueKind::cell:
    case ValueKind::super:
      if (key->object) key->kind == ValueKind::tensor ? guard_key(shadows, key) : facts.guard_identity(key);
      return identity_hash(key);
  }
  return 0;
}

bool keys_equal(Dicts& dicts, Value* a, Value* b) {
  if (a == b) return true;
  if (a->kind == ValueKind::identity || b->kind == ValueKind::identity) {
    if (a->kind == b->kind) return same_object(dicts.shadows, as<IdentityValue>(a)->of, as<IdentityValue>(b)->of);
    if (is_exact_int(a) || is_exact_int(b)) graph_break(Reason::memory_address, "a lookup of id() among ints");
    return false;
  }
  if (a->kind == ValueKind::object && b->kind == ValueKind::object && a->object.get() == b->object.get()) return true;
  if (is_identity_key(a) || is_identity_key(b)) return a->object && a->object.get() == b->object.get();
  if (a->kind == ValueKind::object && b->kind == ValueKind::object && is_plain(a->object.get()) &&
      is_plain(b->object.get())) {
    const int equal = PyObject_RichCompareBool(constant_of(dicts.shadows, a), constant_of(dicts.shadows, b), Py_EQ);
    if (equal < 0) dicts.errors.raise_pending();
    return equal == 1;
  }
  return dicts.equal(a, b);
}

namespace {

// A dict keeps the hashes of its keys.
Py_hash_t hash_of(Dicts& dicts, DictEntry& e) {
  if (e.hash != kUnknownHash) return e.hash;
  const bool by_identity = e.key->kind == ValueKind::instance && is_identity_key(e.key);
  return e.hash = by_identity ? identity_hash(e.key) : dicts.hash(e.key);
}

DictEntry* find_entry(Dicts& dicts, DictValue* v, Value* key, Py_hash_t hash) {
  const bool identity = key->kind == ValueKind::identity, number = is_exact_int(key);
  for (DictEntry& e : v->entries)
    if (e.key == key || (identity && is_exact_int(e.key) && keys_equal(dicts, e.key, key)) ||
        (number && e.key->kind == ValueKind::identity && keys_equal(dicts, e.key, key)) ||
        (hash_of(dicts, e) == hash && keys_equal(dicts, e.key, key)))
      return &e;
  return nullptr;
}

// The real item at a key, borrowed, without running Python code: by the C hash, or by identity if the hash is Python's.
PyObject* real_item(Shadows& shadows, DictValue* v, Value* key, PyObject** real_key) {
  PyObject* dict = v->object.get();
  PyObject* k = key->object ? key->object.get() : nullptr;
  if (!k && (key->kind == ValueKind::tuple || key->kind == ValueKind::sym_int || key->kind == ValueKind::set) &&
      (key->kind == ValueKind::sym_int || shadows.heap.is_constant(key)))
    k = constant_of(shadows, key);
  if (!k) {
    if (is_identity_key(key) || key->kind == ValueKind::identity)
      return nullptr;  // made in the trace: not in a real dict
    graph_break(Reason::unsupported_key,
                std::string("a lookup of an object of type ") + key->type->tp_name + " in a dict");
  }
  *real_key = k;
  const bool by_identity = is_identity_key(key) && defined_in_python(Py_TYPE(k), "__hash__");
  if (!by_identity) {
    Value* payload = payload_of(key);
    if (payload != key && payload->kind == ValueKind::object && payload->object && !is_identity_key(key))
      *real_key = k = payload->object.get();
    if (!is_plain(k) && key->kind == ValueKind::tuple && !shadows.heap.is_constant(key))
      graph_break(Reason::unsupported_key, "a tuple of objects as a key");
    PyObject* item = PyDict_GetItemWithError(dict, k);
    if (!item) drop_error();
    return item;
  }
  PyObject *other, *item;
  for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &other, &item);)
    if (other == k) return item;
  return nullptr;
}

Value* read_real(Shadows& shadows, DictValue* v, Value* key, Py_hash_t hash) {
  PyObject* wanted = key->object.get();
  auto same = [&](PyObject* have) {
    return have == wanted ||
           (wanted && is_plain(have) && is_plain(wanted) && PyObject_RichCompareBool(have, wanted, Py_EQ) == 1);
  };
  if (Value** read = v->read.find(hash, same)) return *read;
  refuse_key_of_program(key);
  PyObject* real_key = nullptr;
  PyObject* item = real_item(shadows, v, key, &real_key);
  shadows.facts.type_of(v);
  if (!real_key) return nullptr;
  shadows.facts.guard_if_real(item ? GuardKind::dict_has : GuardKind::dict_lacks, v->source, real_key);
  Value* value =
      item ? shadows.heap.wrap(item, shadows.facts.sources().add(SourceKind::dict_item, v->source, 0, real_key))
           : nullptr;
  v->read.add(hash, real_key, value);
  return value;
}

PyObject* attribute_name(Value* key) {
  key = payload_of(key);
  if (key->kind != ValueKind::object || !key->object || !PyUnicode_CheckExact(key->object.get())) return nullptr;
  return interned(exact_text(key->object.get()));
}

Value* entry_value(Dicts& dicts, DictValue* v, DictEntry& e) {
  if (e.value || !v->object || !v->loaded) return e.value;
  PyObject* real_key = e.key->object.get();
  const Py_hash_t hash = hash_of(dicts, e);
  if (Value** read = v->read.find(hash, [&](PyObject* key) { return key == real_key; })) return e.value = *read;
  PyObject* unused;
  PyObject* item = real_item(dicts.shadows, v, e.key, &unused);
  return e.value = dicts.heap.wrap(item, dicts.facts.sources().add(SourceKind::dict_item, v->source, 0, real_key));
}

// C code that takes an OrderedDict for a dict changes its items, but not its order.
void refuse_ordered(const DictValue* v) {
  if (v->object && PyODict_Check(v->object.get()))
    graph_break(Reason::changed_container, "an OrderedDict that is the __dict__ of an object");
}

void load_owner(Heap& heap, DictValue* v) {
  refuse_ordered(v);
  v->entries.clear();
  for (PyObject* name : own_names(heap, v->owner))
    v->entries.push_back({heap.constant_value(name), own_attribute(heap, v->owner, name)});
  v->loaded = true;
}

// Keyword arguments come in the order in which a call names them, but code rarely looks at it. So they are found by
// key, and the order is guarded only when it is read. Dicts made from such dicts (the kwargs of a callee, copies) take
// their order from them.
bool is_found_by_key(const DictValue* v) {
  if (!v->entries.empty() || !PyDict_CheckExact(v->object.get()) || PyDict_GET_SIZE(v->object.get()) < 2) return false;
  PyObject *key, *value;
  for (Py_ssize_t position = 0; PyDict_Next(v->object.get(), &position, &key, &value);)
    if (!PyUnicode_CheckExact(key)) return false;
  return true;
}

void take_order(DictValue* into, const DictValue* from) {
  for (DictValue* real : from->order_from)
    if (std::find(into->order_from.begin(), into->order_from.end(), real) == into->order_from.end())
      into->order_from.push_back(real);
}

// The key to look up in `v`. In a real dict, the id() of a real object is looked up as a number, and a guard fixes the
// object.
Value* settled_key(Errors& errors, DictValue* v, Value* key) {
  const bool by_identity = key->kind == ValueKind::tensor || (key->kind == ValueKind::instance && is_identity_key(key));
  if (v->object && key->object && by_identity) errors.heap.facts.guard_identity(key);
  Value* of = key->kind == ValueKind::identity && v->object && !v->is_globals ? as<IdentityValue>(key)->of : nullptr;
  if (!of || !of->object || of->source == guards::kNoSource) return key;
  errors.heap.facts.guard_if_real(GuardKind::is, of->source, of->object.get());
  return errors.constant_steal(PyLong_FromVoidPtr(of->object.get()));
}

bool may_have_had(PyObject* dict, Value* key) {
  return !key->object || !is_plain(key->object.get()) || PyDict_Contains(dict, key->object.get()) == 1;
}

}  // namespace

void Dicts::load(DictValue* v) {
  load_keys(v);
  facts.guard_order(v->order_from);
}

void Dicts::load_keys(DictValue* v) {
  if (v->owner) return load_owner(heap, v);
  if (v->loaded) return;
  const bool by_key = v->object && v->source != guards::kNoSource && is_found_by_key(v);
  std::vector<DictEntry> written = std::move(v->entries);
  v->entries.clear();
  v->loaded = true;
  if (!v->object) return;
  facts.type_of(v);
  PyObject* dict = v->object.get();
  const PyRef keys = keys_of(dict), in_order = guards::keys_in_order(dict);
  if (!in_order) graph_break(Reason::changed_container, "an OrderedDict that was written as a dict");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(in_order.get()); ++i) {
    PyObject* key = PyTuple_GET_ITEM(in_order.get(), i);
    Value* k = is_plain(key) ? heap.constant_value(key)
                             : heap.wrap(key, facts.sources().add(SourceKind::constant, guards::kNoSource, 0, key));
    if (!k->object) k->object = PyRef::borrow(key);
    if (!is_plain(key)) refuse_key_of_program(k);
    v->entries.push_back({k, nullptr});
  }
  facts.guard_if_real(by_key ? GuardKind::dict_key_set : GuardKind::dict_keys, v->source, keys.get());
  v->keys_line = facts.user_line();
  if (by_key) v->order_from.push_back(v);
  if (PyODict_Check(dict) && PyDict_GET_SIZE(dict) > 1)
    facts.guard_if_real(GuardKind::linked_order, v->source, in_order.get());
  for (DictEntry& e : v->entries) entry_value(*this, v, e);
  for (DictEntry& e : written) {
    if (e.value) set(v, e.key, e.value);
    else remove(v, e.key);
  }
}

Py_hash_t hash_in_python(Dicts& dicts, Value* key) {
  return key->kind == ValueKind::instance ? dicts.hash(key) : kUnknownHash;
}

Value* Dicts::get(DictValue* v, Value* key, Py_hash_t known) {
  key = settled_key(errors, v, key);
  if (v->owner) {
    if (PyObject* name = attribute_name(key))
      return constant_of(shadows, payload_of(key)), own_attribute(heap, v->owner, name);
    const Py_hash_t hash = known != kUnknownHash ? known : this->hash(key);
    if (v->object) read_real(shadows, v, key, hash);  // absent: only strs are in the dict
    return nullptr;
  }
  const Py_hash_t hash = known != kUnknownHash ? known : this->hash(key);
  if (v->loaded || !v->object) {
    DictEntry* e = find_entry(*this, v, key, hash);
    return e ? entry_value(*this, v, *e) : nullptr;
  }
  if (!v->entries.empty())
    if (DictEntry* e = find_entry(*this, v, key, hash)) return e->value;
  return read_real(shadows, v, key, hash);
}

void Dicts::set(DictValue* v, Value* key, Value* to, Py_hash_t known) {
  key = settled_key(errors, v, key);
  if (v->owner) {
    PyObject* name = attribute_name(key);
    if (!name) graph_break(Reason::unsupported_write, "an instance dict with a key that is not a str");
    refuse_ordered(v);
    constant_of(shadows, payload_of(key));
    return set_own_attribute(drops, t_.numbers, v->owner, name, to);
  }
  if (v->object) refuse_key_of_program(key);
  const Py_hash_t hash = known != kUnknownHash ? known : this->hash(key);
  if (!v->is_globals) load_keys(v);
  will_mutate(shadows, v);
  if (DictEntry* e = find_entry(*this, v, key, hash)) return static_cast<void>(e->value = to);
  // A key that was deleted and comes back is now last, but it may have been last before too. For a real dict, the order
  // decides what the exit has to write.
  if (v->removals > 0 && v->object && may_have_had(v->object.get(), key)) facts.guard_order(v->order_from);
  v->entries.push_back({key, to, hash});
}

bool Dicts::remove(DictValue* v, Value* key, Py_hash_t known) {
  key = settled_key(errors, v, key);
  if (v->owner) {
    PyObject* name = attribute_name(key);
    if (!name || !own_attribute(heap, v->owner, name)) return false;
    refuse_ordered(v);
    set_own_attribute(drops, t_.numbers, v->owner, name, nullptr);
    ++v->removals;
    return true;
  }
  const Py_hash_t hash = known != kUnknownHash ? known : this->hash(key);
  if (v->is_globals && !v->loaded) {
    if (!get(v, key)) return false;
    will_mutate(shadows, v);
    if (DictEntry* e = find_entry(*this, v, key, hash)) e->value = nullptr;
    else v->entries.push_back({key, nullptr, hash});
    return true;
  }
  load_keys(v);
  DictEntry* e = find_entry(*this, v, key, hash);
  if (!e) return false;
  will_mutate(shadows, v);
  v->entries.erase(v->entries.begin() + (e - v->entries.data()));
  ++v->removals;
  return true;
}

namespace {

// A dict, or a mapping whose keys() and __getitem__ are the builtin ones: its items can be read directly.
DictValue* plainly_read(Tracer& t, Value* v) {
  PyTypeObject* type = t.facts.type_of(v);
  if (v->kind == ValueKind::dict) return as<DictValue>(v);
  DictValue* held = v->kind == ValueKind::instance ? dict_of(v) : nullptr;
  if (!held || type == &PyDictProxy_Type) return held;
  return python_special(t, v, "keys") || python_special(t, v, "__getitem__") ? nullptr : held;
}

// PyDict_Merge calls neither keys() nor __getitem__ if iteration is dict's own.
DictValue* merged_directly(Tracer& t, Value* v) {
  if (v->kind == ValueKind::instance && t.facts.type_of(v)->tp_iter == PyDict_Type.tp_iter) return dict_of(v);
  return plainly_read(t, v);
}

// PySequence_Fast, for a sequence that must have two items.
std::vector<Value*> pair_items(Tracer& t, Value* pair, size_t number) {
  const std::string which = "dictionary update sequence element #" + std::to_string(number);
  std::vector<Value*> both;
  try {
    both = t.unpack(pair);
  } catch (const SymbolicRaise& raised) {
    if (!t.errors.exception_matches(raised.exception, PyExc_TypeError) || t.facts.type_of(pair)->tp_iter) throw;
    t.errors.raise_new(PyExc_TypeError, "cannot convert " + which + " to a sequence");
  }
  if (both.size() != 2)
    t.errors.raise_new(PyExc_ValueError, which + " has length " + std::to_string(both.size()) + "; 2 is required");
  return both;
}

// What OrderedDict does with each item of its argument.
void put_pair(Tracer& t, Value* pair, const PutItem& put) {
  Unresumable guard(t.stack);
  Value* iterator = t.iterate(pair);
  Value* key = t.next_item(iterator);
  if (!key) t.errors.raise_new(PyExc_ValueError, "need more than 0 values to unpack");
  Value* value = t.next_item(iterator);
  if (!value) t.errors.raise_new(PyExc_ValueError, "need more than 1 value to unpack");
  if (t.next_item(iterator)) t.errors.raise_new(PyExc_ValueError, "too many values to unpack (expected 2)");
  put(key, value);
}

}  // namespace

bool merge_mapping(Tracer& t, Value* mapping, const PutItem& put, DictValue* into) {
  if (DictValue* direct = merged_directly(t, mapping)) {
    into ? t.dicts.load_keys(direct) : t.dicts.load(direct);
    if (into) take_order(into, direct);
    const std::vector<DictEntry> entries = direct->entries;  // a copy: put() may write to the same __dict__
    for (const DictEntry& e : entries) {
      put(e.key, e.value);
      if (!direct->owner && direct->entries.size() != entries.size())
        t.errors.raise_new(PyExc_RuntimeError, "dict mutated during update");
    }
    return true;
  }
  Value* keys = t.find_attribute(mapping, interned("keys"));
  if (!keys) return false;
  Unresumable guard(t.stack);
  for (Value* key : t.unpack(t.call(keys, {}))) put(key, t.get_item(mapping, key));
  return true;
}

// PyDict_Merge, or PyDict_MergeFromSeq2.
void dict_update(Tracer& t, DictValue* dict, Value* other) {
  if (payload_of(other) == dict) return;
  const auto put = [&](Value* key, Value* value) { t.dicts.set(dict, key, value); };
  if (merge_mapping(t, other, put, dict)) return;
  size_t number = 0;
  t.for_each(other, [&](Value* pair) {
    const std::vector<Value*> both = pair_items(t, pair, number++);
    put(both[0], both[1]);
  });
}

// OrderedDict calls overrides of __setitem__, takes keys one by one, and may call items().
void update_mapping(Tracer& t, Value* self, Value* other) {
  DictValue* dict = dict_of(self);
  const bool is_ordered = self->kind == ValueKind::instance && PyType_IsSubtype(self->type, &PyODict_Type);
  if (!is_ordered) return dict_update(t, dict, other);
  const PutItem put = [&](Value* key, Value* value) { t.set_item(self, key, value); };
  if (plainly_read(t, other)) return static_cast<void>(merge_mapping(t, other, put));
  Unresumable guard(t.stack);
  if (Value* keys = t.find_attribute(other, interned("keys")))
    return t.for_each(t.call(keys, {}), [&](Value* key) { put(key, t.get_item(other, key)); });
  Value* items = t.find_attribute(other, interned("items"));
  t.for_each(items ? t.call(items, {}) : other, [&](Value* pair) { put_pair(t, pair, put); });
}

}  // namespace framejit::frame_hook
