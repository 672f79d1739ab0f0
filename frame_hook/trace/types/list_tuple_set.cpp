// frame_hook/trace/types/list_tuple_set.cpp — constructors and methods of list, tuple, set and frozenset on shadows.
#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/strings.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/set_order.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook::rows {

namespace {

template <class T>
T* self_as(Shadows& shadows, const Arguments& args, ValueKind kind, const char* method) {
  if (args.positional.empty())
    shadows.errors.raise_new(PyExc_TypeError, std::string("unbound method ") + method + "() needs an argument");
  shadows.facts.type_of(args.positional[0]);
  T* self = payload_as<T>(args.positional[0], kind);
  if (!self) graph_break(Reason::unsupported_operand, std::string(method) + "() of " + describe(args.positional[0]));
  return self;
}

ListValue* self_list(Shadows& shadows, const Arguments& args, const char* method) {
  auto* list = self_as<ListValue>(shadows, args, ValueKind::list, method);
  shadows.load(list);
  return list;
}

// A list that is about to be written: the shadow has all its items.
ListValue* written_list(Shadows& shadows, const Arguments& args, const char* method) {
  ListValue* list = self_list(shadows, args, method);
  for (size_t i = 0; i < list->items.size(); ++i) shadows.item(list, i);
  will_mutate(shadows, list);
  return list;
}

SetValue* self_set(Shadows& shadows, const Arguments& args, const char* method) {
  auto* set = self_as<SetValue>(shadows, args, ValueKind::set, method);
  shadows.load(set);
  return set;
}

// The operands of a set operation. CPython copies a set operand, or looks into it, while it takes the items.
std::vector<SetOperand> others_of(Tracer& t, const Arguments& args) {
  auto* self = set_of(args.positional[0]);
  const std::vector<Value*> before = self->items;
  std::vector<SetOperand> operands;
  for (size_t i = 1; i < args.positional.size(); ++i) operands.push_back(set_operand(t, args.positional[i]));
  if (self->items != before) graph_break(Reason::changed_container, "a set that its operand changes");
  return operands;
}

}  // namespace

// ---- constructors

Value* builtin_list(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "list", 0, 1);
  return t.heap.list(args.positional.empty() ? std::vector<Value*>() : t.unpack(args.positional[0]));
}

Value* builtin_tuple(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "tuple", 0, 1);
  if (!args.positional.empty() && t.facts.type_of(args.positional[0]) == &PyTuple_Type) return args.positional[0];
  return t.heap.tuple(args.positional.empty() ? std::vector<Value*>() : t.unpack(args.positional[0]));
}

Value* builtin_set(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "set", 0, 1);
  return args.positional.empty() ? make_set(t.dicts, &PySet_Type, {}) : set_from(t, &PySet_Type, args.positional[0]);
}

Value* builtin_frozenset(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "frozenset", 0, 1);
  if (!args.positional.empty() && args.positional[0]->kind == ValueKind::set &&
      t.facts.type_of(args.positional[0]) == &PyFrozenSet_Type)
    return args.positional[0];
  return args.positional.empty() ? make_set(t.dicts, &PyFrozenSet_Type, {})
                                 : set_from(t, &PyFrozenSet_Type, args.positional[0]);
}

// ---- list

Value* list_append(Shadows& shadows, const Arguments& args) {
  only_positional(shadows.errors, args, "list.append", 2, 2);
  frame_hook::list_append(shadows, self_as<ListValue>(shadows, args, ValueKind::list, "append"), args.positional[1]);
  return shadows.heap.none();
}

Value* list_extend_row(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "list.extend", 2, 2);
  list_extend(t, self_as<ListValue>(t.shadows, args, ValueKind::list, "extend"), args.positional[1]);
  return t.heap.none();
}

Value* list_insert(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "insert", 3, 3);
  int64_t i = t.as_index(args.positional[1]);
  ListValue* list = written_list(t.shadows, args, "insert");
  const int64_t n = static_cast<int64_t>(list->items.size());
  if (i < 0) i = std::max<int64_t>(0, i + n);
  list->items.insert(list->items.begin() + std::min(i, n), args.positional[2]);
  return t.heap.none();
}

