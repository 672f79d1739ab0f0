// frame_hook/trace/types/container_items.cpp — v[key], v[key] = x, del v[key] and x in v, as the builtin types do them.
#include <algorithm>

#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook {

namespace {

size_t index_or_raise(Tracer& t, Value* key, int64_t length, const char* what) {
  const PyTypeObject* type = t.facts.type_of(key);
  const bool index = key->kind == ValueKind::sym_int || (type->tp_as_number && type->tp_as_number->nb_index);
  if (!index)
    t.errors.raise_new(PyExc_TypeError,
                       std::string(what) + " indices must be integers or slices, not " + type->tp_name);
  int64_t i = t.as_index(key);
  if (i < 0) i += length;
  if (i < 0 || i >= length) t.errors.raise_new(PyExc_IndexError, std::string(what) + " index out of range");
  return static_cast<size_t>(i);
}

template <class Sequence>
Value* slice_of(Shadows& shadows, Value* whole, Sequence* sequence, const SliceBounds& slice) {
  std::vector<Value*> items;
  for (int64_t k = 0, i = slice.start; k < slice.count; ++k, i += slice.step)
    items.push_back(shadows.item(sequence, i));
  return sequence_like(shadows.heap, whole, std::move(items));
}

Value* list_item(Tracer& t, Value* whole, ListValue* list, Value* key) {
  t.shadows.load(list);
  const int64_t n = static_cast<int64_t>(list->items.size());
  if (auto slice = slice_bounds(t, key, n)) return slice_of(t.shadows, whole, list, *slice);
  return t.shadows.item(list, index_or_raise(t, key, n, "list"));
}

Value* tuple_item(Tracer& t, Value* whole, TupleValue* tuple, Value* key) {
  const int64_t n = *raw_length(t.dicts, tuple);
  if (auto slice = slice_bounds(t, key, n)) {
    if (whole == tuple && slice->count == n && slice->step == 1) return whole;
    return slice_of(t.shadows, whole, tuple, *slice);
  }
  return t.shadows.item(tuple, index_or_raise(t, key, n, "tuple"));
}

Value* dict_item(Tracer& t, Value* whole, DictValue* dict, Value* key) {
  if (Value* found = t.dicts.get(dict, key)) return found;
  if (whole != dict && whole->kind == ValueKind::instance)
    if (Value* missing = t.lookup_special(whole, "__missing__")) return t.call(missing, {key});
  raise_with(t.errors, PyExc_KeyError, {key});
}

Value* class_item(Tracer& t, Value* v, Value* key) {
  PyTypeObject* type = t.facts.known_type(v);
  const Found meta = look_up(t.shadows, Py_TYPE(type), t.facts.type_source(v), interned("__getitem__"));
  if (meta.object) return t.call(bind(t, meta, v, Py_TYPE(type), nullptr), {key});
  if (type == &PyType_Type || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    if (!t.heap.is_constant(key))
      graph_break(Reason::unsupported_operand, std::string(type->tp_name) + "[...] of a value made in the trace");
    return t.errors.constant_steal(PyObject_GetItem(constant_of(t.shadows, v), constant_of(t.shadows, key)));
  }
  const Found getter = look_up(t.shadows, type, t.facts.source_of(v), interned("__class_getitem__"));
  if (!getter.object)
    t.errors.raise_new(PyExc_TypeError, std::string("type '") + type->tp_name + "' is not subscriptable");
  return t.call(bind(t, getter, nullptr, type, v), {key});
}

// PySequence_Fast. The error for an object that cannot be iterated differs between versions, so CPython raises it, on
// an empty list.
std::vector<Value*> items_to_assign(Tracer& t, Value* v, int64_t step) {
  const bool is_iterable = v->kind == ValueKind::instance || t.facts.type_of(v)->tp_iter;
  if (is_iterable) return t.unpack(v);
  const PyRef list = PyRef::steal(PyList_New(0)), stride = PyRef::steal(PyLong_FromLongLong(step));
  const PyRef slice = PyRef::steal(PySlice_New(nullptr, nullptr, stride.get()));
  PyObject_SetItem(list.get(), slice.get(), Py_None);
  t.errors.raise_pending();
}

// The bounds are those of the list before the items were taken, which may have changed the list.
void assign_list_slice(Tracer& t, ListValue* list, SliceBounds s, Value* to) {
  const size_t before = list->items.size();
  const std::vector<Value*> items = to ? items_to_assign(t, to, s.step) : std::vector<Value*>();
  const int64_t n = static_cast<int64_t>(list->items.size());
  if (s.step != 1 && before != list->items.size())
    graph_break(Reason::changed_container, "an extended slice of a list that the assigned value changes");
  if (s.step == 1) {
    s.start = std::min(s.start, n);
    s.stop = std::clamp(s.stop, s.start, n);
  }
  for (size_t i = 0; i < list->items.size(); ++i) t.shadows.item(list, i);
  will_mutate(t.shadows, list);
  auto begin = list->items.begin();
  if (s.step == 1) {
    list->items.erase(begin + s.start, begin + s.stop);
    list->items.insert(list->items.begin() + s.start, items.begin(), items.end());
    return;
  }
  if (to) {
    if (static_cast<int64_t>(items.size()) != s.count)
      t.errors.raise_new(PyExc_ValueError, "attempt to assign sequence of size " + std::to_string(items.size()) +
                                               " to extended slice of size " + std::to_string(s.count));
    for (int64_t k = 0; k < s.count; ++k) list->items[s.start + k * s.step] = items[k];
    return;
  }
  std::vector<Value*> kept;
  std::vector<bool> gone(list->items.size(), false);
  for (int64_t k = 0; k < s.count; ++k) gone[s.start + k * s.step] = true;
  for (size_t i = 0; i < gone.size(); ++i)
    if (!gone[i]) kept.push_back(list->items[i]);
  list->items = std::move(kept);
}

// to null: delete.
void write_list_item(Tracer& t, ListValue* list, Value* key, Value* to) {
  t.shadows.load(list);
  const int64_t n = static_cast<int64_t>(list->items.size());
  if (auto slice = slice_bounds(t, key, n)) return assign_list_slice(t, list, *slice, to);
  const size_t i = index_or_raise(t, key, n, "list assignment");
  for (size_t k = 0; k < list->items.size(); ++k) t.shadows.item(list, k);
  will_mutate(t.shadows, list);
  if (to) list->items[i] = to;
  else list->items.erase(list->items.begin() + i);
}

bool has_items(Value* v) {
  const PyTypeObject* type = builtin_base(v->type);
  return (type->tp_as_mapping && type->tp_as_mapping->mp_subscript) ||
         (type->tp_as_sequence && type->tp_as_sequence->sq_item);
}

bool takes_items(Value* v) {
  const PyTypeObject* type = builtin_base(v->type);
  return (type->tp_as_mapping && type->tp_as_mapping->mp_ass_subscript) ||
         (type->tp_as_sequence && type->tp_as_sequence->sq_ass_item);
}

}  // namespace

