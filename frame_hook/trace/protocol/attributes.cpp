// frame_hook/trace/protocol/attributes.cpp — attribute reads: those of any object, those of the kinds that CPython
// treats specially (types, modules, functions, methods, super objects, tensors), and the dispatch over kinds.
#include "frame_hook/trace/protocol/attributes.h"
#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/protocol/own_dict.h"
#include "frame_hook/trace/torch/tensor_attributes.h"
#include "frame_hook/trace/values/exception_members.h"
#include "guards/class_state.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::SourceKind;

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

// T.__dict__: a proxy of a dict whose items are those of the class body, in order.
Value* class_dict(Dicts& dicts, Value* type_value, PyTypeObject* type) {
  const guards::SourceId source = dicts.facts.source_of(type_value);
  if (!(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) dicts.facts.guard_type_unchanged(type, source);
  DictValue* items = dicts.heap.dict();
#if PY_VERSION_HEX >= 0x030C0000
  PyRef dict = PyRef::steal(PyType_GetDict(type));
#else
  PyRef dict = PyRef::borrow(type->tp_dict);
#endif
  PyObject *key, *item;
  for (Py_ssize_t position = 0; dict && PyDict_Next(dict.get(), &position, &key, &item);) {
    const Found found{item, dicts.facts.sources().add(SourceKind::type_lookup, source, 0, key)};
    Value* written = dicts.shadows.tables().class_data.find(type, key);
    dicts.set(items, dicts.heap.constant_value(key),
              written                            ? written
              : guards::is_class_data(key, item) ? dicts.heap.wrap(item, found.source)
                                                 : found_value(dicts.heap, found));
  }
  // The copy does not follow later writes: set_class_data() breaks if it finds that the dict was read.
  if (dict)
    dicts.heap.wrap(dict.get(), dicts.facts.sources().add(SourceKind::constant, guards::kNoSource, 0, dict.get()));
  return mapping_proxy(dicts.heap, items);
}

// Getters of type objects. Their results cannot change while the type is unchanged, or are constants of the class.
Value* type_getter(Dicts& dicts, Value* type_value, PyTypeObject* type, PyObject* name) {
  const std::string_view text = text_of(name);
  if (text == "__dict__") return class_dict(dicts, type_value, type);
  if (text == "__class__") return dicts.heap.constant_value(reinterpret_cast<PyObject*>(Py_TYPE(type)));
  if (text == "__annotations__") {
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return nullptr;
    PyObject* own = own_class_attribute(type, interned("__annotations__"));
    if (!own) graph_break(Reason::unknown_attribute, "__annotations__ of a class that has none yet");
    return dicts.heap.wrap(own, dicts.facts.sources().add(SourceKind::type_lookup, dicts.facts.source_of(type_value), 0,
                                                          interned("__annotations__")));
  }
  if (!(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE))
    dicts.facts.guard_type_unchanged(type, dicts.facts.source_of(type_value));
  PyRef value = PyRef::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name));
  if (!value) {
    drop_error();
    return nullptr;
  }
  const bool may_be_renamed =
      (text == "__name__" || text == "__qualname__") && !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
  if (!may_be_renamed) return dicts.heap.constant_value(value.get());
  const guards::SourceId source = dicts.facts.source_of(type_value);  // a new name does not change the class's version
  return dicts.heap.wrap(value.get(), dicts.facts.sources().add(SourceKind::attribute, source, 0, name));
}

Value* metaclass_getattr(Tracer& t, Value* type_value, const Found& getattr, PyTypeObject* meta, PyObject* name) {
  if (!PyFunction_Check(getattr.object))
    graph_break(Reason::unknown_attribute, std::string(meta->tp_name) + ".__getattr__");
  return t.call(bind(t, getattr, type_value, meta, nullptr), {t.heap.constant_value(name)});
}

