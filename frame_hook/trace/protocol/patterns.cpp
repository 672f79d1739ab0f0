#include "frame_hook/trace/protocol/patterns.h"

#include "frame_hook/trace/protocol/strings.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/values/originals.h"

namespace framejit::frame_hook {

Value* mapping_pattern(Tracer& t, Value* mapping, Value* keys) {
  if (mapping->kind != ValueKind::dict)
    graph_break(Reason::unsupported_pattern, "a mapping pattern over a mapping that is not a dict");
  std::vector<Value*> values;
  SetValue* seen = make_set(t.dicts, &PySet_Type, {});
  for (Value* key : t.unpack(keys)) {
    if (!set_add(t.dicts, seen, key))
      t.errors.raise_new(PyExc_ValueError, "mapping pattern checks duplicate key (" + repr_text(t, key) + ")");
    Value* value = t.dicts.get(as<DictValue>(mapping), key);
    if (!value) return t.heap.none();
    values.push_back(value);
  }
  return t.heap.tuple(std::move(values));
}

namespace {

bool matches_itself(PyTypeObject* type) { return (type->tp_flags & _Py_TPFLAGS_MATCH_SELF) != 0; }

// The values of the sub-patterns; false if an attribute is missing. As match_class() in CPython's ceval.c.
bool class_attributes(Tracer& t, Value* subject, Value* type, size_t positional, const std::vector<Value*>& names,
                      std::vector<Value*>& out) {
  std::vector<PyObject*> taken;
  const char* const class_name = reinterpret_cast<PyTypeObject*>(type->object.get())->tp_name;
  auto take = [&](PyObject* name) {
    for (PyObject* other : taken)
      if (PyUnicode_Compare(other, name) == 0)
        t.errors.raise_new(PyExc_TypeError, std::string(class_name) + "() got multiple sub-patterns for attribute '" +
                                                exact_text(name) + "'");
    taken.push_back(name);
    Value* v = t.find_attribute(subject, name);
    if (v) out.push_back(v);
    return v != nullptr;
  };
  if (positional > 0) {
    PyRef key = PyRef::steal(PyUnicode_InternFromString("__match_args__"));
    Value* match_args = t.find_attribute(type, key.get());
    if (!match_args && positional == 1 && matches_itself(reinterpret_cast<PyTypeObject*>(type->object.get()))) {
      out.push_back(subject);
    } else {
      if (!match_args || match_args->kind != ValueKind::tuple || as<TupleValue>(match_args)->items.size() < positional)
        graph_break(Reason::unsupported_pattern, "a class pattern with more positional patterns than __match_args__");
      for (size_t k = 0; k < positional; ++k) {
        Value* name = t.shadows.item(as<TupleValue>(match_args), k);
        if (name->kind != ValueKind::object || !PyUnicode_CheckExact(name->object.get()))
          t.errors.raise_new(PyExc_TypeError, std::string("__match_args__ elements must be strings (got ") +
                                                  t.facts.type_of(name)->tp_name + ")");
        if (!take(constant_of(t.shadows, name))) return false;
      }
    }
  }
  for (Value* name : names)
    if (!take(constant_of(t.shadows, name))) return false;
  return true;
}

}  // namespace

Value* class_pattern(Tracer& t, Value* subject, Value* type, size_t positional, const std::vector<Value*>& names) {
  if (type->kind != ValueKind::object || !PyType_Check(type->object.get()))
    t.errors.raise_new(PyExc_TypeError, "called match pattern must be a class");
  Value* is_instance = t.heap.constant_value(builtin_function("isinstance"));
  std::vector<Value*> attributes;
  const bool matched = t.truth(t.call(is_instance, {subject, type})) &&
                       class_attributes(t, subject, type, positional, names, attributes);
  return matched ? static_cast<Value*>(t.heap.tuple(std::move(attributes))) : t.heap.none();
}

}  // namespace framejit::frame_hook
