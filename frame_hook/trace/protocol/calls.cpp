// frame_hook/trace/protocol/calls.cpp — calling a value: Python functions are inlined. C functions go to their row by
// identity; those without one are recorded (torch functions on traced tensors), run concretely (pure, on plain
// arguments), or break with their name.
#include <cctype>

#include "frame_hook/trace/machine/nested.h"
#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/construct.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/protocol/strings.h"
#include "frame_hook/trace/torch/special.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/values/c_packages.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/numpy_objects.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

using guards::SourceKind;

namespace {

bool any_tensor(TensorFrontend& frontend, const Arguments& args) {
  for (Value* v : args.positional)
    if (contains_tensor(frontend, v)) return true;
  for (const auto& [name, v] : args.keywords)
    if (contains_tensor(frontend, v)) return true;
  return false;
}

// Functions that only make or read tensors through the dispatcher: they are recorded even without tensor arguments.
bool dispatches(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return false;
  PyObject* const bound_to = reinterpret_cast<PyCFunctionObject*>(callable)->m_self;  // for static methods too
  const bool is_torch_function = bound_to == reinterpret_cast<PyObject*>(known_type(KnownType::torch_functions));
  return (bound_to && is_torch_function) || is_function_for(callable, kRecorded);
}

// A C function bound to a real object that is neither a module nor a class: the method of its type, on the wrapped
// object.
Value* unbound_method(Heap& heap, Value* v, PyObject* callable, Value** self) {
  PyObject* bound = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  if (!bound || PyModule_Check(bound) || PyType_Check(bound) || find_c_function(callable)) return nullptr;
  PyObject* descriptor =
      _PyType_Lookup(Py_TYPE(bound), interned(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name));
  if (!descriptor || Py_TYPE(descriptor) != &PyMethodDescr_Type) return nullptr;
  heap.facts.guard_identity(v);
  *self = heap.wrap(bound, heap.facts.sources().add(SourceKind::method_self, heap.facts.source_of(v)));
  return heap.constant_value(descriptor);
}

bool is_builtin_immutable(PyTypeObject* type) {
  return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
         type == &PyBytes_Type || type == &PyComplex_Type || type == &PyTuple_Type || type == &PyFrozenSet_Type ||
         type == &PyRange_Type || type == &PySlice_Type;
}

// Methods of exact builtin immutables on plain arguments; functions of pure modules.
bool is_pure_function(PyObject* callable) {
  PyTypeObject* kind = Py_TYPE(callable);
  if (kind == &PyMethodDescr_Type || kind == &PyWrapperDescr_Type || kind == &PyClassMethodDescr_Type)
    return is_builtin_immutable(reinterpret_cast<PyDescrObject*>(callable)->d_type);
  if (PyCFunction_Check(callable)) {
    PyObject* self = PyCFunction_GET_SELF(callable);
    if (self && PyType_Check(self)) return is_builtin_immutable(reinterpret_cast<PyTypeObject*>(self));
    return is_function_for(callable, kPure);
  }
  return false;
}

// The __new__ of all classes that C code makes share one definition (typeobject.c, add_tp_new_wrapper).
bool is_new_of_a_class(PyObject* callable) {
  static const PyMethodDef* const definition =
      reinterpret_cast<PyCFunctionObject*>(_PyType_Lookup(&PyBaseObject_Type, interned("__new__")))->m_ml;
  PyObject* self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  return self && PyType_Check(self) && reinterpret_cast<PyCFunctionObject*>(callable)->m_ml == definition;
}

// Slot wrappers of builtin classes by name, and their __new__. Null: neither.
Value* call_slot_or_new(Tracer& t, PyObject* callable, const Arguments& args) {
  PyTypeObject* kind = Py_TYPE(callable);
  if (kind == &PyWrapperDescr_Type || kind == &PyMethodDescr_Type) {
    auto* descriptor = reinterpret_cast<PyDescrObject*>(callable);
    return call_slot(t, descriptor->d_type, text_of(descriptor->d_name), args);
  }
  if (!is_new_of_a_class(callable) || args.positional.empty()) return nullptr;
  PyTypeObject* type = t.facts.known_type(args.positional[0]);
  if (!type) t.errors.raise_new(PyExc_TypeError, "__new__(X): X is not a type object");
  return builtin_new(t, type, Arguments{{args.positional.begin() + 1, args.positional.end()}, args.keywords});
}

PyMethodDef* definition_of(PyObject* callable) {
  if (PyCFunction_Check(callable)) return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  return Py_IS_TYPE(callable, &PyMethodDescr_Type) ? reinterpret_cast<PyMethodDescrObject*>(callable)->d_method
                                                   : nullptr;
}

// What CPython checks before a C function sees its arguments: self of the right class; no argument, one argument, or no
// keywords.
void require_signature(Errors& errors, PyObject* callable, const Arguments& args) {
  const bool slot = Py_IS_TYPE(callable, &PyWrapperDescr_Type),
             unbound = slot || Py_IS_TYPE(callable, &PyMethodDescr_Type);
  if (unbound) {
    auto* descriptor = reinterpret_cast<PyDescrObject*>(callable);
    const std::string name = text_of(descriptor->d_name), type = descriptor->d_type->tp_name;
    if (args.positional.empty())
      errors.raise_new(PyExc_TypeError, (slot ? "descriptor '" + name + "' of '" + type + "' object"
                                              : "unbound method " + type + "." + name + "()") +
                                            " needs an argument");
    Value* self = args.positional[0];
    if (!PyType_IsSubtype(errors.heap.facts.type_of(self), descriptor->d_type))
      errors.raise_new(PyExc_TypeError, "descriptor '" + name +
                                            (slot ? "' requires a '" + type + "' object but received a '"
                                                  : "' for '" + type + "' objects doesn't apply to a '") +
                                            self->type->tp_name + (slot ? "'" : "' object"));
  }
  const PyMethodDef* method = definition_of(callable);
  if (!method || (method->ml_flags & METH_KEYWORDS)) return;
  const size_t given = args.positional.size() - (unbound ? 1 : 0);
  const bool none = method->ml_flags & METH_NOARGS, one = method->ml_flags & METH_O;
  if (args.keywords.empty() && !(none && given != 0) && !(one && given != 1)) return;
  const std::string function = name_of_callable(callable) + "()";
  if (!args.keywords.empty()) errors.raise_new(PyExc_TypeError, function + " takes no keyword arguments");
  errors.raise_new(PyExc_TypeError, function + (none ? " takes no arguments (" : " takes exactly one argument (") +
                                        std::to_string(given) + " given)");
}

bool uses_codec(PyObject* callable) {
  static PyObject* const encode = _PyType_Lookup(&PyUnicode_Type, interned("encode"));
  static PyObject* const decode = _PyType_Lookup(&PyBytes_Type, interned("decode"));
  return callable == encode || callable == decode;
}

// Methods that OrderedDict overrides, called as dict's own.
void refuse_half_of_ordered_dict(PyObject* callable, const Arguments& args) {
  PyTypeObject* kind = Py_TYPE(callable);
  if ((kind != &PyMethodDescr_Type && kind != &PyWrapperDescr_Type) || args.positional.empty() ||
      args.positional[0]->kind != ValueKind::instance)
    return;
  auto* descriptor = reinterpret_cast<PyDescrObject*>(callable);
  if (descriptor->d_type != &PyDict_Type || builtin_base(args.positional[0]->type) != &PyODict_Type) return;
  if (_PyType_Lookup(&PyODict_Type, descriptor->d_name) != callable)
    graph_break(Reason::unsupported_operand, name_of_callable(callable) + "() of an OrderedDict");
}

void refuse_what_is_asked(Shadows& shadows, PyObject* callable, const Arguments& args) {
  for (Value* v : args.positional)
    if (c_functions_may_ask(shadows, v))
      graph_break(Reason::unsupported_operand, name_of_callable(callable) + "() of " + describe(v));
}

Value* call_c_function_with_own_errors(Tracer& t, Value* v, PyObject* callable, const Arguments& args) {
  t.facts.guard_identity(v);
  Unresumable guard(t.stack);
  require_signature(t.errors, callable, args);
  refuse_half_of_ordered_dict(callable, args);
  if (uses_codec(callable)) refuse_foreign_codecs(t.shadows, args);
  if (CFunction row = find_c_function(callable)) return row(t, args);
  if (runs_concretely(callable)) {
    refuse_what_is_asked(t.shadows, callable, args);
    return is_of_numpy(callable) ? call_numpy(t, callable, args)
                                 : t.calls.plain(callable, without_symbols(t.shadows, args));
  }
  if (Value* result = call_slot_or_new(t, callable, args)) return result;
  const bool torch = is_torch_c_function(callable);
  const bool is_recorded =
      dispatches(callable) || (any_tensor(t.frontend(), args) && !is_function_for(callable, kByRow));
  if (torch && is_recorded) return call_torch(t, callable, args);
  if (torch) {
    if (t.frontend().is_pure_without_tensors(callable))
      return t.calls.plain(callable, without_symbols(t.shadows, args));
  } else if (is_pure_function(callable)) {
    refuse_what_is_asked(t.shadows, callable, args);
    if (Value* result = t.numbers.computed(callable, args)) return result;
    const bool of_range = !args.positional.empty() &&
                          payload_of(args.positional[0])->type == &PyRange_Type;  // it asks the argument's __eq__
    if (of_range && args.positional.size() > 1 && args.positional[1]->kind == ValueKind::instance)
      graph_break(Reason::unknown_callable, name_of_callable(callable));
    const Arguments plain = without_symbols(t.shadows, args);
    if (all_plain(t.shadows, plain)) return t.calls.pure(callable, plain);
  }
  warn_if_substituted(callable);
  graph_break(Reason::unknown_callable,
              name_of_call(callable, args.positional.empty() ? nullptr : args.positional.front()));
}

Value* call_c_function(Tracer& t, Value* v, PyObject* callable, const Arguments& args) {
  return with_cpython_errors(
      t.numbers, [&] { return CCall{callable, args}; },
      [&] { return call_c_function_with_own_errors(t, v, callable, args); });
}

// functools.partial, real or made in the trace.
Value* call_partial(Tracer& t, InstanceValue* v, const Arguments& args) {
  Value* function = t.get_attribute(v, interned("func"));
  Arguments all;
  all.positional = t.unpack(t.get_attribute(v, interned("args")));
  all.positional.insert(all.positional.end(), args.positional.begin(), args.positional.end());
  DictValue* keywords = dict_of(t.get_attribute(v, interned("keywords")));
  t.dicts.load(keywords);
  for (const DictEntry& e : keywords->entries) {
    if (!t.heap.is_constant(e.key) || !PyUnicode_Check(constant_of(t.shadows, e.key)))
      graph_break(Reason::unsupported_operand, "a keyword of a partial that is not a str");
    PyObject* name = interned(exact_text(constant_of(t.shadows, e.key)));
    bool overridden = false;
    for (const auto& [n, value] : args.keywords) overridden = overridden || interned(exact_text(n)) == name;
    if (!overridden) all.keywords.emplace_back(name, e.value);
  }
  all.keywords.insert(all.keywords.end(), args.keywords.begin(), args.keywords.end());
  all.keywords.order_from = args.keywords.order_from;
  return t.call(function, all);
}

Value* call_instance(Tracer& t, Value* v, const Arguments& args) {
  const Nested nested("__call__()");
  PyTypeObject* type = t.facts.type_of(v);
  if (Value* method = python_special(t, v, "__call__")) return t.call(method, args);
  if (v->object && PyWeakref_CheckRef(v->object.get())) return call_weak_reference(t.drops, v, args);
  if (is_known(builtin_base(type), KnownType::partial)) return call_partial(t, as<InstanceValue>(v), args);
  if (is_known(type, KnownType::lru_cache) && v->object) return call_lru_cache(t, v, args);
  const bool is_getter = is_known(type, KnownType::item_getter) || is_known(type, KnownType::attribute_getter);
  if (is_getter && v->object) return call_getter(t, v, args);
  if (is_known(type, KnownType::armed_call))
    return t.call(t.get_attribute(v, interned("function")), args);  // compiled by itself, inlined here
  guard_keyword_order(t.facts, args);
  if (v->object && type->tp_call) {
    if (CFunction row = find_c_function(v->object.get())) {
      t.facts.guard_identity(v);
      return row(t, args);
    }
    if (runs_concretely(v->object.get())) {
      t.facts.guard_identity(v);
      return call_numpy(t, v->object.get(), args);
    }
    if (is_of(type, CPackage::torch) && any_tensor(t.frontend(), args)) {
      t.facts.guard_identity(v);
      return t.calls.recorded(v->object.get(), args);
    }
    graph_break(Reason::unknown_callable, std::string("an object of type ") + type->tp_name);
  }
  t.errors.raise_new(PyExc_TypeError, std::string("'") + type->tp_name + "' object is not callable");
}

Value* call_object(Tracer& t, Value* v, const Arguments& args) {
  guard_keyword_order(t.facts, args);
  PyObject* callable = v->object.get();
  PyTypeObject* type = Py_TYPE(callable);
  if (PyType_Check(callable)) return call_type(t, v, args);
  if (type == &PyStaticMethod_Type) {
    PyRef inner = PyRef::steal(PyObject_GetAttr(callable, interned("__func__")));
    return t.call(t.heap.wrap(inner.get(),
                              t.facts.sources().add(SourceKind::member, t.facts.source_of(v), 0, interned("__func__"))),
                  args);
  }
  if (PyInstanceMethod_Check(callable)) {
    t.facts.guard_identity(v);
    if (CFunction row = find_c_function(callable)) return row(t, args);
    return t.call(t.heap.constant_value(PyInstanceMethod_GET_FUNCTION(callable)), args);
  }
  Value* self = nullptr;
  if (Value* method = unbound_method(t.heap, v, callable, &self)) return t.call(method, with_first(self, args));
  if (type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type || type == &PyClassMethodDescr_Type ||
      PyCFunction_Check(callable))
    return call_c_function(t, v, callable, args);
  if (is_known(type, KnownType::lru_cache)) return call_lru_cache(t, v, args);
  if (PyWeakref_CheckRefExact(callable)) return call_weak_reference(t.drops, v, args);
  if (type == method_wrapper_type()) {
    PyRef name = PyRef::steal(PyObject_GetAttrString(callable, "__name__")),
          real = PyRef::steal(PyObject_GetAttrString(callable, "__self__"));
    t.facts.guard_identity(v);
    Value* method =
        t.lookup_special(t.heap.wrap(real.get(), t.facts.sources().add(SourceKind::method_self, t.facts.source_of(v))),
                         text_of(name.get()));
    if (method && method->type == method_wrapper_type()) return t.call(method, args);
    graph_break(Reason::unknown_callable, "a method-wrapper, " + name_of_callable(callable));
  }
  return call_instance(t, v, args);
}

}  // namespace