Value* module_attribute(Tracer& t, Value* v, PyObject* name) {
  const Found d = look_up(t.shadows, v, name);
  if (d.object && Py_TYPE(d.object)->tp_descr_set && std::string_view(text_of(name)) != "__dict__") {
    const Value* own = t.dicts.get(module_dict(t.heap, v), t.heap.constant_value(name));
    if (!own && std::string_view(text_of(name)) == "__annotations__")
      graph_break(Reason::unknown_attribute, "__annotations__ of a module that has none yet");
    if (Py_TYPE(d.object) != &PyGetSetDescr_Type || !own) return bind(t, d, v, v->type, nullptr);
  }
  if (std::string_view(text_of(name)) == "__dict__") return module_dict(t.heap, v);
  if (Value* found = t.dicts.get(module_dict(t.heap, v), t.heap.constant_value(name))) return found;
  if (d.object) return bind(t, d, v, v->type, nullptr);
  if (Value* getattr = t.dicts.get(module_dict(t.heap, v), t.heap.constant_value(interned("__getattr__"))))
    return t.call(getattr, {t.heap.constant_value(name)});
  return nullptr;
}

// As meth_get__qualname__ of Objects/methodobject.c: the class of the object counts, not the one that has the method.
Value* qualified_name(Tracer& t, MethodValue* m) {
  Value* const type =
      real_type(m->self) ? m->self : t.heap.constant_value(reinterpret_cast<PyObject*>(t.facts.type_of(m->self)));
  const auto text = [&](Value* of, const char* name) {
    Value* const v = t.get_attribute(of, interned(name));
    if (v->kind != ValueKind::object || !PyUnicode_Check(v->object.get()))
      graph_break(Reason::unknown_attribute, "method.__qualname__");
    return std::string(exact_text(constant_of(t.shadows, v)));
  };
  return t.heap.string((text(type, "__qualname__") + "." + text(m->function, "__name__")));
}

Value* method_attribute(Tracer& t, MethodValue* m, PyObject* name) {
  t.facts.type_of(m);
  if (m->object && m->type == &PyCFunction_Type) t.facts.guard_identity(m->function);  // a function has this type too
  const std::string_view text = text_of(name);
  if (text == "__self__") return m->self;
  if (text == "__func__" && m->type == &PyMethod_Type) return m->function;
  if (text == "__class__") return t.heap.constant_value(reinterpret_cast<PyObject*>(t.facts.type_of(m)));
  if (text == "__call__") return m;
  if (text == "__get__" || text == "__reduce__") graph_break(Reason::unknown_attribute, "method." + std::string(text));
  if (m->type == &PyCFunction_Type) {  // its descriptor says something else
    if (text == "__module__") return t.heap.none();
    if (text == "__qualname__") return qualified_name(t, m);
    if (!_PyType_Lookup(&PyCFunction_Type, name)) return nullptr;
  }
  // A method has the attributes of its own class itself (repr, hash, how to copy it); all others are its function's.
  if (m->type == &PyMethod_Type && text != "__doc__" && _PyType_Lookup(&PyMethod_Type, name))
    return generic_attribute(t, m, name);
  return m->type == &PyMethod_Type ? t.get_attribute(m->function, name) : attribute_or_null(t, m->function, name);
}

Value* slice_attribute(Tracer& t, SliceValue* v, PyObject* name) {
  const std::string_view text = text_of(name);
  if (text == "start") return v->start;
  if (text == "stop") return v->stop;
  if (text == "step") return v->step;
  return generic_attribute(t, v, name);
}

