// frame_hook/trace/types/containers.cpp — what C code does to lists, tuples and sets: lengths, slices, items that are
// added.
#include "frame_hook/trace/types/containers.h"

#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/types/keys_of_program.h"
#include "frame_hook/trace/types/set_order.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::SourceKind;

std::optional<SliceBounds> slice_bounds(Tracer& t, Value* key, int64_t length) {
  Py_ssize_t start = 0, stop = PY_SSIZE_T_MAX, step = 1;
  auto part = [&](Value* v, Py_ssize_t* to) {
    if (v->kind == ValueKind::object && v->object.get() == Py_None) {
      constant_of(t.shadows, v);
      return false;
    }
    *to = t.as_index(v);
    return true;
  };
  if (key->kind == ValueKind::slice) {
    auto* s = as<SliceValue>(key);
    t.facts.type_of(key);
    if (part(s->step, &step) && step == 0) t.errors.raise_new(PyExc_ValueError, "slice step cannot be zero");
    if (!part(s->start, &start)) start = step < 0 ? PY_SSIZE_T_MAX : 0;
    if (!part(s->stop, &stop)) stop = step < 0 ? PY_SSIZE_T_MIN : PY_SSIZE_T_MAX;
  } else if (key->kind == ValueKind::object && key->object && PySlice_Check(key->object.get())) {
    if (PySlice_Unpack(constant_of(t.shadows, key), &start, &stop, &step) < 0) t.errors.raise_pending();
  } else {
    return std::nullopt;
  }
  const Py_ssize_t count = PySlice_AdjustIndices(length, &start, &stop, step);
  return SliceBounds{start, stop, step, count};
}

Value* refuse_set_as_item(Value* item) {
  const SetValue* set = set_of(item);
  if (set && set->type != &PyFrozenSet_Type) graph_break(Reason::unsupported_key, "a set as an item of a set");
  return item;
}

bool is_size(Value* v) {
  return v->kind == ValueKind::instance && is_size_type(v->type);
}

Value* sequence_like(Heap& heap, Value* model, std::vector<Value*> items) {
  if (list_of(model)) return heap.list(std::move(items));
  TupleValue* made = heap.tuple(std::move(items));
  // torch.Size makes torch.Size; other subclasses of tuple make plain tuples.
  if (is_size(model)) {
    InstanceValue* size = make_instance(heap, model->type);
    size->payload = made;
    return size;
  }
  return made;
}

SetValue* make_set(Dicts& dicts, PyTypeObject* type, const std::vector<Value*>& items, PyRef order) {
  auto* set = dicts.heap.make<SetValue>(ValueKind::set, type);
  set->loaded = true;
  for (Value* item : items) {
    dicts.hash(item);
    if (find_in_set(dicts, set, item) < 0) set->items.push_back(item);
  }
  set->order = std::move(order);
  return set;
}

SetValue* make_set(Dicts& dicts, PyTypeObject* type, const std::vector<Value*>& items) {
  SetValue* set = make_set(dicts, type, items, {});
  set->order = new_order(dicts.shadows, type, set->items);
  return set;
}

namespace {

// A set takes the items of these containers at once, with the hashes that they have there.
bool is_taken_at_once(Value* v) { return set_of(v) || v->kind == ValueKind::dict; }

}  // namespace

SetValue* set_from(Tracer& t, PyTypeObject* type, Value* iterable) {
  SetValue* set = make_set(t.dicts, type, {});
  set_update(t, set, iterable);
  set->mutated = false;
  return set;
}

void set_update(Tracer& t, SetValue* set, Value* other) {
  if (!is_taken_at_once(other)) return t.for_each(other, [&](Value* item) { set_add(t.dicts, set, item); });
  const SetOperand operand = set_operand(t, other);
  will_mutate(t.shadows, set);
  if (PyRef order = std::exchange(set->order, {})) {
    if (set->type == &PyFrozenSet_Type)  // set_from() makes an empty one
      order = operand.real ? real_set(set->type, operand.real.get()) : PyRef();
    else if (!call_order(t.errors, order, "update", {operand})) order = {};
    for (Value* v : operand.items) set_add(t.dicts, set, v);
    set->order = std::move(order);
    return;
  }
  for (Value* v : operand.items) set_add(t.dicts, set, v);
}

