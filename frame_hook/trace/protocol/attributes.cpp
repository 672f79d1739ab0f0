// frame_hook/trace/protocol/attributes.cpp — attribute reads: CPython's lookup along the MRO, descriptors, the instance
// dict, __getattr__.
//
// Guards: a type whose attributes were looked up is guarded once, as unchanged (type_unchanged). An instance dict is
// guarded by key: the item that was read, or that the name is absent. An attribute found along a type needs no guard of
// its own. C getters run only where they are known to be pure: on constants, and for the rows of pure_getter().
#include "frame_hook/trace/protocol/protocol.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/values/exception_members.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "guards/cpython/interrupts.h"

#include <structmember.h>

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
  PyObject *key, *item;
  for (Py_ssize_t position = 0; PyDict_Next(dict.get(), &position, &key, &item);)
    if (!PyUnicode_CheckExact(key))
      graph_break(Reason::unsupported_write, "an instance dict with a key that is not a str");
  return dict;
}

Value* bind_property(Tracer& t, const Found& d, Value* self) {
  PyRef fget = PyRef::steal(PyObject_GetAttr(d.object, interned("fget")));
  if (!fget || fget.get() == Py_None) {
    drop_error();
    static PyObject* const get = _PyType_Lookup(&PyProperty_Type, interned("__get__"));
    raise_as_cpython(t.numbers, PyExc_AttributeError, "unreadable attribute",
                     CCall{get, Arguments{{t.heap.constant_value(d.object), self}, {}}});
  }
  Value* getter = t.heap.wrap(fget.get(), t.facts.sources().add(SourceKind::member, d.source, 0, interned("fget")));
  return t.call(getter, {self});
}

// The function that a staticmethod or classmethod wraps.
Value* wrapped_function(Errors& errors, const Found& d) {
  PyRef inner = PyRef::steal(PyObject_GetAttr(d.object, interned("__func__")));
  if (!inner) errors.raise_pending();
  return errors.heap.wrap(inner.get(),
                          errors.heap.facts.sources().add(SourceKind::member, d.source, 0, interned("__func__")));
}

// Until 3.12, the __get__ of the object that a classmethod wraps binds it.
Value* bind_class_method(Errors& errors, const Found& d, Value* owner) {
  Value* function = wrapped_function(errors, d);
  const bool has_get = function->kind != ValueKind::function && function->kind != ValueKind::method && function->type &&
                       function->type->tp_descr_get;
  if (PY_VERSION_HEX < 0x030D0000 && has_get)
    graph_break(Reason::unknown_attribute, "a classmethod around a descriptor");
  return make_method(errors.heap, function, owner);
}

bool has_cause(Value* exception) {  // setting __cause__, even to None, suppresses the context
  bool known = false;
  if (exception->kind == ValueKind::instance) as<InstanceValue>(exception)->find_attr(interned("__cause__"), &known);
  return known;
}

// A field of a named tuple: namedtuple's C descriptor, or the member of a struct sequence (torch.return_types). Null:
// neither.
Value* tuple_field(Shadows& shadows, const Found& d, Value* self) {
  TupleValue* items = tuple_of(self);
  if (!items || self == items || !PyType_IsSubtype(self->type, &PyTuple_Type)) return nullptr;
  int64_t index = -1;
  if (Py_TYPE(d.object) == &PyMemberDescr_Type) {
    const Py_ssize_t first = offsetof(PyTupleObject, ob_item);
    const Py_ssize_t offset = reinterpret_cast<PyMemberDescrObject*>(d.object)->d_member->offset;
    if (offset >= first) index = (offset - first) / static_cast<Py_ssize_t>(sizeof(PyObject*));
  } else {
    PyRef state = PyRef::steal(PyObject_CallMethod(d.object, "__reduce__", nullptr));
    if (state && PyTuple_Check(state.get()))
      index = PyLong_AsLongLong(PyTuple_GET_ITEM(PyTuple_GET_ITEM(state.get(), 1), 0));
    drop_error();
  }
  shadows.facts.type_of(self);
  return index >= 0 && index < static_cast<int64_t>(items->items.size())
             ? shadows.item(items, static_cast<size_t>(index))
             : nullptr;
}