// An attribute of an object whose type may have a __getattribute__ or __getattr__ in Python.
Value* hooked_attribute(Tracer& t, Value* v, PyObject* name) {
  PyTypeObject* type = t.facts.type_of(v);
  if (type->tp_getattro == PyObject_GenericGetAttr) return generic_attribute(t, v, name);
  // Members of immutable objects, such as __args__ of list[int] and int | None.
  if (const Found d = look_up(t.shadows, v, name);
      d.object && Py_TYPE(d.object) == &PyMemberDescr_Type && v->kind == ValueKind::object && t.heap.is_constant(v))
    return t.errors.constant_steal(PyObject_GenericGetAttr(constant_of(t.shadows, v), name));
  const Found getattribute = look_up(t.shadows, v, interned("__getattribute__"));
  const Found getattr = look_up(t.shadows, v, interned("__getattr__"));
  if (getattribute.object && Py_TYPE(getattribute.object) == &PyWrapperDescr_Type &&
      reinterpret_cast<PyWrapperDescrObject*>(getattribute.object)->d_wrapped !=
          reinterpret_cast<void*>(PyObject_GenericGetAttr) &&
      !(v->object && PyModule_Check(v->object.get())))  // the type's own C code: threading.local
    graph_break(Reason::unknown_attribute, std::string(type->tp_name) + "." + text_of(name));
  auto call_hook = [&](const Found& hook) {
    return t.call(bind(t, hook, v, type, nullptr), {t.heap.constant_value(name)});
  };
  if (getattribute.object && PyFunction_Check(getattribute.object)) {
    if (!getattr.object) return call_hook(getattribute);
    Unresumable guard(t.stack);
    try {
      return call_hook(getattribute);
    } catch (const SymbolicRaise& raised) {
      if (!t.errors.exception_matches(raised.exception, PyExc_AttributeError)) throw;
    }
    return call_hook(getattr);
  }
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !getattr.object && v->kind != ValueKind::instance)
    graph_break(Reason::unknown_attribute, std::string(type->tp_name) + "." + text_of(name));
  Value* found = nullptr;
  if (!getattr.object) return generic_attribute(t, v, name);
  {
    Unresumable guard(t.stack);
    try {
      found =
          v->object && PyModule_Check(v->object.get()) ? module_attribute(t, v, name) : generic_attribute(t, v, name);
    } catch (const SymbolicRaise& raised) {
      if (!t.errors.exception_matches(raised.exception, PyExc_AttributeError)) throw;
    }
  }
  return found ? found : call_hook(getattr);
}

}  // namespace

Value* type_attribute(Tracer& t, Value* v, PyObject* name) {
  PyTypeObject* type = t.facts.known_type(v);
  PyTypeObject* meta = Py_TYPE(type);
  const guards::SourceId source = t.facts.source_of(v);
  const guards::SourceId meta_source = t.facts.type_source(v);
  const Found md = look_up(t.shadows, meta, meta_source, name);
  guard_descriptor_class(t.facts, md);
  if (md.object && Py_TYPE(md.object)->tp_descr_set && Py_TYPE(md.object)->tp_descr_get) {
    if (Py_TYPE(md.object) == &PyGetSetDescr_Type || Py_TYPE(md.object) == &PyMemberDescr_Type)
      return type_getter(t.dicts, v, type, name);
    return bind(t, md, v, meta, nullptr);
  }
  const Found d = look_up(t.shadows, type, source, name);
  guard_descriptor_class(t.facts, d);
  if (d.object) {
    if (Py_TYPE(d.object) == &PyGetSetDescr_Type && std::string_view(text_of(name)) == "__class__")
      return t.heap.constant_value(reinterpret_cast<PyObject*>(meta));
    return bind(t, d, nullptr, type, v);
  }
  return md.object ? bind(t, md, v, meta, nullptr) : nullptr;
}

