// frame_hook/trace/protocol/items.cpp — v[key], v[key] = x, del v[key], x in v: dispatch.
#include <algorithm>

#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/torch/tensor_operands.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook {

namespace {

bool is_basic_index(Value* v) {
  if (v->kind == ValueKind::sym_int || v->kind == ValueKind::slice) return true;
  return v->kind == ValueKind::object && v->object &&
         (v->object.get() == Py_None || v->object.get() == Py_Ellipsis || PyLong_CheckExact(v->object.get()));
}

// x[i, 1:] where i is a symbol, to be read or written. torch's own indexing would make it a constant; select() does
// not. Null: an index of another form.
Value* select_by_symbol(Tracer& t, Value* v, Value* key) {
  auto select = [&](Value* from, int64_t dim, Value* index) {
    return t.call(t.get_attribute(from, interned("select")), {t.heap.integer(dim), index});
  };
  if (key->kind == ValueKind::sym_int) return select(v, 0, key);
  if (key->kind != ValueKind::tuple) return nullptr;
  std::vector<Value*> parts = t.unpack(key);
  auto is_symbol = [](Value* part) { return part->kind == ValueKind::sym_int; };
  if (!std::any_of(parts.begin(), parts.end(), is_symbol) || !std::all_of(parts.begin(), parts.end(), is_basic_index))
    return nullptr;
  auto is = [](Value* part, PyObject* object) {
    return part->kind == ValueKind::object && part->object.get() == object;
  };
  int64_t unnamed = t.as_index(t.get_attribute(v, interned("ndim")));
  for (Value* part : parts) unnamed -= !is(part, Py_None) && !is(part, Py_Ellipsis);
  if (unnamed < 0) return nullptr;
  auto* all = t.heap.make<SliceValue>(ValueKind::slice, &PySlice_Type);
  all->start = all->stop = all->step = t.heap.none();
  std::vector<std::pair<int64_t, Value*>> selections;  // dimension of the result so far, index
  int64_t dim = 0;
  for (Value*& part : parts) {
    if (is_symbol(part)) selections.emplace_back(dim, std::exchange(part, all));
    if (is(part, Py_Ellipsis)) dim += unnamed;
    else dim += part->kind == ValueKind::slice || is(part, Py_None);
  }
  Value* result = t.get_item(v, t.heap.tuple(std::move(parts)));
  for (auto it = selections.rbegin(); it != selections.rend(); ++it) result = select(result, it->first, it->second);
  return result;
}

}  // namespace

Value* Tracer::get_item(Value* v, Value* key) {
  return with_cpython_errors(
      numbers, [&] { return CCall{operator_function("getitem"), Arguments{{v, key}, {}}}; },
      [&] { return get_item_with_own_errors(v, key); });
}

Value* Tracer::get_item_with_own_errors(Value* v, Value* key) {
  if (v->kind == ValueKind::tensor)
    if (Value* selected = select_by_symbol(*this, v, key)) return selected;
  if (v->kind == ValueKind::tensor)
    return calls.recorded(operator_function("getitem"), operands(facts, {"__getitem__"}, {v, key}));
  if (Value* made = type_subscript(*this, v, key)) return made;
  if (!real_type(v))
    if (Value* method = python_special(*this, v, "__getitem__")) return call(method, {key});
  return raw_get_item(*this, v, key);
}

void Tracer::set_item(Value* v, Value* key, Value* to) {
  return with_cpython_errors(
      numbers, [&] { return CCall{operator_function("setitem"), Arguments{{v, key, to}, {}}}; },
      [&] { return set_item_with_own_errors(v, key, to); });
}

void Tracer::set_item_with_own_errors(Value* v, Value* key, Value* to) {
  if (v->kind == ValueKind::tensor) {
    Value* place = key->kind == ValueKind::tuple ? select_by_symbol(*this, v, key) : nullptr;
    if (place) v = place, key = heap.constant_value(Py_Ellipsis);
    calls.recorded(operator_function("setitem"), operands(facts, {"__setitem__"}, {v, key, to}));
    return;
  }
  if (Value* method = python_special(*this, v, "__setitem__")) {
    call(method, {key, to});
    return;
  }
  raw_set_item(*this, v, key, to);
}

void Tracer::delete_item(Value* v, Value* key) {
  return with_cpython_errors(
      numbers, [&] { return CCall{operator_function("delitem"), Arguments{{v, key}, {}}}; },
      [&] { return delete_item_with_own_errors(v, key); });
}

void Tracer::delete_item_with_own_errors(Value* v, Value* key) {
  if (Value* method = python_special(*this, v, "__delitem__")) {
    call(method, {key});
    return;
  }
  raw_delete_item(*this, v, key);
}

bool Tracer::contains(Value* container, Value* item) {
  return with_cpython_errors(
      numbers, [&] { return CCall{operator_function("contains"), Arguments{{container, item}, {}}}; },
      [&] { return contains_with_own_errors(container, item); });
}

bool Tracer::contains_with_own_errors(Value* container, Value* item) {
  Unresumable guard(stack);
  if (container->kind == ValueKind::tensor) return truth(call(lookup_special(container, "__contains__"), {item}));
  if (Value* method = python_special(*this, container, "__contains__")) return truth(call(method, {item}));
  if (PyObject* type = real_type(container)) {
    const Found meta = look_up(shadows, Py_TYPE(type), facts.type_source(container), interned("__contains__"));
    if (meta.object) return truth(call(bind(*this, meta, container, Py_TYPE(type), nullptr), {item}));
  }
  // A class in C may have a search of its own, which does not ask __iter__.
  const PySequenceMethods* const in_c = builtin_base(facts.type_of(container))->tp_as_sequence;
  const bool searches = in_c && in_c->sq_contains;
  if (searches && contents_of(heap, container) == container && python_special(*this, container, "__iter__"))
    graph_break(Reason::unsupported_operand, "a search in " + describe(container));
  if (container->kind == ValueKind::instance && !searches &&
      (payload_of(container) == container || python_special(*this, container, "__iter__"))) {
    Value* iterator = iterate(container);
    while (Value* next = next_item(iterator))
      if (dicts.equal(next, item)) return true;
    return false;
  }
  return raw_contains(*this, container, item);
}

}  // namespace framejit::frame_hook