Value* bind_member(Shadows& shadows, const Found& d, Value* self) {
  PyObject* name = reinterpret_cast<PyDescrObject*>(d.object)->d_name;
  if (Value* field = tuple_field(shadows, d, self)) return field;
  if (self->kind == ValueKind::instance && std::string_view(text_of(name)) == "__dict__")
    return instance_dict(shadows.errors, as<InstanceValue>(self));
  const bool is_made = self->kind == ValueKind::instance && !self->object;
  if (is_made && is_exception_member(d.object)) return read_member(shadows.heap, as<InstanceValue>(self), d.object);
  if (self->kind == ValueKind::instance) {
    bool known;
    Value* written = as<InstanceValue>(self)->find_attr(name, &known);
    if (known) return written;
  }
  const bool of_base_exception =  // __suppress_context__
      reinterpret_cast<PyDescrObject*>(d.object)->d_type == reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
  if (is_made && of_base_exception) return shadows.heap.boolean(has_cause(self));
  if (!self->object) return nullptr;
  PyRef value = PyRef::steal(
      Py_TYPE(d.object)->tp_descr_get(d.object, self->object.get(), reinterpret_cast<PyObject*>(self->type)));
  if (!value) {
    drop_error();
    graph_break(Reason::unknown_attribute, std::string(text_of(name)) + " (an empty slot)");
  }
  if (shadows.heap.is_constant(self)) {
    constant_of(shadows, self);
    return shadows.heap.wrap_result(value.release());
  }
  return shadows.heap.wrap(value.get(),
                           shadows.facts.sources().add(SourceKind::member, shadows.facts.source_of(self), 0, name));
}

Value* exception_attribute(Attempts& attempts, Heap& heap, InstanceValue* self, PyObject* name) {
  bool known;
  if (Value* written = self->find_attr(name, &known); known) return written ? written : heap.none();
  const std::string_view text = text_of(name);
  if (text == "args" && self->payload && self->payload->kind == ValueKind::tuple) return self->payload;
  // A real traceback holds frames, and a traced __exit__ gets only a stand-in for the traceback.
  if (text == "__traceback__" && (self->object || attempts.find_raise(self)))
    graph_break(Reason::unknown_attribute, "__traceback__ of a caught exception");
  if (self->object || text == "args") return nullptr;
  if (text == "__suppress_context__") return heap.boolean(has_cause(self));
  return text == "__cause__" || text == "__context__" || text == "__traceback__" ? heap.none() : nullptr;
}

// C getters of real, mutable objects that neither run Python code nor make a new object on each read.
bool pure_getter(PyTypeObject* owner) {
  return owner == &PyFunction_Type || owner == &PyProperty_Type || owner == &PyMethod_Type ||
         owner == reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
}

Value* bind_getset(Tracer& t, const Found& d, Value* self, PyTypeObject* type, Value* type_value) {
  PyObject* name = reinterpret_cast<PyDescrObject*>(d.object)->d_name;
  const std::string_view text = text_of(name);
  if (text == "__class__") return type_value ? type_value : t.heap.constant_value(reinterpret_cast<PyObject*>(type));
  if (self->kind == ValueKind::array) return array_attribute(t.shadows, as<ArrayValue>(self), name);
  if (text == "__dict__" && self->kind == ValueKind::instance) return instance_dict(t.errors, as<InstanceValue>(self));
  if (self->kind == ValueKind::instance && !self->object) {  // attributes that the trace wrote
    bool known;
    if (Value* written = as<InstanceValue>(self)->find_attr(name, &known)) return written;
  }
  if (self->kind == ValueKind::instance && is_exception_type(type))
    if (Value* v = exception_attribute(t.attempts, t.heap, as<InstanceValue>(self), name)) return v;
  Value* payload = payload_of(self);
  if (payload->kind == ValueKind::sym_int) {
    if (text == "real" || text == "numerator") return payload;
    if (text == "imag") return t.heap.integer(0);
    if (text == "denominator") return t.heap.integer(1);
  }
  if (payload->kind == ValueKind::object && t.heap.is_constant(payload)) {
    PyObject* real = constant_of(t.shadows, payload);
    return t.errors.constant_steal(
        Py_TYPE(d.object)->tp_descr_get(d.object, real, reinterpret_cast<PyObject*>(Py_TYPE(real))));
  }
  PyTypeObject* owner = reinterpret_cast<PyDescrObject*>(d.object)->d_type;
  if (self->object && pure_getter(owner)) {
    PyRef value =
        PyRef::steal(Py_TYPE(d.object)->tp_descr_get(d.object, self->object.get(), reinterpret_cast<PyObject*>(type)));
    if (!value) t.errors.raise_pending();
    return t.heap.wrap(value.get(), t.facts.sources().add(SourceKind::attribute, t.facts.source_of(self), 0, name));
  }
  graph_break(Reason::unknown_attribute, std::string(type->tp_name) + "." + text_of(name));
}

}  // namespace