Value* list_pop(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "pop", 1, 2);
  ListValue* list = self_list(t.shadows, args, "pop");
  int64_t i = args.positional.size() == 2 ? t.as_index(args.positional[1]) : -1;
  if (list->items.empty()) t.errors.raise_new(PyExc_IndexError, "pop from empty list");
  const int64_t n = static_cast<int64_t>(list->items.size());
  if (i < 0) i += n;
  if (i < 0 || i >= n) t.errors.raise_new(PyExc_IndexError, "pop index out of range");
  written_list(t.shadows, args, "pop");
  Value* item = list->items[i];
  list->items.erase(list->items.begin() + i);
  return item;
}

Value* list_remove(Dicts& dicts, const Arguments& args) {
  only_positional(dicts.errors, args, "remove", 2, 2);
  ListValue* list = self_list(dicts.shadows, args, "remove");
  for (size_t i = 0; i < list->items.size(); ++i) {
    if (!dicts.equal(dicts.shadows.item(list, i), args.positional[1])) continue;
    written_list(dicts.shadows, args, "remove");
    if (i < list->items.size()) list->items.erase(list->items.begin() + i);  // == may have shortened the list
    return dicts.heap.none();
  }
  dicts.errors.raise_new(PyExc_ValueError, "list.remove(x): x not in list");
}

Value* list_clear(Shadows& shadows, const Arguments& args) {
  written_list(shadows, args, "clear")->items.clear();
  return shadows.heap.none();
}

Value* list_reverse(Shadows& shadows, const Arguments& args) {
  ListValue* list = written_list(shadows, args, "reverse");
  std::reverse(list->items.begin(), list->items.end());
  return shadows.heap.none();
}

Value* list_sort(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "sort", {"self", "$key", "$reverse"}, 1);
  sort_list(t, written_list(t.shadows, args, "sort"), a[1], a[2]);
  return t.heap.none();
}

namespace {

Value* sequence_item(Shadows& shadows, Value* items, int64_t i) {
  const size_t at = static_cast<size_t>(i);
  return items->kind == ValueKind::list ? shadows.item(as<ListValue>(items), at)
                                        : shadows.item(as<TupleValue>(items), at);
}

}  // namespace

Value* list_copy(Tracer& t, const Arguments& args) { return t.heap.list(t.unpack(self_list(t.shadows, args, "copy"))); }

Value* sequence_index(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "index", 2, 4);
  t.facts.type_of(args.positional[0]);
  Value* items = payload_of(args.positional[0]);
  const auto length = [&] { return *raw_length(t.dicts, items); };
  const int64_t n = length();  // == may change a list, so ask for its length each time
  auto bound = [&](size_t i, int64_t otherwise) {
    if (args.positional.size() <= i) return otherwise;
    const int64_t at = t.as_index(args.positional[i]);
    return at < 0 ? std::max<int64_t>(0, at + n) : std::min(at, n);
  };
  const int64_t last = args.positional.size() > 3 ? bound(3, n) : INT64_MAX;
  Unresumable guard(t.stack);
  for (int64_t i = bound(2, 0); i < last && i < length(); ++i)
    if (t.dicts.equal(sequence_item(t.shadows, items, i), args.positional[1])) return t.heap.integer(i);
  if (tuple_of(args.positional[0])) t.errors.raise_new(PyExc_ValueError, "tuple.index(x): x not in tuple");
  t.errors.raise_new(PyExc_ValueError, repr_text(t, args.positional[1]) + " is not in list");
}

Value* sequence_count(Dicts& dicts, const Arguments& args) {
  only_positional(dicts.errors, args, "count", 2, 2);
  dicts.facts.type_of(args.positional[0]);
  int64_t count = 0;
  Value* items = payload_of(args.positional[0]);
  Unresumable guard(dicts.facts.stack);
  for (int64_t i = 0; i < *raw_length(dicts, items); ++i)
    count += dicts.equal(sequence_item(dicts.shadows, items, i), args.positional[1]);
  return dicts.heap.integer(count);
}

// ---- set, frozenset

Value* set_add_row(Dicts& dicts, const Arguments& args) {
  only_positional(dicts.errors, args, "set.add", 2, 2);
  set_add(dicts, self_set(dicts.shadows, args, "add"), args.positional[1]);
  return dicts.heap.none();
}

