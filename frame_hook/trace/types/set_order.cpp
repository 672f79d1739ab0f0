// frame_hook/trace/types/set_order.cpp — real sets that go through the operations of traced ones.
#include "frame_hook/trace/types/set_order.h"

#include <algorithm>

#include "frame_hook/trace/machine/tracer.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"
#include "guards/guard_functions.h"

namespace framejit::frame_hook {
namespace {

// The object that CPython would hash, for a key whose hash runs no Python code; null for others.
PyObject* plain_key(Shadows& shadows, Value* v) { return is_plain(shadows, v) ? constant_of(shadows, v) : nullptr; }

PyRef tuple_of_keys(Shadows& shadows, const std::vector<Value*>& items) {
  PyRef keys = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  for (size_t i = 0; i < items.size(); ++i) {
    PyObject* key = plain_key(shadows, items[i]);
    if (!key) return {};
    PyTuple_SET_ITEM(keys.get(), static_cast<Py_ssize_t>(i), Py_NewRef(key));
  }
  return keys;
}

PyRef dict_of_keys(const PyRef& keys) {  // only their number and order matter
  return keys ? PyRef::steal(
                    PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyDict_Type), "fromkeys", "(O)", keys.get()))
              : PyRef();
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

bool has_plain_key(const Value* v) {
  PyObject* key = v->kind == ValueKind::object ? v->object.get() : nullptr;
  return key && (PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || PyFloat_CheckExact(key) ||
                 PyBytes_CheckExact(key) || PyBool_Check(key) || key == Py_None);
}

// A set with the items of another in the same places.
PyRef same_set(PyObject* real) {
  PyRef copy = real_set(PyFrozenSet_Check(real) ? &PyFrozenSet_Type : &PySet_Type, nullptr);
  return copy && fill_in_places(copy.get(), real, items_of_set(real)) ? copy : PyRef();
}

// The current state of a real set from outside of the trace, guarded down to its table.
PyRef guarded_order(Errors& errors, SetValue* set) {
  PyRef copy = same_set(set->object.get());
  if (!copy) errors.raise_pending();
  errors.heap.facts.guard_if_real(guards::GuardKind::equals, set->source, copy.get(), 1);  // 1: in the same order
  return set->object;
}

}  // namespace

SetOperand set_operand(Tracer& t, Value* v) {
  if (SetValue* set = set_of(v)) {
    t.shadows.load(set);
    return {set->items, true, order_of(t.shadows, set)};
  }
  SetOperand operand{t.unpack(v), false, {}};
  operand.real = tuple_of_keys(t.shadows, operand.items);
  if (dict_of(v)) operand.real = dict_of_keys(operand.real);
  return operand;
}

// Equal sets with different tables count as different operands.
PyRef order_of(Shadows& shadows, SetValue* set) {
  if (!is_real(set)) return set->order;
  if (set->source == guards::kNoSource || set->value_guarded) return set->object;
  shadows.load(set);
  return std::all_of(set->items.begin(), set->items.end(), [&](Value* v) { return is_plain(shadows, v); })
             ? guarded_order(shadows.errors, set)
             : PyRef();
}

PyRef new_order(Shadows& shadows, PyTypeObject* type, const std::vector<Value*>& items) {
  PyRef keys = tuple_of_keys(shadows, items);
  if (!keys) return {};
  if (type == &PyDict_Type) return dict_of_keys(keys);
  return real_set(type, keys.get());
}

void adopt_order(Shadows& shadows, SetValue* set) {
  PyRef order = order_of(shadows, set);
  if (!order) return;
  set->order = same_set(order.get());
  if (!set->order) shadows.errors.raise_pending();
}

void add_to_order(Shadows& shadows, SetValue* set, Value* item) {
  if (!set->order) return;
  PyObject* key = plain_key(shadows, item);
  if (!key) set->order = {};
  else if (PySet_Add(set->order.get(), key) < 0) shadows.errors.raise_pending();
}

PyRef call_order(Errors& errors, const PyRef& self, const char* method, const std::vector<SetOperand>& operands) {
  std::vector<PyObject*> args{self.get()};
  for (const SetOperand& operand : operands) args.push_back(operand.real.get());
  for (PyObject* arg : args)
    if (!arg) return {};
  PyRef made = PyRef::steal(PyObject_VectorcallMethod(interned(method), args.data(), args.size(), nullptr));
  if (!made) errors.raise_pending();
  return made;
}

std::vector<Value*> ordered_items(Shadows& shadows, SetValue* set) {
  shadows.load(set);
  if (set->items.size() < 2) return set->items;
  if (is_real(set)) {
    if (set->source == guards::kNoSource || set->value_guarded) return set->items;
    guarded_order(shadows.errors, set);
    return set->items;
  }
  std::vector<Value*> items = set->order ? values_in(set->order.get(), set->items) : std::vector<Value*>();
  if (items.empty()) graph_break(Reason::set_order, "the order of a set");
  return items;
}

std::vector<Value*> items_to_rebuild(SetValue* set, PyRef* order) {
  std::vector<Value*> items = set->order ? values_in(set->order.get(), set->items) : std::vector<Value*>();
  if (!set->order || items.size() != set->items.size()) {
    if (set->items.size() > 1 && std::all_of(set->items.begin(), set->items.end(), has_plain_key))
      graph_break(Reason::set_order, "the order of a set");
    return set->items;
  }
  *order = PyRef::steal(PySet_New(nullptr));  // the trace may continue with its own
  std::vector<PyObject*> keys;
  for (Value* v : items) keys.push_back(v->object.get());
  if (!*order || !fill_in_places(order->get(), set->order.get(), keys)) {
    drop_error();
    *order = {};
  }
  return items;
}

// Some tables cannot be made by any sequence of calls: a set that grew by a union, or that lost items, is larger than
// its items need.
bool fill_in_places(PyObject* set, PyObject* order, const std::vector<PyObject*>& items) {
  auto* to = reinterpret_cast<PySetObject*>(set);
  const auto* from = reinterpret_cast<const PySetObject*>(order);
  const size_t length = static_cast<size_t>(from->mask) + 1;
  if (from->table != from->smalltable) {
    auto* table = static_cast<setentry*>(PyMem_Malloc(length * sizeof(setentry)));
    if (!table) return PyErr_NoMemory(), false;
    to->table = table;
  }
  std::copy_n(from->table, length, to->table);
  size_t next = 0;
  for (size_t i = 0; i < length; ++i)
    if (to->table[i].key && to->table[i].hash != -1)
      to->table[i].key = Py_NewRef(items[next++]);  // -1: the place of a removed item
  to->mask = from->mask;
  to->fill = from->fill;
  to->used = from->used;
  to->finger = from->finger;
  return true;
}

}  // namespace framejit::frame_hook
