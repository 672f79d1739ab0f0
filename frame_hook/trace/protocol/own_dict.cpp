#include "frame_hook/trace/protocol/own_dict.h"

#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::SourceKind;

namespace {

// The dict of a real object, made if the object keeps its attributes inline; null if its type has none. A key that is
// not a str may run code of the program in each lookup, and that code may write to the dict.
PyRef real_instance_dict(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  const bool has = type->tp_dictoffset != 0
#ifdef Py_TPFLAGS_MANAGED_DICT
                   || (type->tp_flags & Py_TPFLAGS_MANAGED_DICT)
#endif
      ;
  if (!has) return PyRef();
  PyRef dict = PyRef::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) drop_error();
  if (!dict || !PyDict_Check(dict.get())) return PyRef();
  if (!has_only_names(dict.get()))
    graph_break(Reason::unsupported_write, "an instance dict with a key that is not a str");
  return dict;
}

// The exit writes the attributes of one object. So the trace must not have written the dict as a dict before.
void adopt(Heap& heap, Value* met, InstanceValue* owner) {
  auto* dict = as<DictValue>(payload_of(met));
  if (dict->mutated)
    graph_break(Reason::changed_container, "an attribute of an object whose __dict__ was written as a dict");
  dict->owner = owner;
  heap.guard_owner(met->source, owner);
}

// Its own attributes are not kept, so what the trace has written to its __dict__ is only known elsewhere.
void refuse_written_elsewhere(Heap& heap, Value* v, PyObject* dict) {
  const Value* owner = heap.dict_owner(dict);
  Value* met = heap.find(dict);
  if ((owner && owner->mutated) || (met && payload_of(met)->mutated))
    graph_break(Reason::changed_container, "an attribute of " + describe(v) + ", whose __dict__ was written elsewhere");
}

bool is_data_descriptor(PyTypeObject* type, PyObject* name) {
  PyObject* found = _PyType_Lookup(type, name);
  return found && Py_TYPE(found)->tp_descr_set;
}

}  // namespace

InstanceValue* dict_owner(Heap& heap, InstanceValue* v) {
  if (v->dict_owner) return v->dict_owner;
  if (!v->object || !has_own_dict(heap.facts, v)) return v->dict_owner = v;
  const PyRef dict = real_instance_dict(v->object.get());
  if (!dict) return v->dict_owner = v;
  if (InstanceValue* owner = heap.dict_owner(dict.get())) {
    heap.guard_owner(heap.facts.sources().add(SourceKind::instance_dict, heap.facts.source_of(v)), owner);
    return v->dict_owner = owner;
  }
  heap.dict_owner(dict.get()) = v->dict_owner = v;
  if (Value* met = heap.find(dict.get())) adopt(heap, met, v);
  return v;
}

bool has_own_dict(Facts& facts, Value* v) {
  PyTypeObject* type = facts.type_of(v);
#ifdef Py_TPFLAGS_MANAGED_DICT
  if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) return true;
#endif
  return type->tp_dictoffset != 0;
}

Value* own_attribute(Heap& heap, Value* v, PyObject* name) {
  InstanceValue* instance = v->kind == ValueKind::instance ? dict_owner(heap, as<InstanceValue>(v)) : nullptr;
  if (instance) {
    // What the owner holds under such a name lies elsewhere.
    if (instance != v && is_data_descriptor(instance->type, name))
      graph_break(Reason::unknown_attribute, std::string(text_of(name)) + " in a __dict__ that objects share");
    v = instance;
    bool known;
    Value* written = instance->find_attr(name, &known);
    if (known) return written;
    if (auto* read = instance->read.find(name)) return read->second;
  }
  if (!v->object || !has_own_dict(heap.facts, v)) return nullptr;
  PyRef dict = real_instance_dict(v->object.get());
  if (!dict) return nullptr;
  const bool keeps_them = instance || v->kind == ValueKind::function;
  if (!keeps_them) refuse_written_elsewhere(heap, v, dict.get());
  auto& sources = heap.facts.sources();
  const guards::SourceId where = sources.add(SourceKind::instance_dict, heap.facts.source_of(v));
  PyObject* item = PyDict_GetItemWithError(dict.get(), name);
  if (!item) drop_error();
  heap.facts.guard_if_real(item ? GuardKind::dict_has : GuardKind::dict_lacks, where, name);
  Value* value = item ? heap.wrap(item, sources.add(SourceKind::dict_item, where, 0, name)) : nullptr;
  if (instance) instance->read.try_emplace(name, {PyRef::borrow(name), value});
  return value;
}

namespace {

// Because it is written or deleted.
void drop_own_attribute(Drops& drops, InstanceValue* v, PyObject* name) {
  Heap& heap = drops.shadows.heap;
  bool known;
  Value* held = v->find_attr(name, &known);
  if (!known && v->object && has_own_dict(heap.facts, v)) {
    PyRef dict = real_instance_dict(v->object.get());
    PyObject* item = dict ? PyDict_GetItemWithError(dict.get(), name) : nullptr;
    if (!item) PyErr_Clear();
    if (item && may_be_half_way(Py_TYPE(item))) held = own_attribute(heap, v, name);
  }
  drops.drop(held);
}

}  // namespace

void write_overlay(Shadows& shadows, InstanceValue* v, PyObject* name, Value* to) {
  will_mutate(shadows, v);
  for (auto& [n, value] : v->attrs)
    if (n.get() == name) {
      value = to;
      return;
    }
  v->attrs.emplace_back(PyRef::borrow(name), to);
}