std::vector<Value*> common_items(Dicts& dicts, SetValue* self, SetValue* other, bool of_other) {
  dicts.shadows.load(self);
  dicts.shadows.load(other);
  of_other = of_other || other->items.size() <= self->items.size();
  std::vector<Value*> common;
  for (Value* item : of_other ? other->items : self->items)
    if (find_in_set(dicts, of_other ? self : other, item) >= 0) common.push_back(item);
  return common;
}

int find_in_set(Dicts& dicts, SetValue* set, Value* item) {
  dicts.shadows.load(set);
  const Py_hash_t hash = dicts.hash(item);
  auto& hashes = dicts.shadows.tables().item_hashes;
  if (is_hashed_by_python(item)) hashes.try_emplace(item, hash);
  // A __eq__ in Python is called only for equal hashes; a set keeps the hashes of its items.
  auto may_equal = [&](Value* known) {
    if (known == item || !(is_hashed_by_python(known) || is_hashed_by_python(item))) return true;
    auto at = hashes.find(known);
    return (at != hashes.end() ? at->second : dicts.hash(known)) == hash;
  };
  for (size_t i = 0; i < set->items.size(); ++i)
    if (may_equal(set->items[i]) && keys_equal(dicts, set->items[i], item)) return static_cast<int>(i);
  return -1;
}

bool set_add(Dicts& dicts, SetValue* set, Value* item) {
  if (set->object) refuse_key_of_program(item);
  if (find_in_set(dicts, set, item) >= 0) return false;
  will_mutate(dicts.shadows, set);
  set->items.push_back(item);
  add_to_order(dicts.shadows, set, item);
  return true;
}

// From lists, tuples and the list itself, it takes the items that they hold now; from anything else, item by item.
void list_extend(Tracer& t, ListValue* list, Value* iterable) {
  t.facts.type_of(iterable);
  const bool is_itself = payload_of(iterable) == list;
  if (iterable->kind != ValueKind::list && iterable->kind != ValueKind::tuple && !is_itself)
    return t.for_each(iterable, [&](Value* item) { list_append(t.shadows, list, item); }, true);
  for (Value* item : t.unpack(iterable)) list_append(t.shadows, list, item);
}

std::optional<int64_t> raw_length(Dicts& dicts, Value* v) {
  v = contents_of(dicts.heap, v);
  switch (v->kind) {
    case ValueKind::list: dicts.shadows.load(as<ListValue>(v)); return as<ListValue>(v)->items.size();
    case ValueKind::tuple: guard_length(dicts.facts, as<TupleValue>(v)); return as<TupleValue>(v)->items.size();
    case ValueKind::dict: {
      auto* dict = as<DictValue>(v);
      if (!dict->owner && !dict->loaded && dict->object && !dict->mutated && dict->entries.empty()) {
        const Py_ssize_t n = PyDict_GET_SIZE(dict->object.get());
        dicts.facts.type_of(v);
        dicts.facts.guard_if_real(GuardKind::length, dict->source, nullptr, n);
        return n;
      }
      dicts.load_keys(dict);
      return dict->entries.size();
    }
    case ValueKind::view: return raw_length(dicts, as<ViewValue>(v)->dict);
    case ValueKind::array: {
      const Py_ssize_t n = PyObject_Size(as<ArrayValue>(v)->array.get());
      return n < 0 ? (drop_error(), std::nullopt) : std::optional<int64_t>(n);
    }
    case ValueKind::set: dicts.shadows.load(as<SetValue>(v)); return as<SetValue>(v)->items.size();
    case ValueKind::object: {
      if (!v->object || !dicts.heap.is_constant(v)) return std::nullopt;
      PyTypeObject* type = Py_TYPE(v->object.get());
      if (type != &PyUnicode_Type && type != &PyBytes_Type && type != &PyRange_Type) return std::nullopt;
      const Py_ssize_t n = PyObject_Size(constant_of(dicts.shadows, v));
      if (n < 0) dicts.errors.raise_pending();
      return n;
    }
    default: return std::nullopt;
  }
}

std::optional<int64_t> Tracer::length(Value* v) {
  if (v->kind == ValueKind::tensor || v->kind == ValueKind::instance || v->kind == ValueKind::object) {
    Value* method = v->kind == ValueKind::tensor ? lookup_special(v, "__len__") : python_special(*this, v, "__len__");
    if (method) {
      Unresumable guard(stack);
      const int64_t n = as_index(call(method, {}));
      if (n < 0) errors.raise_new(PyExc_ValueError, "__len__() should return >= 0");
      return n;
    }
  }
  return raw_length(dicts, v);
}

}  // namespace framejit::frame_hook