namespace {

Value* class_attribute(Tracer& t, Value* v, PyObject* name) {
  PyTypeObject* meta = Py_TYPE(t.facts.known_type(v));
  if (meta->tp_getattro == PyType_Type.tp_getattro) return type_attribute(t, v, name);
  const Found getattribute = look_up(t.shadows, meta, t.facts.type_source(v), interned("__getattribute__"));
  const Found getattr = look_up(t.shadows, meta, t.facts.type_source(v), interned("__getattr__"));
  const bool in_python = getattribute.object && PyFunction_Check(getattribute.object);
  const auto first = [&] {
    return in_python ? t.call(bind(t, getattribute, v, meta, nullptr), {t.heap.constant_value(name)})
                     : type_attribute(t, v, name);
  };
  if (!getattr.object) return first();
  {
    Unresumable guard(t.stack);
    try {
      if (Value* found = first()) return found;
    } catch (const SymbolicRaise& raised) {
      if (!t.errors.exception_matches(raised.exception, PyExc_AttributeError)) throw;
    }
  }
  return metaclass_getattr(t, v, getattr, meta, name);
}

Value* function_attribute(Tracer& t, FunctionValue* f, PyObject* name) {
  for (const auto& [n, v] : f->attrs)
    if (n.get() == name) return v;
  const std::string_view text = text_of(name);
  if (text == "__class__") return t.heap.constant_value(reinterpret_cast<PyObject*>(t.facts.type_of(f)));
  t.shadows.load(f);
  if (text == "__code__") return t.heap.constant_value(reinterpret_cast<PyObject*>(f->code));
  if (text == "__globals__") return f->globals;
  if (text == "__defaults__") return f->defaults ? f->defaults : t.heap.none();
  if (text == "__kwdefaults__") return f->kwdefaults ? f->kwdefaults : t.heap.none();
  if (text == "__closure__")
    return f->closure.empty() ? t.heap.none() : t.heap.tuple(std::vector<Value*>(f->closure.begin(), f->closure.end()));
  if (!f->object) {
    if (text == "__name__") return f->name ? f->name : t.heap.constant_value(f->code->co_name);
    if (text == "__qualname__") return f->qualname ? f->qualname : t.heap.constant_value(f->code->co_qualname);
    if (text == "__module__") {
      Value* module = t.dicts.get(as<DictValue>(f->globals), t.heap.constant_value(interned("__name__")));
      return module ? module : t.heap.none();
    }
    if (text == "__doc__") {
      PyObject* consts = f->code->co_consts;
      PyObject* doc = PyTuple_GET_SIZE(consts) ? PyTuple_GET_ITEM(consts, 0) : Py_None;
      return t.heap.constant_value(PyUnicode_Check(doc) ? doc : Py_None);
    }
    if (text == "__annotations__") {
      DictValue* d = t.heap.dict();
      f->attrs.emplace_back(PyRef::borrow(name), d);
      return d;
    }
    if (PY_VERSION_HEX >= 0x030C0000 && text == "__type_params__")  // there is one empty tuple
      return t.heap.constant_value(PyRef::steal(PyTuple_New(0)).get());
  }
  if (text == "__dict__") return function_dict(t.errors, f);
  if (const PyObject* known = _PyType_Lookup(&PyFunction_Type, name); !known || !Py_TYPE(known)->tp_descr_set)
    if (Value* own = t.dicts.get(function_dict(t.errors, f), t.heap.constant_value(name))) return own;
  return generic_attribute(t, f, name);
}

Value* super_attribute(Tracer& t, SuperValue* v, PyObject* name) {
  const std::string_view text = text_of(name);
  if (text == "__class__") return t.heap.constant_value(reinterpret_cast<PyObject*>(t.facts.type_of(v)));
  if (text == "__self__") return v->self;
  if (text == "__thisclass__") return v->start_type;
  if (text == "__self_class__") return v->self_type;
  auto* start = t.facts.known_type(v->start_type);
  auto* type = reinterpret_cast<PyTypeObject*>(real_type(v->self_type));
  if (!start || !type) graph_break(Reason::made_in_trace, "super() of a class made in the trace");
  const bool on_class =
      v->self == v->self_type || (real_type(v->self) && real_type(v->self) == real_type(v->self_type));
  const guards::SourceId type_source = on_class ? t.facts.source_of(v->self_type) : t.facts.type_source(v->self);
  if (!(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) t.facts.guard_type_unchanged(type, type_source);
  PyObject* mro = type->tp_mro;
  if (!mro) graph_break(Reason::made_in_trace, "super() of a class that is being made");
  Py_ssize_t i = 0;
  while (i < PyTuple_GET_SIZE(mro) && PyTuple_GET_ITEM(mro, i) != reinterpret_cast<PyObject*>(start)) ++i;
  for (++i; i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    PyObject* found = own_class_attribute(base, name);
    if (!found) continue;
    const guards::SourceId base_source =
        t.facts.sources().add(SourceKind::constant, guards::kNoSource, 0, reinterpret_cast<PyObject*>(base));
    const Found d{found, t.facts.sources().add(SourceKind::type_lookup, base_source, 0, name),
                  t.shadows.tables().class_data.find(base, name)};
    return bind(t, d, on_class ? nullptr : v->self, type, v->self_type);
  }
  return nullptr;
}

}  // namespace

Value* attribute_or_null(Tracer& t, Value* v, PyObject* name) {
  switch (v->kind) {
    case ValueKind::null: graph_break(Reason::odd_scope, "an unbound value");
    case ValueKind::tensor: return tensor_attribute(t, as<TensorValue>(v), name);
    case ValueKind::function: return function_attribute(t, as<FunctionValue>(v), name);
    case ValueKind::method: return method_attribute(t, as<MethodValue>(v), name);
    case ValueKind::super: return super_attribute(t, as<SuperValue>(v), name);
    case ValueKind::slice: return slice_attribute(t, as<SliceValue>(v), name);
    case ValueKind::cell:
      if (std::string_view(text_of(name)) == "cell_contents") {
        auto* cell = as<CellValue>(v);
        if (Value* contents = cell_contents(t.shadows, cell)) return contents;
        t.errors.raise_new(PyExc_ValueError, "Cell is empty");
      }
      return generic_attribute(t, v, name);
    case ValueKind::instance:
    case ValueKind::object:
      if (real_type(v)) return class_attribute(t, v, name);
      if (v->object && PyModule_Check(v->object.get()) && t.facts.type_of(v)->tp_getattro == PyModule_Type.tp_getattro)
        return module_attribute(t, v, name);
      return hooked_attribute(t, v, name);
    case ValueKind::sym_int:
    case ValueKind::identity:
    case ValueKind::tuple:
    case ValueKind::list:
    case ValueKind::dict:
    case ValueKind::set:
    case ValueKind::iterator:
    case ValueKind::generator:
    case ValueKind::array:
    case ValueKind::view: return generic_attribute(t, v, name);
  }
  return nullptr;
}

namespace {

PyRef intern_name(PyObject* name) {
  PyObject* own = Py_NewRef(name);
  if (PyUnicode_CheckExact(own) && !PyUnicode_CHECK_INTERNED(own)) PyUnicode_InternInPlace(&own);
  return PyRef::steal(own);
}

// PyObject_GetAttr() adds the object and the name to every AttributeError that passes, unless they are set.
void say_what_was_looked_for(Errors& errors, Value* exception, Value* v, PyObject* name) {
  if (exception->object || !errors.exception_matches(exception, PyExc_AttributeError)) return;
  auto* error = as<InstanceValue>(exception);
  PyObject* const of_name = member_descriptor(PyExc_AttributeError, "name");
  PyObject* const of_object = member_descriptor(PyExc_AttributeError, "obj");
  if (find_member(error, of_name) || find_member(error, of_object)) return;
  // CPython writes them as attributes.
  if (error->type->tp_setattro != PyObject_GenericSetAttr || _PyType_Lookup(error->type, interned("name")) != of_name ||
      _PyType_Lookup(error->type, interned("obj")) != of_object)
    graph_break(Reason::exception_raised, std::string(error->type->tp_name) + ", whose class takes writes to members,");
  write_member(error, of_name, errors.heap.constant_value(name));
  write_member(error, of_object, v);
}

}  // namespace

Value* Tracer::get_attribute(Value* v, PyObject* name) {
  PyRef key = intern_name(name);
  try {
    return existing_attribute(v, key.get());
  } catch (const SymbolicRaise& raised) {
    say_what_was_looked_for(errors, raised.exception, v, key.get());
    throw;
  }
}

Value* Tracer::existing_attribute(Value* v, PyObject* name) {
  if (Value* found = attribute_or_null(*this, v, name)) return found;
  std::string message;
  if (PyObject* type = real_type(v))
    message = std::string("type object '") + reinterpret_cast<PyTypeObject*>(type)->tp_name;
  else if (v->object && PyModule_Check(v->object.get())) {
    const char* own_name = PyModule_GetName(v->object.get());
    if (!own_name)
      drop_error(),
          errors.raise_new(PyExc_AttributeError, std::string("module has no attribute '") + exact_text(name) + "'");
    message = std::string("module '") + own_name;
  } else message = "'" + (v->type ? class_of_missing(v->type, name) : "?");
  const bool is_named = real_type(v) || (v->object && PyModule_Check(v->object.get()));  // a type or a module
  errors.raise_new(PyExc_AttributeError, message + (is_named ? "' has no attribute '" : "' object has no attribute '") +
                                             exact_text(name) + "'");
}

Value* Tracer::find_attribute(Value* v, PyObject* name) {
  PyRef key = intern_name(name);
  Unresumable guard(stack);
  try {
    return attribute_or_null(*this, v, key.get());
  } catch (const SymbolicRaise& raised) {
    if (!errors.exception_matches(raised.exception, PyExc_AttributeError)) throw;
    return nullptr;
  }
}

}  // namespace framejit::frame_hook