Value* Tracer::call(Value* callable, const Arguments& args) {
  switch (callable->kind) {
    case ValueKind::function: {
      auto* function = as<FunctionValue>(callable);
      if (function->object)
        if (Value* result = call_special_function(*this, function, args)) return result;
      return machine.call_function(function, args);
    }
    case ValueKind::method: {
      auto* method = as<MethodValue>(callable);
      return call(method->function, with_first(method->self, args));
    }
    case ValueKind::instance: return call_instance(*this, callable, args);
    case ValueKind::object: return call_object(*this, callable, args);
    case ValueKind::null:
    case ValueKind::tensor:
    case ValueKind::sym_int:
    case ValueKind::tuple:
    case ValueKind::list:
    case ValueKind::dict:
    case ValueKind::set:
    case ValueKind::slice:
    case ValueKind::cell:
    case ValueKind::iterator:
    case ValueKind::generator:
    case ValueKind::super:
    case ValueKind::view: case ValueKind::identity: case ValueKind::array: break;
  }
  errors.raise_new(PyExc_TypeError, std::string("'") + facts.type_of(callable)->tp_name + "' object is not callable");
}

Value* Tracer::call(Value* callable, std::initializer_list<Value*> positional) {
  return call(callable, Arguments{std::vector<Value*>(positional), {}});
}

}  // namespace framejit::frame_hook