Value* raw_get_item(Tracer& t, Value* v, Value* key) {
  t.facts.type_of(v);
  Value* inner = contents_of(t.heap, v);
  if (inner->kind == ValueKind::array) return array_item(t, as<ArrayValue>(inner), key);
  if (inner->kind == ValueKind::list) return list_item(t, v, as<ListValue>(inner), key);
  if (inner->kind == ValueKind::tuple) return tuple_item(t, v, as<TupleValue>(inner), key);
  if (inner->kind == ValueKind::dict)
    return dict_item(t, v->kind == ValueKind::instance && v->type == &PyDictProxy_Type ? inner : v,
                     as<DictValue>(inner), key);
  if (inner->kind == ValueKind::object && inner->object) {
    if (real_type(inner)) return class_item(t, inner, key);
    key = specialised(t.heap, key);
    if (key->kind == ValueKind::slice) {
      auto* s = as<SliceValue>(key);
      auto* plain = t.heap.make<SliceValue>(ValueKind::slice, &PySlice_Type);
      plain->start = specialised(t.heap, s->start);
      plain->stop = specialised(t.heap, s->stop);
      plain->step = specialised(t.heap, s->step);
      key = plain;
    }
    if (t.heap.is_constant(inner) && is_plain(inner->object.get()))
      return t.calls.plain(operator_function("getitem"), Arguments{{inner, payload_of(key)}, {}});
  }
  raise_unless_in_c(t.errors, v, has_items(v), std::string("'") + v->type->tp_name + "' object is not subscriptable");
}

