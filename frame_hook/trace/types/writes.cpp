#include "frame_hook/trace/types/writes.h"

#include <algorithm>

#include "frame_hook/trace/types/set_order.h"

namespace framejit::frame_hook {

bool wrote_attributes_in(const Shadows& shadows, PyObject* dict) {
  for (const Value* v : shadows.effects()) {
    PyObject** own = v->kind == ValueKind::instance && v->object ? _PyObject_GetDictPtr(v->object.get()) : nullptr;
    if (own && *own == dict) return true;
  }
  return false;
}

namespace {

// Whether a write to the container may drop something, and so run Python code at once. Globals are written one by one.
bool write_may_drop(Value* v) {
  if (v->kind == ValueKind::list) {
    PyObject** const items = PySequence_Fast_ITEMS(v->object.get());
    return std::any_of(items, items + PyList_GET_SIZE(v->object.get()),
                       [](PyObject* item) { return may_be_half_way(Py_TYPE(item)); });
  }
  if (v->kind != ValueKind::dict || as<DictValue>(v)->is_globals) return false;
  PyObject *key, *item;
  for (Py_ssize_t position = 0; PyDict_Next(v->object.get(), &position, &key, &item);)
    if (may_be_half_way(Py_TYPE(item))) return true;
  return false;
}

}  // namespace

void will_mutate(Shadows& shadows, Value* v) {
  shadows.facts.type_of(v);
  if (v->kind == ValueKind::list && as<ListValue>(v)->being_sorted)
    graph_break(Reason::changed_container, "a write to a list that is being sorted");
  if (v->object && v->object.get() == PyEval_GetBuiltins())
    graph_break(Reason::outside_effect, "a write to module builtins");
  if (v->object && !v->mutated && write_may_drop(v))
    graph_break(Reason::real_iterator, std::string("held by a ") + v->type->tp_name + " that is written");
  shadows.tables().writes += v->object ? 1 : 0;
  if (v->mutated) return;
  if (SetValue* set = v->kind == ValueKind::set && v->object ? as<SetValue>(v) : nullptr) adopt_order(shadows, set);
  v->mutated = true;
  if (v->object) shadows.add_effect(v);
}

void list_append(Shadows& shadows, ListValue* list, Value* item) {
  if (list->loaded && !list->mutated)
    for (size_t i = 0; i < list->items.size(); ++i) shadows.item(list, i);
  will_mutate(shadows, list);
  list->items.push_back(item);
}

}  // namespace framejit::frame_hook
