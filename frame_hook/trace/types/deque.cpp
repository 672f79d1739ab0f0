// frame_hook/trace/types/deque.cpp — collections.deque made in the trace: an instance whose payload is a list, and its
// maxlen. There is no path to the items of a real deque, so it breaks.
#include <algorithm>

#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook::rows {

namespace {

ListValue* self_deque(const Arguments& args, const char* method) {
  Value* self = args.positional.at(0);
  ListValue* list = self->kind == ValueKind::instance && !self->object ? list_of(self) : nullptr;
  if (!list)
    graph_break(Reason::unsupported_operand,
                std::string("deque.") + method + "() of one that was made outside of the trace");
  return list;
}

void push(Shadows& shadows, ListValue* deque, Value* item, bool left) {
  std::vector<Value*>& items = deque->items;
  will_mutate(shadows, deque);
  ++deque->changes;
  if (deque->limit == 0) return;
  if (deque->limit > 0 && static_cast<int64_t>(items.size()) == deque->limit)
    items.erase(left ? items.end() - 1 : items.begin());
  items.insert(left ? items.begin() : items.end(), item);
}

Value* extend(Tracer& t, const Arguments& args, const char* method, bool left) {
  only_positional(t.errors, args, method, 2, 2);
  ListValue* deque = self_deque(args, method);
  Value* iterable = args.positional[1];
  if (payload_of(iterable) == deque) iterable = t.heap.list(deque->items);
  t.for_each(iterable, [&](Value* item) { push(t.shadows, deque, item, left); });
  return t.heap.none();
}

Value* pop(Errors& errors, const Arguments& args, const char* method, bool left) {
  only_positional(errors, args, method, 1, 1);
  ListValue* deque = self_deque(args, method);
  std::vector<Value*>& items = deque->items;
  if (items.empty()) errors.raise_new(PyExc_IndexError, "pop from an empty deque");
  const auto at = left ? items.begin() : items.end() - 1;
  Value* item = *at;
  ++deque->changes;
  items.erase(at);
  return item;
}

}  // namespace

Value* builtin_deque(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "deque", {"iterable", "maxlen"}, 0);
  InstanceValue* v = make_instance(t.heap, known_type(KnownType::deque));
  Value* limit = a[1] ? a[1] : t.heap.none();
  ListValue* items = t.heap.list({});
  if (!same_object(t.shadows, limit, t.heap.none())) {
    if (!PyType_IsSubtype(t.facts.type_of(limit), &PyLong_Type))
      t.errors.raise_new(PyExc_TypeError, "an integer is required");
    limit = exact_int(t.shadows, limit);
    if ((items->limit = t.as_index(limit)) < 0) t.errors.raise_new(PyExc_ValueError, "maxlen must be non-negative");
  }
  v->payload = items;
  v->attrs.emplace_back(PyRef::borrow(interned("maxlen")), limit);
  if (a[0]) extend(t, Arguments{{v, a[0]}, {}}, "extend", false);
  return v;
}

Value* deque_append(Shadows& shadows, const Arguments& args) {
  only_positional(shadows.errors, args, "append", 2, 2);
  push(shadows, self_deque(args, "append"), args.positional[1], false);
  return shadows.heap.none();
}

Value* deque_appendleft(Shadows& shadows, const Arguments& args) {
  only_positional(shadows.errors, args, "appendleft", 2, 2);
  push(shadows, self_deque(args, "appendleft"), args.positional[1], true);
  return shadows.heap.none();
}

Value* deque_extend(Tracer& t, const Arguments& args) { return extend(t, args, "extend", false); }
Value* deque_extendleft(Tracer& t, const Arguments& args) { return extend(t, args, "extendleft", true); }
Value* deque_pop(Errors& errors, const Arguments& args) { return pop(errors, args, "pop", false); }
Value* deque_popleft(Errors& errors, const Arguments& args) { return pop(errors, args, "popleft", true); }

Value* deque_clear(Heap& heap, const Arguments& args) {
  ListValue* deque = self_deque(args, "clear");
  ++deque->changes;
  deque->items.clear();
  return heap.none();
}

Value* deque_reverse(Heap& heap, const Arguments& args) {
  std::vector<Value*>& items = self_deque(args, "reverse")->items;
  std::reverse(items.begin(), items.end());
  return heap.none();
}

Value* deque_rotate(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "rotate", 1, 2);
  ListValue* deque = self_deque(args, "rotate");
  std::vector<Value*>& items = deque->items;
  const int64_t n = static_cast<int64_t>(items.size()),
                by = args.positional.size() == 2 ? t.as_index(args.positional[1]) : 1;
  if (n > 1) ++deque->changes;
  if (n > 0) std::rotate(items.begin(), items.end() - ((by % n) + n) % n, items.end());
  return t.heap.none();
}

}  // namespace framejit::frame_hook::rows

namespace framejit::frame_hook {

void deque_extend(Tracer& t, Value* deque, Value* iterable) {
  rows::extend(t, Arguments{{deque, iterable}, {}}, "extend", false);
}

bool is_deque(Value* v) {
  PyTypeObject* const type = known_type(KnownType::deque);
  return v->kind == ValueKind::instance && type && PyType_IsSubtype(v->type, type);
}

}  // namespace framejit::frame_hook
