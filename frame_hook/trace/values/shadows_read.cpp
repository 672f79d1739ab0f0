// frame_hook/trace/values/shadows_read.cpp — reading real containers and functions through sources.
#include <string>

#include "frame_hook/trace/values/key_hashes.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/shadows.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::SourceKind;

void Shadows::load(ListValue* v) {
  if (v->loaded) return;
  facts.type_of(v);
  v->loaded = true;
  const Py_ssize_t n = PyList_GET_SIZE(v->object.get());
  facts.guard_if_real(GuardKind::length, v->source, nullptr, n);
  v->items.insert(v->items.begin(), n, nullptr);
  for (Py_ssize_t i = 0; v->mutated && i < n; ++i) item(v, i);  // the shadow of a list that is written has all items
}

Value* Shadows::item(ListValue* v, size_t i) {
  load(v);
  Value*& slot = v->items[i];
  if (!slot)
    slot = heap.wrap(PyList_GET_ITEM(v->object.get(), i),
                     facts.sources().add(SourceKind::list_item, v->source, static_cast<int32_t>(i)));
  return slot;
}

void guard_length(Facts& facts, TupleValue* v) {
  if (v->length_guarded) return;
  facts.type_of(v);
  v->length_guarded = true;
  if (!v->value_guarded)
    facts.guard_if_real(GuardKind::length, v->source, nullptr, static_cast<int64_t>(v->items.size()));
}

Value* Shadows::item(TupleValue* v, size_t i) {
  guard_length(facts, v);
  Value*& slot = v->items[i];
  if (slot) return slot;
  PyObject* real = PyTuple_GET_ITEM(v->object.get(), i);
  if (v->source == guards::kNoSource) return slot = heap.constant_value(real);
  return slot = heap.wrap(real, facts.sources().add(SourceKind::tuple_item, v->source, static_cast<int32_t>(i)));
}

void Shadows::load(SetValue* v) {
  if (v->loaded || !v->object) return;
  facts.type_of(v);
  if (!PyAnySet_CheckExact(v->object.get()))
    graph_break(Reason::unsupported_operand, std::string("the items of a ") + Py_TYPE(v->object.get())->tp_name);
  v->loaded = true;
  for (PyObject* item : items_of_set(v->object.get())) {
    if (!is_plain(item) && (!has_identity_constant(item) || hashes_in_program(item)))
      graph_break(Reason::unsupported_key, "a set that holds an object of type " + std::string(Py_TYPE(item)->tp_name));
    v->items.push_back(heap.constant_value(item));
  }
  if (v->value_guarded || v->source == guards::kNoSource) return;
  const PyRef copy = real_set(v->type, v->object.get());
  facts.guard_if_real(GuardKind::equals, v->source, copy.get());
}

void Shadows::load(FunctionValue* v) {
  if (v->loaded) return;
  v->loaded = true;
  facts.type_of(v);
  auto* f = reinterpret_cast<PyFunctionObject*>(v->object.get());
  auto& sources = facts.sources();
  const guards::SourceId where = facts.source_of(v);
  v->code = reinterpret_cast<PyCodeObject*>(f->func_code);
  facts.guard_if_real(GuardKind::function_code, where, f->func_code);
  v->globals = heap.wrap(f->func_globals, sources.add(SourceKind::function_globals, where));
  if (v->globals->kind == ValueKind::dict) as<DictValue>(v->globals)->is_globals = true;  // no subclass of dict
  const guards::SourceId defaults = sources.add(SourceKind::function_defaults, where);
  if (f->func_defaults) v->defaults = heap.wrap(f->func_defaults, defaults);
  else if (v->code->co_argcount) facts.guard_if_real(GuardKind::is, defaults, Py_None);
  const guards::SourceId kwdefaults = sources.add(SourceKind::function_kwdefaults, where);
  if (f->func_kwdefaults) v->kwdefaults = heap.wrap(f->func_kwdefaults, kwdefaults);
  else if (v->code->co_kwonlyargcount) facts.guard_if_real(GuardKind::is, kwdefaults, Py_None);
  if (!f->func_closure) return;
  const guards::SourceId closure = sources.add(SourceKind::function_closure, where);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(f->func_closure); ++i)
    v->closure.push_back(heap.wrap(PyTuple_GET_ITEM(f->func_closure, i),
                                   sources.add(SourceKind::tuple_item, closure, static_cast<int32_t>(i))));
}

Value* cell_contents(Shadows& shadows, CellValue* cell) {
  if (cell->loaded) return cell->contents;
  Facts& facts = shadows.facts;
  PyObject* object = PyCell_GET(cell->object.get());
  facts.type_of(cell);
  const guards::SourceId source = facts.sources().add(SourceKind::cell_contents, cell->source);
  if (object) cell->contents = shadows.heap.wrap(object, source);
  cell->loaded = true;
  facts.relies_on_binding(source, object != nullptr);
  return cell->contents;
}

Value* payload_of(Value* v) {
  while (v->kind == ValueKind::instance && as<InstanceValue>(v)->payload &&
         !PyType_HasFeature(v->type, Py_TPFLAGS_BASE_EXC_SUBCLASS))  // an exception's payload is its arguments, not its
                                                                     // value
    v = as<InstanceValue>(v)->payload;
  return v;
}

std::vector<Value*> items_of(Shadows& shadows, Value* v) {
  std::vector<Value*> items;
  if (v->kind == ValueKind::tuple) {
    auto* tuple = as<TupleValue>(v);
    guard_length(shadows.facts, tuple);
    for (size_t i = 0; i < tuple->items.size(); ++i) items.push_back(shadows.item(tuple, i));
  } else if (v->kind == ValueKind::list) {
    auto* list = as<ListValue>(v);
    shadows.load(list);
    for (size_t i = 0; i < list->items.size(); ++i) items.push_back(shadows.item(list, i));
  } else {
    shadows.load(as<SetValue>(v));
    items = as<SetValue>(v)->items;
  }
  return items;
}

bool is_plain(Shadows& shadows, Value* v) {
  switch (v->kind) {
    case ValueKind::object: return v->object && is_plain(v->object.get());
    case ValueKind::tuple: {
      auto* tuple = as<TupleValue>(v);
      if (v->object && is_plain(v->object.get())) return shadows.heap.is_constant(v);  // not with symbols in it
      for (size_t i = 0; i < tuple->items.size(); ++i)
        if (!is_plain(shadows, shadows.item(tuple, i))) return false;
      return true;
    }
    case ValueKind::slice: {
      auto* s = as<SliceValue>(v);
      return is_plain(shadows, s->start) && is_plain(shadows, s->stop) && is_plain(shadows, s->step);
    }
    case ValueKind::set: {
      if (v->object) return v->type == &PyFrozenSet_Type && is_plain(v->object.get());
      if (v->type != &PyFrozenSet_Type) return false;
      for (Value* item : as<SetValue>(v)->items)
        if (!is_plain(shadows, item)) return false;
      return true;
    }
    default: return false;
  }
}

bool all_plain(Shadows& shadows, const Arguments& args) {
  for (Value* v : args.positional)
    if (!is_plain(shadows, v)) return false;
  for (const auto& [name, v] : args.keywords)
    if (!is_plain(shadows, v)) return false;
  return true;
}

}  // namespace framejit::frame_hook