namespace {

bool take_out(Dicts& dicts, SetValue* set, Value* item) {
  const int at = find_in_set(dicts, set, refuse_set_as_item(item));
  if (at < 0) return false;
  Value* known = set->items[at];
  will_mutate(dicts.shadows, set);
  set->items.erase(set->items.begin() + at);
  ++set->removals;
  if (set->order && PySet_Discard(set->order.get(), known->object.get()) < 0) dicts.errors.raise_pending();
  return true;
}

// The items of self that are (not) among the others, in self's order.
std::vector<Value*> filtered(Dicts& dicts, SetValue* self, const std::vector<SetOperand>& operands, bool keep_common) {
  std::vector<Value*> kept = self->items;
  for (const SetOperand& operand : operands) {
    SetValue* other = make_set(dicts, &PySet_Type, operand.items, {});
    if (keep_common) {
      kept = common_items(dicts, make_set(dicts, &PySet_Type, kept, {}), other, !operand.is_set);
      continue;
    }
    std::vector<Value*> next;
    for (Value* v : kept)
      if (find_in_set(dicts, other, v) < 0) next.push_back(v);
    kept = std::move(next);
  }
  return kept;
}

Value* keep(Dicts& dicts, SetValue* set, const std::vector<SetOperand>& operands, bool common) {
  std::vector<Value*> kept = filtered(dicts, set, operands, common);
  will_mutate(dicts.shadows, set);
  set->items = std::move(kept);
  ++set->removals;
  if (!call_order(dicts.errors, set->order, common ? "intersection_update" : "difference_update", operands))
    set->order = {};
  return dicts.heap.none();
}

}  // namespace

Value* set_discard(Dicts& dicts, const Arguments& args) {
  only_positional(dicts.errors, args, "discard", 2, 2);
  take_out(dicts, self_set(dicts.shadows, args, "discard"), args.positional[1]);
  return dicts.heap.none();
}

Value* set_remove(Dicts& dicts, const Arguments& args) {
  only_positional(dicts.errors, args, "remove", 2, 2);
  if (!take_out(dicts, self_set(dicts.shadows, args, "remove"), args.positional[1]))
    raise_with(dicts.errors, PyExc_KeyError, {args.positional[1]});
  return dicts.heap.none();
}

// Which item a set pops depends on hashes, and on where it popped the last one.
Value* set_pop(Dicts& dicts, const Arguments& args) {
  SetValue* set = self_set(dicts.shadows, args, "pop");
  if (set->items.empty()) dicts.errors.raise_new(PyExc_KeyError, "pop from an empty set");
  will_mutate(dicts.shadows, set);
  Value* item = set->items[0];
  if (set->order) {
    PyRef key = PyRef::steal(PySet_Pop(set->order.get()));
    const auto at =
        std::find_if(set->items.begin(), set->items.end(), [&](Value* v) { return v->object.get() == key.get(); });
    if (at == set->items.end()) graph_break(Reason::set_order, "set.pop() of several items");
    item = *at;
  } else if (set->items.size() > 1) {
    graph_break(Reason::set_order, "set.pop() of several items");
  }
  take_out(dicts, set, item);
  return item;
}

Value* set_clear(Shadows& shadows, const Arguments& args) {
  SetValue* set = self_set(shadows, args, "clear");
  will_mutate(shadows, set);
  set->items.clear();
  ++set->removals;
  if (set->order && PySet_Clear(set->order.get()) < 0) shadows.errors.raise_pending();
  return shadows.heap.none();
}

Value* set_update(Tracer& t, const Arguments& args) {
  SetValue* set = self_set(t.shadows, args, "update");
  for (size_t i = 1; i < args.positional.size(); ++i) frame_hook::set_update(t, set, args.positional[i]);
  return t.heap.none();
}

Value* set_difference_update(Tracer& t, const Arguments& args) {
  SetValue* set = self_set(t.shadows, args, "difference_update");
  for (size_t i = 1; i < args.positional.size(); ++i) {
    if (set_of(args.positional[i])) {
      keep(t.dicts, set, {set_operand(t, args.positional[i])}, false);
      continue;
    }
    t.for_each(args.positional[i], [&](Value* item) { take_out(t.dicts, set, item); });
    const SetOperand nothing{{}, false, PyRef::steal(PyTuple_New(0))};
    if (set->order)
      call_order(t.errors, set->order, "difference_update", {nothing});  // moves the rest if many places are free
  }
  return t.heap.none();
}

