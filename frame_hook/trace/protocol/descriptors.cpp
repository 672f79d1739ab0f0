// frame_hook/trace/protocol/descriptors.cpp — functions, properties, members and getters bind; so do descriptors in
// Python.
//
// C getters run only where they are known to be pure: on constants, and for the rows of pure_getter().
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/protocol/own_dict.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/values/exception_members.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"

#include <structmember.h>

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::SourceKind;

namespace {

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

Value* bind_getset(Attempts& attempts, Shadows& shadows, const Found& d, Value* self, PyTypeObject* type,
                   Value* type_value) {
  Heap& heap = shadows.heap;
  Errors& errors = shadows.errors;
  PyObject* name = reinterpret_cast<PyDescrObject*>(d.object)->d_name;
  const std::string_view text = text_of(name);
  if (text == "__class__") return type_value ? type_value : heap.constant_value(reinterpret_cast<PyObject*>(type));
  if (self->kind == ValueKind::array) return array_attribute(shadows, as<ArrayValue>(self), name);
  if (text == "__dict__" && self->kind == ValueKind::instance) return instance_dict(errors, as<InstanceValue>(self));
  if (self->kind == ValueKind::instance && !self->object) {  // attributes that the trace wrote
    bool known;
    if (Value* written = as<InstanceValue>(self)->find_attr(name, &known)) return written;
  }
  if (self->kind == ValueKind::instance && is_exception_type(type))
    if (Value* v = exception_attribute(attempts, heap, as<InstanceValue>(self), name)) return v;
  Value* payload = payload_of(self);
  if (payload->kind == ValueKind::sym_int) {
    if (text == "real" || text == "numerator") return payload;
    if (text == "imag") return heap.integer(0);
    if (text == "denominator") return heap.integer(1);
  }
  if (payload->kind == ValueKind::object && heap.is_constant(payload)) {
    PyObject* real = constant_of(shadows, payload);
    return errors.constant_steal(
        Py_TYPE(d.object)->tp_descr_get(d.object, real, reinterpret_cast<PyObject*>(Py_TYPE(real))));
  }
  PyTypeObject* owner = reinterpret_cast<PyDescrObject*>(d.object)->d_type;
  if (self->object && pure_getter(owner)) {
    PyRef value =
        PyRef::steal(Py_TYPE(d.object)->tp_descr_get(d.object, self->object.get(), reinterpret_cast<PyObject*>(type)));
    if (!value) errors.raise_pending();
    return heap.wrap(value.get(),
                     shadows.facts.sources().add(SourceKind::attribute, shadows.facts.source_of(self), 0, name));
  }
  graph_break(Reason::unknown_attribute, std::string(type->tp_name) + "." + text_of(name));
}

}  // namespace

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
  if (kind == &PyGetSetDescr_Type)
    return self ? bind_getset(t.attempts, t.shadows, d, self, type, type_value) : found_value(t.heap, d);
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

Value* python_special(Tracer& t, Value* v, const char* name) {
  const Found d = find_special(t.shadows, v, name);
  return d.object ? bind(t, d, v, v->type, nullptr) : nullptr;
}

Value* type_special(Tracer& t, Value* v, const char* name) {
  if (PyObject* type = real_type(v)) {
    const Found meta = look_up(t.shadows, Py_TYPE(type), t.facts.type_source(v), interned(name));
    if (meta.object && PyFunction_Check(meta.object)) return bind(t, meta, v, Py_TYPE(type), nullptr);
    return nullptr;
  }
  return python_special(t, v, name);
}

Value* Tracer::lookup_special(Value* v, const char* name) {
  const Found d = look_up(shadows, v, interned(name));
  return d.object ? bind(*this, d, v, v->type, nullptr) : nullptr;
}

}  // namespace framejit::frame_hook