void set_own_attribute(Drops& drops, OpenNumbers& numbers, Value* v, PyObject* name, Value* to) {
  if (v->kind != ValueKind::instance)
    graph_break(Reason::unsupported_write, std::string("a write to attribute ") + text_of(name) + " of " + describe(v));
  if (!to && !own_attribute(drops.shadows.heap, v, name)) raise_unwritable(numbers, v, name, to, false);
  if (const Found d = look_up(drops.shadows, v, name);
      d.object && Py_TYPE(d.object)->tp_descr_set)  // the exit's write would go to it
    graph_break(Reason::unsupported_write, std::string("an item of __dict__ under the name of a data descriptor, ") +
                                               v->type->tp_name + "." + text_of(name));
  auto* instance = dict_owner(drops.shadows.heap, as<InstanceValue>(v));
  if (instance != v && is_data_descriptor(instance->type, name))
    graph_break(Reason::unsupported_write, std::string(text_of(name)) + " in a __dict__ that objects share");
  bool is_written = false;
  if (to && instance->object && !instance->find_attr(name, &is_written) &&
      is_written)  // the write would move it to the end of the dict
    graph_break(Reason::unsupported_write,
                std::string("an attribute that was deleted and is written again, ") + text_of(name));
  drop_own_attribute(drops, instance, name);
  if (!instance->object || to == nullptr) {
    // An attribute that is deleted and written again goes to the end, as in a dict.
    for (auto it = instance->attrs.begin(); it != instance->attrs.end(); ++it)
      if (it->first.get() == name && (!it->second || !to)) {
        instance->attrs.erase(it);
        break;
      }
    if (!to && !instance->object) return;
  }
  write_overlay(drops.shadows, instance, name, to);
}

std::vector<PyObject*> own_names(Heap& heap, InstanceValue* v) {
  Facts& facts = heap.facts;
  v = dict_owner(heap, v);
  std::vector<PyObject*> names;
  auto state = [&](PyObject* name, bool* known) { return v->find_attr(name, known); };
  if (v->object) {
    PyRef dict = real_instance_dict(v->object.get());
    if (dict) {
      PyRef keys = PyRef::steal(PyTuple_New(PyDict_GET_SIZE(dict.get())));
      PyObject *key, *item;
      for (Py_ssize_t position = 0, i = 0; PyDict_Next(dict.get(), &position, &key, &item); ++i) {
        PyTuple_SET_ITEM(keys.get(), i, Py_NewRef(key));
        PyRef name = PyRef::borrow(key);
        PyObject* raw = name.release();
        PyUnicode_InternInPlace(&raw);
        bool known;
        if (Value* written = state(raw, &known); !known || written) names.push_back(raw);
        Py_DECREF(raw);  // the dict, or the intern table, keeps it
      }
      facts.guard_if_real(GuardKind::dict_keys, facts.sources().add(SourceKind::instance_dict, facts.source_of(v)),
                          keys.get());
    }
  }
  for (const auto& [name, value] : v->attrs) {
    if (!value) continue;
    PyObject* descriptor = _PyType_Lookup(v->type, name.get());
    if (descriptor && Py_TYPE(descriptor)->tp_descr_set) continue;  // a slot
    bool listed = false;
    for (PyObject* n : names) listed = listed || n == name.get();
    if (!listed) names.push_back(name.get());
  }
  return names;
}

Value* instance_dict(Errors& errors, InstanceValue* v) {
  Heap& heap = errors.heap;
  if (v->object) {
    const PyRef real = real_instance_dict(v->object.get());
    if (!real) errors.raise_new(PyExc_AttributeError, "object has no attribute '__dict__'");
    dict_owner(heap, v);
    const guards::SourceId source = heap.facts.sources().add(SourceKind::instance_dict, heap.facts.source_of(v));
    Value* dict = heap.wrap(real.get(), source);
    if (dict->source == source && PyDict_CheckExact(real.get())) dict->type_guarded = true;
    return dict;
  }
  if (v->dict) return v->dict;
  v->dict = heap.make<DictValue>(ValueKind::dict, &PyDict_Type);
  v->dict->owner = v;
  return v->dict;
}

DictValue* module_dict(Heap& heap, Value* module) {
  heap.facts.guard_identity(module);
  PyObject* dict = PyModule_GetDict(module->object.get());
  if (!dict) drop_error(), graph_break(Reason::exception_raised, "AttributeError of a module that was not initialised");
  Value* v = heap.wrap(dict, heap.facts.sources().add(SourceKind::instance_dict, heap.facts.source_of(module)));
  as<DictValue>(v)->is_globals = true;
  return as<DictValue>(v);
}

// If the trace made the function, the exit sets the dict as an attribute.
DictValue* function_dict(Errors& errors, FunctionValue* f) {
  PyObject* name = interned("__dict__");
  if (f->object) {
    PyRef dict = PyRef::steal(PyObject_GetAttr(f->object.get(), name));
    if (!dict) errors.raise_pending();
    return as<DictValue>(errors.heap.wrap(
        dict.get(), errors.heap.facts.sources().add(SourceKind::instance_dict, errors.heap.facts.source_of(f))));
  }
  for (const auto& [n, v] : f->attrs)
    if (n.get() == name) return as<DictValue>(v);
  DictValue* made = errors.heap.dict();
  f->attrs.emplace_back(PyRef::borrow(name), made);
  return made;
}

}  // namespace framejit::frame_hook
