// frame_hook/trace/types/dict.cpp — dict(), and the methods of dict, OrderedDict, defaultdict and mappingproxy on
// shadows.
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook::rows {

namespace {

DictValue* self_dict(Errors& errors, const Arguments& args, const char* method) {
  if (args.positional.empty())
    errors.raise_new(PyExc_TypeError, std::string("unbound method dict.") + method + "() needs an argument");
  errors.heap.facts.type_of(args.positional[0]);
  Value* contents = contents_of(errors.heap, args.positional[0]);
  if (contents->kind != ValueKind::dict)
    graph_break(Reason::unsupported_operand, std::string(method) + "() of " + describe(args.positional[0]));
  return as<DictValue>(contents);
}

Value* view_of(Errors& errors, const Arguments& args, ViewValue::What what, const char* method) {
  only_positional(errors, args, method, 1, 1);
  return make_view(errors.heap, self_dict(errors, args, method), what);
}

}  // namespace

Value* builtin_dict(Tracer& t, const Arguments& args) {
  if (args.positional.size() > 1)
    t.errors.raise_new(PyExc_TypeError,
                       "dict expected at most 1 argument, got " + std::to_string(args.positional.size()));
  DictValue* made = t.heap.dict();
  if (!args.positional.empty()) dict_update(t, made, args.positional[0]);
  for (const auto& [name, v] : args.keywords) t.dicts.set(made, t.heap.constant_value(name), v);
  return made;
}

Value* dict_get_row(Dicts& dicts, const Arguments& args) {
  only_positional(dicts.errors, args, "get", 2, 3);
  if (Value* found = dicts.get(self_dict(dicts.errors, args, "get"), args.positional[1])) return found;
  return args.positional.size() == 3 ? args.positional[2] : dicts.heap.none();
}

Value* dict_pop(Dicts& dicts, const Arguments& args) {
  std::vector<Value*> a = parse(dicts.errors, args, "pop", {"self", "key", "default"}, 2);
  DictValue* dict = self_dict(dicts.errors, args, "pop");
  const bool is_empty =
      !dict->owner && dict->loaded && dict->entries.empty() && builtin_base(args.positional[0]->type) == &PyDict_Type;
  const Py_hash_t hash = is_empty ? kUnknownHash : hash_in_python(dicts, a[1]);  // an empty dict does not ask
  Value* found = is_empty ? nullptr : dicts.get(dict, a[1], hash);
  if (!found) {
    if (a[2]) return a[2];
    raise_with(dicts.errors, PyExc_KeyError, {a[1]});
  }
  dicts.remove(dict, a[1], hash);
  return found;
}

Value* dict_popitem(Dicts& dicts, const Arguments& args) {
  only_positional(dicts.errors, args, "popitem", 1, 1);
  DictValue* dict = self_dict(dicts.errors, args, "popitem");
  dicts.load(dict);
  if (dict->entries.empty())
    raise_with(dicts.errors, PyExc_KeyError, {dicts.heap.string("popitem(): dictionary is empty")});
  const DictEntry last = dict->entries.back();
  dicts.remove(dict, last.key, last.hash);
  return dicts.heap.tuple({last.key, last.value});
}

Value* ordered_popitem(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "popitem", {"self", "last"}, 1);
  if (!a[1] || t.truth(a[1])) return dict_popitem(t.dicts, Arguments{{a[0]}, {}});
  DictValue* dict = self_dict(t.errors, args, "popitem");
  t.dicts.load(dict);
  if (dict->entries.empty()) raise_with(t.errors, PyExc_KeyError, {t.heap.string("dictionary is empty")});
  const DictEntry first = dict->entries.front();
  t.dicts.remove(dict, first.key);
  return t.heap.tuple({first.key, first.value});
}

Value* ordered_move_to_end(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "move_to_end", {"self", "key", "last"}, 2);
  DictValue* dict = self_dict(t.errors, args, "move_to_end");
  Value* value = t.dicts.get(dict, a[1]);
  if (!value) raise_with(t.errors, PyExc_KeyError, {a[1]});
  t.dicts.remove(dict, a[1]);
  t.dicts.set(dict, a[1], value);
  if (a[2] && !t.truth(a[2])) std::rotate(dict->entries.begin(), dict->entries.end() - 1, dict->entries.end());
  return t.heap.none();
}