void raw_set_item(Tracer& t, Value* v, Value* key, Value* to) {
  t.facts.type_of(v);
  Value* inner = v->type == &PyDictProxy_Type ? v : payload_of(v);
  if (inner->kind == ValueKind::array) return write_array_item(t, as<ArrayValue>(inner), key, to);
  if (inner->kind == ValueKind::list) return write_list_item(t, as<ListValue>(inner), key, to);
  if (inner->kind == ValueKind::dict) return t.dicts.set(as<DictValue>(inner), key, to);
  raise_unless_in_c(t.errors, v, takes_items(v),
                    std::string("'") + v->type->tp_name + "' object does not support item assignment");
}

void raw_delete_item(Tracer& t, Value* v, Value* key) {
  t.facts.type_of(v);
  Value* inner = v->type == &PyDictProxy_Type ? v : payload_of(v);
  if (inner->kind == ValueKind::array) graph_break(Reason::numpy_array, "a deletion from an array");
  if (inner->kind == ValueKind::list) return write_list_item(t, as<ListValue>(inner), key, nullptr);
  if (inner->kind == ValueKind::dict) {
    if (!t.dicts.remove(as<DictValue>(inner), key)) raise_with(t.errors, PyExc_KeyError, {key});
    return;
  }
  raise_unless_in_c(t.errors, v, takes_items(v),
                    std::string("'") + v->type->tp_name + "' object " +
                        (is_int(payload_of(key)) ? "doesn't" : "does not") + " support item deletion");
}

bool raw_contains(Tracer& t, Value* v, Value* item) {
  t.facts.type_of(v);
  Value* inner = contents_of(t.heap, v);
  switch (inner->kind) {
    case ValueKind::array: return t.truth(call_numpy(t, operator_function("contains"), {{inner, item}, {}}));
    case ValueKind::dict: return t.dicts.get(as<DictValue>(inner), item) != nullptr;
    case ValueKind::set: return find_in_set(t.dicts, as<SetValue>(inner), refuse_set_as_item(item)) >= 0;
    case ValueKind::view: {
      auto* view = as<ViewValue>(inner);
      if (view->what == ViewValue::What::keys) return t.dicts.get(view->dict, item) != nullptr;
      break;
    }
    case ValueKind::object: {
      if (!inner->object || !is_plain(inner->object.get())) break;
      if (item->kind == ValueKind::instance && PyRange_Check(inner->object.get())) break;  // its own __eq__ compares it
      item = payload_of(specialised(t.heap, item));
      if (is_plain(t.shadows, item))
        return constant_of(t.shadows, t.calls.plain(operator_function("contains"), Arguments{{inner, item}, {}})) ==
               Py_True;
      if (PyUnicode_CheckExact(inner->object.get()))
        t.errors.raise_new(PyExc_TypeError, "'in <string>' requires string as left operand");
      break;
    }
    default: break;
  }
  Unresumable guard(t.stack);
  Value* iterator = raw_iterate(t, inner);
  while (Value* next = t.next_item(iterator))
    if (t.dicts.equal(next, item)) return true;
  return false;
}

}  // namespace framejit::frame_hook
