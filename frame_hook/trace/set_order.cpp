// frame_hook/trace/set_order.cpp — real sets that go through what traced ones do.
#include "frame_hook/trace/set_order.h"

#include "frame_hook/trace/object_kinds.h"
#include "frame_hook/trace/protocol.h"
#include "guards/checks.h"

namespace framejit::frame_hook {
namespace {

// The object that CPython would hash, for a key whose hash runs no Python code; null for others.
PyObject* plain_key(Tracer& t, Value* v) { return is_plain(t, v) ? t.constant(v) : nullptr; }

PyRef tuple_of_keys(Tracer& t, const std::vector<Value*>& items) {
  PyRef keys = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  for (size_t i = 0; i < items.size(); ++i) {
    PyObject* key = plain_key(t, items[i]);
    if (!key) return {};
    PyTuple_SET_ITEM(keys.get(), static_cast<Py_ssize_t>(i), Py_NewRef(key));
  }
  return keys;
}

PyRef dict_of_keys(const PyRef& keys) {  // only how many there are, and their order, is looked at
  return keys ? PyRef::steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyDict_Type), "fromkeys", "(O)", keys.get())) : PyRef();
}

bool is_real(const SetValue* set) { return set->object && !set->mutated; }

// Which of the values each key of `order` is; empty when they do not match.
std::vector<Value*> values_in(PyObject* order, const std::vector<Value*>& items) {
  PointerMap<PyObject, Value*> value_of;
  for (Value* v : items) value_of[v->object.get()] = v;
  std::vector<Value*> sorted;
  for (PyObject* key : items_of_set(order))
    if (Value** v = value_of.find(key)) sorted.push_back(*v);
  return sorted.size() == items.size() ? sorted : std::vector<Value*>();
}

// Those that lie where their hash sends them, then those that found their place taken.
std::vector<Value*> values_in_places(PyObject* order, const std::vector<Value*>& items) {
  auto* set = reinterpret_cast<PySetObject*>(order);
  std::vector<Value*> placed, displaced;
  for (Value* v : items) {
    const setentry* entry = set->table;
    while (entry->key != v->object.get()) ++entry;
    const bool home = (static_cast<size_t>(entry->hash) & static_cast<size_t>(set->mask)) == static_cast<size_t>(entry - set->table);
    (home ? placed : displaced).push_back(v);
  }
  placed.insert(placed.end(), displaced.begin(), displaced.end());
  return placed;
}

}  // namespace

SetOperand set_operand(Tracer& t, Value* v) {
  if (SetValue* set = set_of(v)) {
    t.load(set);
    return {set->items, order_of(set)};
  }
  SetOperand operand{t.unpack(v), {}};
  operand.real = tuple_of_keys(t, operand.items);
  if (dict_of(v)) operand.real = dict_of_keys(operand.real);
  return operand;
}

PyRef real_set(PyTypeObject* type, PyObject* iterable) {
  return PyRef::steal(type == &PyFrozenSet_Type ? PyFrozenSet_New(iterable) : PySet_New(iterable));
}

PyRef order_of(SetValue* set) { return is_real(set) ? set->object : set->order; }

PyRef new_order(Tracer& t, PyTypeObject* type, const std::vector<Value*>& items) {
  PyRef keys = tuple_of_keys(t, items);
  if (!keys) return {};
  return real_set(type, keys.get());
}

void add_to_order(Tracer& t, SetValue* set, Value* item) {
  if (!set->order) return;
  PyObject* key = plain_key(t, item);
  if (!key) set->order = {};
  else if (PySet_Add(set->order.get(), key) < 0) t.raise_pending();
}

PyRef call_order(Tracer& t, const PyRef& self, const char* method, const std::vector<SetOperand>& operands) {
  std::vector<PyObject*> args{self.get()};
  for (const SetOperand& operand : operands) args.push_back(operand.real.get());
  for (PyObject* arg : args)
    if (!arg) return {};
  PyRef made = PyRef::steal(PyObject_VectorcallMethod(interned(method), args.data(), args.size(), nullptr));
  if (!made) t.raise_pending();
  return made;
}

std::vector<Value*> ordered_items(Tracer& t, SetValue* set) {
  t.load(set);
  if (set->items.size() < 2) return set->items;
  if (is_real(set)) {
    if (set->source == guards::kNoSource || set->value_guarded) return set->items;
    const PyRef copy = real_set(set->type, set->object.get());
    if (!copy || !guards::same_order(copy.get(), set->object.get())) graph_break(BreakReason::unsupported_value, "the order of a set that items were removed from");
    note(t, guards::GuardKind::equals, set->source, copy.get(), 1);  // 1: in the same order
    return set->items;
  }
  std::vector<Value*> items = set->order ? values_in(set->order.get(), set->items) : std::vector<Value*>();
  if (items.empty()) graph_break(BreakReason::unsupported_value, "the order of a set");
  return items;
}

std::vector<Value*> items_to_rebuild(SetValue* set) {
  if (!set->order) return set->items;
  auto makes_it = [&](const std::vector<Value*>& items) {
    PyRef made = PyRef::steal(PySet_New(nullptr));
    for (Value* v : items) PySet_Add(made.get(), v->object.get());
    return guards::same_order(made.get(), set->order.get());
  };
  if (makes_it(set->items)) return set->items;
  const std::vector<Value*> items = values_in(set->order.get(), set->items);
  if (items.empty()) return set->items;
  if (makes_it(items)) return items;
  const std::vector<Value*> by_place = values_in_places(set->order.get(), items);
  return makes_it(by_place) ? by_place : items;
}

}  // namespace framejit::frame_hook