Value* dict_setdefault(Dicts& dicts, const Arguments& args) {
  std::vector<Value*> a = parse(dicts.errors, args, "setdefault", {"self", "key", "default"}, 2);
  DictValue* dict = self_dict(dicts.errors, args, "setdefault");
  const Py_hash_t hash = hash_in_python(dicts, a[1]);
  if (Value* found = dicts.get(dict, a[1], hash)) return found;
  Value* value = a[2] ? a[2] : dicts.heap.none();
  dicts.set(dict, a[1], value, hash);
  return value;
}

// Overrides of __setitem__ are ignored, but OrderedDict's update does call them.
Value* dict_update_row(Tracer& t, const Arguments& args) {
  if (args.positional.empty() || args.positional.size() > 2)
    t.errors.raise_new(PyExc_TypeError, "update expected at most 1 argument");
  DictValue* dict = self_dict(t.errors, args, "update");
  Value* self = args.positional[0];
  const bool asks = self->kind == ValueKind::instance && PyType_IsSubtype(self->type, &PyODict_Type);
  if (args.positional.size() == 2) update_mapping(t, self, args.positional[1]);
  for (const auto& [name, v] : args.keywords) {
    if (asks) t.set_item(self, t.heap.constant_value(name), v);
    else t.dicts.set(dict, t.heap.constant_value(name), v);
  }
  return t.heap.none();
}

Value* dict_keys(Errors& errors, const Arguments& args) { return view_of(errors, args, ViewValue::What::keys, "keys"); }
Value* dict_values(Errors& errors, const Arguments& args) {
  return view_of(errors, args, ViewValue::What::values, "values");
}
Value* dict_items(Errors& errors, const Arguments& args) {
  return view_of(errors, args, ViewValue::What::items, "items");
}

Value* dict_clear(Dicts& dicts, const Arguments& args) {
  DictValue* dict = self_dict(dicts.errors, args, "clear");
  dicts.load(dict);
  if (dict->owner) {
    const std::vector<DictEntry> entries = dict->entries;
    for (const DictEntry& e : entries) dicts.remove(dict, e.key);
    return dicts.heap.none();
  }
  will_mutate(dicts.shadows, dict);
  dict->entries.clear();
  ++dict->removals;
  return dicts.heap.none();
}

Value* dict_copy(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "copy", 1, 1);
  Value* self = args.positional[0];
  if (self->type == &PyDictProxy_Type && shows_ordered_dict(self))
    graph_break(Reason::unsupported_copy, "copy() of a mappingproxy of an OrderedDict");
  if (builtin_base(self->type) == &PyODict_Type && has_any_special(t.shadows, self, {"__getitem__", "__setitem__"}))
    graph_break(Reason::unsupported_copy, "copy() of " + describe(self));
  DictValue* made = t.heap.dict();
  dict_update(t, made, self_dict(t.errors, args, "copy"));
  if (self->kind != ValueKind::instance || self->type == &PyDictProxy_Type || builtin_base(self->type) == &PyDict_Type)
    return made;
  InstanceValue* same_class = make_instance(t.heap, self->type);
  same_class->payload = made;
  if (Value* factory = t.find_attribute(self, interned("default_factory")))
    same_class->attrs.emplace_back(PyRef::borrow(interned("default_factory")), factory);
  return same_class;
}

Value* dict_fromkeys(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "fromkeys", 2, 3);
  Value* value = args.positional.size() == 3 ? args.positional[2] : t.heap.none();
  PyTypeObject* type = t.facts.known_type(args.positional[0]);
  Value* made = type == &PyDict_Type ? t.heap.dict() : t.call(args.positional[0], {});
  t.for_each(args.positional[1], [&](Value* key) { t.set_item(made, key, value); });
  return made;
}

// Counter counts with this.
Value* count_elements(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "_count_elements", 2, 2);
  Value* mapping = args.positional[0];
  Value* get = t.get_attribute(mapping, interned("get"));
  t.for_each(args.positional[1], [&](Value* key) {
    Value* count = t.call(get, {key, t.heap.integer(0)});
    t.set_item(mapping, key, t.binary_operator(BinaryOp::add, count, t.heap.integer(1)));
  });
  return t.heap.none();
}

Value* default_missing(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "__missing__", 2, 2);
  Value* factory = t.find_attribute(args.positional[0], interned("default_factory"));
  if (is_none(t.facts, factory)) raise_with(t.errors, PyExc_KeyError, {args.positional[1]});
  Value* value = t.call(factory, {});
  t.set_item(args.positional[0], args.positional[1], value);
  return value;
}

}  // namespace framejit::frame_hook::rows