Value* set_intersection_update(Tracer& t, const Arguments& args) {
  SetValue* set = self_set(t.shadows, args, "intersection_update");
  return keep(t.dicts, set, others_of(t, args), true);
}

Value* set_copy(Dicts& dicts, const Arguments& args) {
  SetValue* self = self_set(dicts.shadows, args, "copy");
  return make_set(dicts, &PySet_Type, self->items, call_order(dicts.errors, order_of(dicts.shadows, self), "copy", {}));
}

Value* frozenset_copy(Dicts& dicts, const Arguments& args) {
  SetValue* self = self_set(dicts.shadows, args, "copy");
  if (dicts.facts.type_of(args.positional[0]) == &PyFrozenSet_Type) return args.positional[0];
  return make_set(dicts, &PyFrozenSet_Type, self->items,
                  call_order(dicts.errors, order_of(dicts.shadows, self), "copy", {}));
}

Value* set_union(Tracer& t, const Arguments& args) {
  SetValue* self = self_set(t.shadows, args, "union");
  const std::vector<SetOperand> operands = others_of(t, args);
  std::vector<Value*> items = self->items;
  for (const SetOperand& operand : operands) items.insert(items.end(), operand.items.begin(), operand.items.end());
  return make_set(t.dicts, self->type, items, call_order(t.errors, order_of(t.shadows, self), "union", operands));
}

Value* set_intersection(Tracer& t, const Arguments& args) {
  SetValue* self = self_set(t.shadows, args, "intersection");
  const std::vector<SetOperand> operands = others_of(t, args);
  return make_set(t.dicts, self->type, filtered(t.dicts, self, operands, true),
                  call_order(t.errors, order_of(t.shadows, self), "intersection", operands));
}

Value* set_difference(Tracer& t, const Arguments& args) {
  SetValue* self = self_set(t.shadows, args, "difference");
  const std::vector<SetOperand> operands = others_of(t, args);
  return make_set(t.dicts, self->type, filtered(t.dicts, self, operands, false),
                  call_order(t.errors, order_of(t.shadows, self), "difference", operands));
}

Value* set_symmetric_difference(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "symmetric_difference", 2, 2);
  SetValue* self = self_set(t.shadows, args, "symmetric_difference");
  const std::vector<SetOperand> operands = others_of(t, args);
  std::vector<Value*> items = filtered(t.dicts, self, operands, false);
  for (Value* v : operands[0].items)
    if (find_in_set(t.dicts, self, v) < 0) items.push_back(v);
  return make_set(t.dicts, self->type, items,
                  call_order(t.errors, order_of(t.shadows, self), "symmetric_difference", operands));
}

namespace {

// Whether the iterable has such an item. Later items are not taken.
bool find_item(Tracer& t, Value* iterable, const std::function<bool(Value*)>& is_it) {
  if (set_of(iterable)) {
    const std::vector<Value*> items = set_operand(t, iterable).items;
    return std::any_of(items.begin(), items.end(), is_it);
  }
  Unresumable guard(t.stack);
  Value* iterator = t.iterate(iterable);
  while (Value* item = t.next_item(iterator))
    if (is_it(item)) return true;
  return false;
}

}  // namespace

Value* set_issubset(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "issubset", 2, 2);
  SetValue* self = self_set(t.shadows, args, "issubset");
  return t.heap.boolean(filtered(t.dicts, self, others_of(t, args), true).size() == self->items.size());
}

Value* set_issuperset(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "issuperset", 2, 2);
  SetValue* self = self_set(t.shadows, args, "issuperset");
  return t.heap.boolean(!find_item(t, args.positional[1], [&](Value* v) { return find_in_set(t.dicts, self, v) < 0; }));
}

Value* set_isdisjoint(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "isdisjoint", 2, 2);
  SetValue* self = self_set(t.shadows, args, "isdisjoint");
  return t.heap.boolean(
      !find_item(t, args.positional[1], [&](Value* v) { return find_in_set(t.dicts, self, v) >= 0; }));
}

}  // namespace framejit::frame_hook::rows