PyObject* own_class_attribute(PyTypeObject* type, PyObject* name) {
#if PY_VERSION_HEX >= 0x030C0000
  PyRef dict = PyRef::steal(PyType_GetDict(type));
  PyObject* found = dict ? PyDict_GetItemWithError(dict.get(), name) : nullptr;
#else
  PyObject* found = type->tp_dict ? PyDict_GetItemWithError(type->tp_dict, name) : nullptr;
#endif
  if (!found) drop_error();
  return found;
}

namespace {

// The class along the MRO that has the attribute in its own dict.
PyTypeObject* owner_of_attribute(PyTypeObject* type, PyObject* name) {
  for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* of = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    if (own_class_attribute(of, name)) return of;
  }
  return nullptr;
}

}  // namespace

Found look_up(Shadows& shadows, PyTypeObject* type, guards::SourceId type_source, PyObject* name) {
  if (!(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) shadows.facts.guard_type_unchanged(type, type_source);
  Found found;
  found.object = _PyType_Lookup(type, name);
  if (!found.object) return found;
  found.source = shadows.facts.sources().add(SourceKind::type_lookup, type_source, 0, name);
  if (!shadows.tables().class_data.empty())
    if (PyTypeObject* owner = owner_of_attribute(type, name))
      found.written = written_class_data(shadows.tables(), owner, name);
  return found;
}

// If the class of the object is a Python class, it may become or stop being a descriptor class. So that class is
// guarded.
void guard_descriptor_class(Facts& facts, const Found& found) {
  PyTypeObject* kind = found.object ? Py_TYPE(found.object) : nullptr;
  if (!kind || !(kind->tp_flags & Py_TPFLAGS_HEAPTYPE) || (kind->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) ||
      PyType_Check(found.object))
    return;
  if (builtin_base(kind) == kind) return;  // a C class
  facts.guard_type_unchanged(
      kind, facts.sources().add(SourceKind::constant, guards::kNoSource, 0, reinterpret_cast<PyObject*>(kind)));
}

Found look_up(Shadows& shadows, Value* v, PyObject* name) {
  PyTypeObject* type = shadows.facts.type_of(v);
  return look_up(shadows, type, shadows.facts.type_source(v), name);
}

Value* found_value(Heap& heap, const Found& found) {
  if (found.written) return found.written;
  Value* v = heap.wrap(found.object, found.source);
  PyTypeObject* type = Py_TYPE(found.object);
  if (v->kind == ValueKind::object && type != &PyUnicode_Type) {
    // The identity holds as long as the type is unchanged.
    v->type_guarded = v->value_guarded = v->identity_guarded = true;
  }
  return v;
}

Value* bind(Tracer& t, const Found& d, Value* self, PyTypeObject* type, Value* type_value) {
  if (d.written) return d.written;
  PyTypeObject* kind = Py_TYPE(d.object);
  auto owner = [&] { return type_value ? type_value : t.heap.constant_value(reinterpret_cast<PyObject*>(type)); };
  if (kind == &PyFunction_Type || kind == &PyInstanceMethod_Type)
    return self ? make_method(t.heap, found_value(t.heap, d), self) : found_value(t.heap, d);
  if (kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type)
    return self ? make_method(t.heap, found_value(t.heap, d), self) : found_value(t.heap, d);
  if (kind->tp_descr_get == PyStaticMethod_Type.tp_descr_get) return wrapped_function(t.errors, d);
  if (kind->tp_descr_get == PyClassMethod_Type.tp_descr_get) return bind_class_method(t.errors, d, owner());
  if (kind == &PyClassMethodDescr_Type) return make_method(t.heap, found_value(t.heap, d), owner());
  if (kind == &PyMemberDescr_Type) return self ? bind_member(t.shadows, d, self) : found_value(t.heap, d);
  if (kind == &PyGetSetDescr_Type) return self ? bind_getset(t, d, self, type, type_value) : found_value(t.heap, d);
  if (is_known(kind, KnownType::tuple_getter) && self)
    if (Value* field = tuple_field(t.shadows, d, self)) return field;
  if (PyObject* get = _PyType_Lookup(kind, interned("__get__"))) {
    if (PyFunction_Check(get)) {
      Value* descriptor = t.heap.wrap(d.object, d.source);
      Value* getter = t.lookup_special(descriptor, "__get__");
      return t.call(getter, {self ? self : t.heap.none(), owner()});
    }
    if (kind->tp_descr_get == PyProperty_Type.tp_descr_get)
      return self ? bind_property(t, d, self) : found_value(t.heap, d);
    // C descriptors that bind as functions do: functools.lru_cache wrappers, compiled functions.
    if (is_known(kind, KnownType::armed_call) || is_known(kind, KnownType::lru_cache))
      return self ? make_method(t.heap, found_value(t.heap, d), self) : found_value(t.heap, d);
    graph_break(Reason::unknown_attribute, std::string(type->tp_name) + " descriptor of type " + kind->tp_name);
  }
  return t.heap.wrap(d.object, d.source);
}

bool has_own_dict(Facts& facts, Value* v) {
  PyTypeObject* type = facts.type_of(v);
#ifdef Py_TPFLAGS_MANAGED_DICT
  if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) return true;
#endif
  return type->tp_dictoffset != 0;
}

