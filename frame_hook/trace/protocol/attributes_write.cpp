// frame_hook/trace/protocol/attributes_write.cpp — attribute writes and deletes: __setattr__ overrides, data
// descriptors, instance dicts. Real objects stay untouched: writes go to the value's shadow and are applied at the
// exit.
#include "frame_hook/trace/protocol/attributes.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/own_dict.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/torch/tensor_attributes.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/exception_members.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/class_state.h"
#include "guards/cpython/interrupts.h"

#include <structmember.h>

namespace framejit::frame_hook {

namespace {

void set_property(Tracer& t, const Found& d, Value* self, Value* to) {
  PyObject* which = interned(to ? "fset" : "fdel");
  PyRef function = PyRef::steal(PyObject_GetAttr(d.object, which));
  if (!function || function.get() == Py_None) {
    drop_error();
    static PyObject* const set = _PyType_Lookup(&PyProperty_Type, interned("__set__"));
    static PyObject* const del = _PyType_Lookup(&PyProperty_Type, interned("__delete__"));
    CCall call{to ? set : del, Arguments{{t.heap.constant_value(d.object), self}, {}}};
    if (to) call.args.positional.push_back(t.heap.none());
    raise_as_cpython(t.numbers, PyExc_AttributeError, "unwritable attribute", call);
  }
  Value* setter = t.heap.wrap(function.get(), t.facts.sources().add(guards::SourceKind::member, d.source, 0, which));
  to ? t.call(setter, {self, to}) : t.call(setter, {self});
}

bool is_exception_slot(PyTypeObject* type, std::string_view name) {
  return is_exception_type(type) && (name == "__cause__" || name == "__context__" || name == "__traceback__" ||
                                     name == "__suppress_context__" || name == "args");
}

// The checks of the setters of BaseException.
void require_exception_value(Errors& errors, std::string_view name, Value* to) {
  if (!to) graph_break(Reason::exception_state, "a deleted " + std::string(name) + " of an exception");
  const bool cause = name == "__cause__";
  const bool none = is_none(errors.heap.facts, to);
  if (name == "__traceback__" && !none)
    graph_break(Reason::exception_state, "a write to __traceback__ of an exception");
  if ((cause || name == "__context__") && !none && !is_exception_type(errors.heap.facts.type_of(to)))
    errors.raise_new(PyExc_TypeError, std::string("exception ") + (cause ? "cause" : "context") +
                                          " must be None or derive from BaseException");
}

bool holds_member(Tracer& t, const Found& d, InstanceValue* v, PyObject* name) {
  bool known = false;
  if (!v->object && is_exception_member(d.object)) return true;  // `del` takes one that is NULL
  if (Value* written = v->find_attr(name, &known); known || !v->object) return written != nullptr;
  const PyRef value =
      PyRef::steal(Py_TYPE(d.object)->tp_descr_get(d.object, v->object.get(), reinterpret_cast<PyObject*>(v->type)));
  if (!value)
    drop_error(),
        graph_break(Reason::unsupported_write, std::string("a deleted slot that is empty, ") + text_of(name));
  t.get_attribute(v, name);  // for its guards
  return true;
}

// A data descriptor of the type takes the write.
void set_through_descriptor(Tracer& t, const Found& d, Value* v, PyObject* name, Value* to) {
  PyTypeObject* kind = Py_TYPE(d.object);
  if (kind->tp_descr_set == PyProperty_Type.tp_descr_set) return set_property(t, d, v, to);
  if (PyObject* set = _PyType_Lookup(kind, interned(to ? "__set__" : "__delete__")); set && PyFunction_Check(set)) {
    Value* descriptor = t.heap.wrap(d.object, d.source);
    Value* setter = t.lookup_special(descriptor, to ? "__set__" : "__delete__");
    to ? t.call(setter, {v, to}) : t.call(setter, {v});
    return;
  }
  const bool context =
      kind == &PyGetSetDescr_Type && !v->object && is_known(builtin_base(v->type), KnownType::autograd_context);
  const bool member = kind == &PyMemberDescr_Type;
  if (context) return write_overlay(t.shadows, as<InstanceValue>(v), name, to);
  if (v->kind == ValueKind::instance && (member || is_exception_slot(v->type, text_of(name)))) {
    if (member && !PyType_IsSubtype(v->type, reinterpret_cast<PyDescrObject*>(d.object)->d_type))
      graph_break(Reason::exception_raised,
                  std::string("a TypeError of a write to ") + text_of(name) + ", a slot of another class,");
    if (member && !to && !holds_member(t, d, as<InstanceValue>(v), name))
      t.errors.raise_new(PyExc_AttributeError, exact_text(name));
    if (member && (reinterpret_cast<PyMemberDescrObject*>(d.object)->d_member->flags & READONLY))
      t.errors.raise_new(PyExc_AttributeError, "readonly attribute");
    if (member && !v->object && is_exception_member(d.object)) {
      if (!to && !has_known_members(v->type))
        graph_break(Reason::exception_state, std::string("a deleted ") + text_of(name) + " of an exception");
      will_mutate(t.shadows, v);
      return write_member(as<InstanceValue>(v), d.object, to);
    }
    if (!member) require_exception_value(t.errors, text_of(name), to);
    if (!member && std::string_view(text_of(name)) == "args" && to) {
      if (!has_known_members(v->type)) graph_break(Reason::exception_state, "a write to args of an exception");
      as<InstanceValue>(v)->payload = t.heap.tuple(t.unpack(to));
      if (v->object) graph_break(Reason::exception_state, "a write to args of an exception");
      return;
    }
    return write_overlay(t.shadows, as<InstanceValue>(v), name, to);
  }
  graph_break(Reason::unsupported_write, std::string("a write to ") + v->type->tp_name + "." + text_of(name));
}

void set_function_attribute(Dicts& dicts, FunctionValue* f, PyObject* name, Value* to) {
  const std::string_view text = text_of(name);
  if (text == "__code__" || text == "__defaults__" || text == "__kwdefaults__" || text == "__globals__" ||
      text == "__closure__")
    graph_break(Reason::unsupported_write, "a write to function." + std::string(text));
  if (const PyObject* known = _PyType_Lookup(&PyFunction_Type, name); !known || !Py_TYPE(known)->tp_descr_set) {
    DictValue* dict = function_dict(dicts.errors, f);
    if (to) dicts.set(dict, dicts.heap.constant_value(name), to);
    else if (!dicts.remove(dict, dicts.heap.constant_value(name)))
      dicts.errors.raise_new(PyExc_AttributeError, "'function' object has no attribute '" + std::string(text) + "'");
    return;
  }
  const bool is_name = text == "__name__" || text == "__qualname__",
             takes_anything = text == "__doc__" || text == "__module__";
  const bool is_text = to && to->kind == ValueKind::object && to->object && PyUnicode_Check(to->object.get());
  const bool is_dict = to && text == "__annotations__" && to->kind == ValueKind::dict;
  const bool is_tuple = to && text == "__type_params__" && tuple_of(to);
  if (!to || !(takes_anything || is_dict || is_tuple || (is_name && is_text)))
    graph_break(Reason::unsupported_write, "a write to function." + std::string(text));
  if (is_name || is_tuple) dicts.facts.type_of(to);
  will_mutate(dicts.shadows, f);
  if (!f->object && text == "__name__" && to) f->name = to;
  if (!f->object && text == "__qualname__" && to) f->qualname = to;
  if (!f->object && (text == "__name__" || text == "__qualname__")) return;
  for (auto& [n, value] : f->attrs)
    if (n.get() == name) {
      value = to;
      return;
    }
  f->attrs.emplace_back(PyRef::borrow(name), to);
}

// Writes another number, string or None to a data attribute that the class already has. Such a write changes no other
// look-up in the class, so its type_unchanged guards still hold (guards/class_state.h). Any other write to a class is a
// break.
void set_class_data(Shadows& shadows, Value* v, PyObject* name, Value* to) {
  const auto refuse = [&] {
    graph_break(Reason::outside_effect, std::string("a write to a class attribute of ") + describe(v));
  };
  PyTypeObject* type = shadows.facts.known_type(v);
  if (Py_TYPE(type)->tp_setattro != PyType_Type.tp_setattro) refuse();
  if (const Found d = look_up(shadows, v, name); d.object && Py_TYPE(d.object)->tp_descr_set) refuse();
  look_up(shadows, type, shadows.facts.source_of(v), name);  // guards what the class consists of
  PyObject* own = own_class_attribute(type, name);
  const bool is_plain_object = to && to->kind == ValueKind::object && to->object;
  const bool is_scalar = to && (is_plain_object ? is_exact_scalar(Py_TYPE(to->object.get()))
                                                : to->kind == ValueKind::sym_int);
  if (type->tp_dict && shadows.heap.find(type->tp_dict)) refuse();  // read through a mappingproxy
  if (!own || !guards::is_class_data(name, own) || !is_scalar || v->source == guards::kNoSource) refuse();
  will_mutate(shadows, v);
  shadows.tables().class_data.set(type, name, to);
}

void write(Tracer& t, Value* v, PyObject* name, Value* to) {
  PyObject* own = Py_NewRef(name);
  if (PyUnicode_CheckExact(own) && !PyUnicode_CHECK_INTERNED(own)) PyUnicode_InternInPlace(&own);
  PyRef key = PyRef::steal(own);
  t.facts.type_of(v);
  if (v->kind == ValueKind::instance || v->kind == ValueKind::object) {
    const char* hook_name = to ? "__setattr__" : "__delattr__";
    if (v->type->tp_setattro != PyObject_GenericSetAttr) {
      const Found hook = look_up(t.shadows, v, interned(hook_name));
      if (hook.object && PyFunction_Check(hook.object)) {
        Value* method = bind(t, hook, v, v->type, nullptr);
        to ? t.call(method, {t.heap.constant_value(key.get()), to})
           : t.call(method, {t.heap.constant_value(key.get())});
        return;
      }
      if (hook.object && Py_IS_TYPE(hook.object, &PyWrapperDescr_Type) &&
          !PyModule_Check(v->object ? v->object.get() : Py_None) && !real_type(v) &&
          reinterpret_cast<PyWrapperDescrObject*>(hook.object)->d_wrapped !=
              reinterpret_cast<void*>(PyObject_GenericSetAttr))
        graph_break(Reason::unsupported_write,
                    std::string("a write to ") + v->type->tp_name + "." + text_of(key.get()) + ", which C code takes");
    }
  }
  generic_set_attribute(t, v, key.get(), to);
}

}  // namespace

void generic_set_attribute(Tracer& t, Value* v, PyObject* name, Value* to) {
  t.facts.type_of(v);
  if (v->kind == ValueKind::function) return set_function_attribute(t.dicts, as<FunctionValue>(v), name, to);
  if (v->kind == ValueKind::cell && std::string_view(text_of(name)) == "cell_contents") {
    will_mutate(t.shadows, v);
    as<CellValue>(v)->contents = to;
    as<CellValue>(v)->loaded = true;
    return;
  }
  if (real_type(v)) return set_class_data(t.shadows, v, name, to);
  if (v->object && PyModule_Check(v->object.get())) {
    if (const Found d = look_up(t.shadows, v, name); d.object && Py_TYPE(d.object)->tp_descr_set)
      graph_break(Reason::outside_effect, std::string("a write to ") + text_of(name) + " of " + describe(v));
    DictValue* dict = module_dict(t.heap, v);
    if (to) t.dicts.set(dict, t.heap.constant_value(name), to);
    else if (!t.dicts.remove(dict, t.heap.constant_value(name))) raise_unwritable(t.numbers, v, name, to, false);
    return;
  }
  if (v->kind == ValueKind::tensor) return set_tensor_attribute(t, as<TensorValue>(v), name, to);
  const Found d = look_up(t.shadows, v, name);
  if (d.object && Py_TYPE(d.object)->tp_descr_set) return set_through_descriptor(t, d, v, name, to);
  if (!has_own_dict(t.facts, v)) raise_unwritable(t.numbers, v, name, to, d.object != nullptr);
  set_own_attribute(t.drops, t.numbers, v, name, to);
}

void Tracer::set_attribute(Value* v, PyObject* name, Value* to) { write(*this, v, name, to); }
void Tracer::delete_attribute(Value* v, PyObject* name) { write(*this, v, name, nullptr); }

}  // namespace framejit::frame_hook