Value* own_attribute(Heap& heap, Value* v, PyObject* name) {
  InstanceValue* instance = v->kind == ValueKind::instance ? as<InstanceValue>(v) : nullptr;
  if (instance) {
    bool known;
    Value* written = instance->find_attr(name, &known);
    if (known) return written;
    if (auto* read = instance->read.find(name)) return read->second;
  }
  if (!v->object || !has_own_dict(heap.facts, v)) return nullptr;
  PyRef dict = real_instance_dict(v->object.get());
  if (!dict) return nullptr;
  auto& sources = heap.facts.sources();
  const guards::SourceId where = sources.add(SourceKind::instance_dict, heap.facts.source_of(v));
  PyObject* item = PyDict_GetItemWithError(dict.get(), name);
  if (!item) drop_error();
  heap.facts.guard_if_real(item ? GuardKind::dict_has : GuardKind::dict_lacks, where, name);
  Value* value = item ? heap.wrap(item, sources.add(SourceKind::dict_item, where, 0, name)) : nullptr;
  if (instance) instance->read.try_emplace(name, {PyRef::borrow(name), value});
  return value;
}

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

std::vector<PyObject*> own_names(Facts& facts, InstanceValue* v) {
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

DictValue* instance_dict(Errors& errors, InstanceValue* v) {
  if (v->dict) return v->dict;
  auto* dict = errors.heap.make<DictValue>(ValueKind::dict, &PyDict_Type);
  dict->owner = v;
  if (v->object) {
    PyRef real = real_instance_dict(v->object.get());
    if (!real) errors.raise_new(PyExc_AttributeError, "object has no attribute '__dict__'");
    dict->object = std::move(real);
    dict->source = errors.heap.facts.sources().add(SourceKind::instance_dict, errors.heap.facts.source_of(v));
  }
  return v->dict = dict;
}

Value* generic_attribute(Tracer& t, Value* v, PyObject* name) {
  const Found d = look_up(t.shadows, v, name);
  guard_descriptor_class(t.facts, d);
  if (d.object && Py_TYPE(d.object)->tp_descr_set && Py_TYPE(d.object)->tp_descr_get)
    return bind(t, d, v, v->type, nullptr);
  if (v->kind == ValueKind::instance || (v->object && v->source != guards::kNoSource))
    if (Value* own = own_attribute(t.heap, v, name)) return own;
  return d.object ? bind(t, d, v, v->type, nullptr) : nullptr;
}

namespace {

// What python_special() binds. The object is null if there is none.
Found special_of(Shadows& shadows, Value* v, const char* name) {
  if (v->kind != ValueKind::instance && v->kind != ValueKind::object) return {};
  if (v->kind == ValueKind::object && !(shadows.heap.facts.type_of(v)->tp_flags & Py_TPFLAGS_HEAPTYPE)) return {};
  const Found d = look_up(shadows, v, interned(name));
  if (d.object == Py_None && std::string_view(name) != "__hash__")
    graph_break(Reason::exception_raised, std::string(v->type->tp_name) + "." + name + ", which is None,");
  if (!d.object || d.object == Py_None) return {};
  PyTypeObject* kind = Py_TYPE(d.object);
  const bool is_c = kind == &PyWrapperDescr_Type || kind == &PyMethodDescr_Type || kind == &PyClassMethodDescr_Type;
  return is_c ? Found{} : d;
}

}  // namespace

bool has_any_special(Shadows& shadows, Value* v, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return special_of(shadows, v, name).object != nullptr; });
}

Value* python_special(Tracer& t, Value* v, const char* name) {
  const Found d = special_of(t.shadows, v, name);
  return d.object ? bind(t, d, v, v->type, nullptr) : nullptr;
}

Value* Tracer::lookup_special(Value* v, const char* name) {
  const Found d = look_up(shadows, v, interned(name));
  return d.object ? bind(*this, d, v, v->type, nullptr) : nullptr;
}

}  // namespace framejit::frame_hook
