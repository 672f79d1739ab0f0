// frame_hook/trace/protocol/construct.cpp — calling a class: the metaclass's __call__, then __new__ and __init__
// as type.__call__ does.
//
// C constructors make shadows: an instance whose payload holds the contents of the builtin base. builtin_new() lists
// the C classes that can be constructed; exact builtin classes have rows in builtins.def.
#include "frame_hook/trace/protocol/construct.h"
#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/protocol/strings.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/values/c_packages.h"
#include "frame_hook/trace/values/exception_members.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook {

namespace {

Value* sizes_of(Tracer& t, const Arguments& args) {
  std::vector<Value*> items = args.positional.empty() ? std::vector<Value*>() : t.unpack(args.positional[0]);
  const bool ints = std::all_of(items.begin(), items.end(), [](Value* v) { return is_int(payload_of(v)); });
  if (!ints || args.positional.size() > 1 || !args.keywords.empty())
    graph_break(Reason::unknown_callable, "class torch.Size");
  for (Value*& item : items)
    if (item->type == &PyBool_Type) item = exact_int(t.shadows, item);
  return t.heap.tuple(std::move(items));
}

Value* plain_payload(Tracer& t, PyTypeObject* base, const Arguments& args) {
  CFunction row = find_c_function(reinterpret_cast<PyObject*>(base));
  if (base == &PyBytes_Type) refuse_foreign_codecs(t.shadows, args);
  return payload_of(row ? row(t, args) : t.calls.plain(reinterpret_cast<PyObject*>(base), args));
}

InstanceValue* new_partial(Tracer& t, PyTypeObject* type, const Arguments& args) {
  if (args.positional.empty()) t.errors.raise_new(PyExc_TypeError, "type 'partial' takes at least one argument");
  if (!unchanged_type_of(t.facts, args.positional[0])->tp_call)
    t.errors.raise_new(PyExc_TypeError, "the first argument must be callable");
  InstanceValue* v = make_instance(t.heap, type);
  Value* function = args.positional[0];
  std::vector<Value*> bound(args.positional.begin() + 1, args.positional.end());
  DictValue* keywords = t.heap.dict();
  if (function->kind == ValueKind::instance && is_known(function->type, KnownType::partial)) {
    std::vector<Value*> inner = t.unpack(t.get_attribute(function, interned("args")));
    bound.insert(bound.begin(), inner.begin(), inner.end());
    dict_update(t, keywords, t.get_attribute(function, interned("keywords")));
    function = t.get_attribute(function, interned("func"));
  }
  for (const auto& [name, value] : args.keywords) t.dicts.set(keywords, t.heap.constant_value(name), value);
  v->attrs.emplace_back(PyRef::borrow(interned("func")), function);
  v->attrs.emplace_back(PyRef::borrow(interned("args")), t.heap.tuple(std::move(bound)));
  v->attrs.emplace_back(PyRef::borrow(interned("keywords")), keywords);
  return v;
}

// Calls __init__. The frame of the caller then drops the None that it returned, and pushes the object.
void run_init(Tracer& t, Value* object, const Found& init, PyTypeObject* type, const Arguments& args) {
  Value* method = bind(t, init, object, type, nullptr);
  std::shared_ptr<SymbolicFrame> caller = t.stack.frames().empty() ? nullptr : t.stack.frames().back();
  const bool direct = caller && caller->on_return == OnReturn::push && PyFunction_Check(init.object);
  Value* outer_pending = caller ? caller->pending_object : nullptr;
  if (direct) {
    caller->on_return = OnReturn::push_object;
    caller->pending_object = object;
  }
  Value* result;
  if (direct) {
    result = t.call(method, args);
    caller->on_return = OnReturn::push;
    caller->pending_object = outer_pending;
  } else {
    Unresumable guard(t.stack);
    result = t.call(method, args);
  }
  if (!is_none(t.facts, result))
    t.errors.raise_new(PyExc_TypeError,
                       std::string("__init__() should return None, not '") + t.facts.type_of(result)->tp_name + "'");
}

bool is_object_slot(PyObject* found, const char* name) {
  return found == _PyType_Lookup(&PyBaseObject_Type, interned(name));
}

// Checks the arguments as object.__new__() does. Breaks if the constructor of an immutable C class would refuse them.
void require_arguments(Errors& errors, PyTypeObject* type, PyTypeObject* base, const Arguments& args) {
  const bool any = !args.positional.empty() || !args.keywords.empty();
  if (base == &PyBaseObject_Type && any) {
    if (type->tp_new != PyBaseObject_Type.tp_new)
      errors.raise_new(PyExc_TypeError, "object.__new__() takes exactly one argument (the type to instantiate)");
    if (type->tp_init == PyBaseObject_Type.tp_init)
      errors.raise_new(PyExc_TypeError, std::string(type->tp_name) + "() takes no arguments");
  }
  const bool immutable = base == &PyTuple_Type || base == &PyFrozenSet_Type;
  if (immutable && type->tp_init == base->tp_init && (!args.keywords.empty() || args.positional.size() > 1))
    graph_break(Reason::exception_raised, std::string("an error of the constructor of ") + type->tp_name);
}

}  // namespace

Value* builtin_new(Tracer& t, PyTypeObject* type, const Arguments& args) {
  PyTypeObject* base = builtin_base(type);
  if (type->tp_flags & Py_TPFLAGS_IS_ABSTRACT)
    graph_break(Reason::exception_raised, std::string("an error of the abstract class ") + type->tp_name);
  require_arguments(t.errors, type, base, args);
  if (base == &PyBaseObject_Type) return make_instance(t.heap, type);
  if (is_exception_type(base)) {
    refuse_parsed_arguments(type, args.positional.size());
    InstanceValue* v = make_instance(t.heap, type);
    auto* os_error = reinterpret_cast<PyTypeObject*>(PyExc_OSError);  // __new__ or __init__ takes the arguments
    const bool by_init =
        PyType_IsSubtype(base, os_error) && type->tp_init != os_error->tp_init && type->tp_new == os_error->tp_new;
    v->payload = t.heap.tuple(by_init ? std::vector<Value*>() : args.positional);
    return v;
  }
  if (is_known(base, KnownType::partial)) return new_partial(t, type, args);
  if (is_known(base, KnownType::name_space)) return make_instance(t.heap, type);
  Value* payload = nullptr;
  if (PyType_IsSubtype(base, &PyDict_Type)) payload = t.heap.dict();
  else if (base == &PyList_Type) payload = t.heap.list({});
  else if (base == &PySet_Type) payload = make_set(t.dicts, &PySet_Type, {});
  else if (is_size_type(base)) payload = sizes_of(t, args);
  else if (base == &PyTuple_Type)
    payload = t.heap.tuple(args.positional.empty() ? std::vector<Value*>() : t.unpack(args.positional[0]));
  else if (base == &PyFrozenSet_Type)
    payload = set_from(t, &PyFrozenSet_Type, args.positional.empty() ? t.heap.tuple({}) : args.positional[0]);
  else if (base == &PyLong_Type || base == &PyFloat_Type || base == &PyUnicode_Type || base == &PyBytes_Type)
    payload = plain_payload(t, base, args);
  if (payload && type == payload->type) return payload;
  if (payload) {
    InstanceValue* v = make_instance(t.heap, type);
    v->payload = payload;
    return v;
  }
  auto* callable = reinterpret_cast<PyObject*>(type);
  if (type == base && is_torch_c_function(callable) && t.frontend().is_pure_without_tensors(callable)) {
    Arguments plain = args;
    for (Value*& v : plain.positional) v = specialised(t.heap, v);
    return t.calls.plain(callable, plain);
  }
  graph_break(Reason::unknown_callable, std::string("class ") + type->tp_name);
}

Value* standard_construct(Tracer& t, Value* type_value, PyTypeObject* type, const Arguments& args) {
  const guards::SourceId source = t.facts.source_of(type_value);
  const Found maker = look_up(t.shadows, type, source, interned("__new__"));
  Value* object;
  const bool python_new = maker.object && !PyCFunction_Check(maker.object);
  if (python_new) {
    Value* function = bind(t, maker, nullptr, type, type_value);
    Unresumable guard(t.stack);
    object = t.call(function, with_first(type_value, args));
  } else {
    Unresumable guard(t.stack);
    object = builtin_new(t, type, args);
  }
  PyTypeObject* made = t.facts.type_of(object);
  if (!PyType_IsSubtype(made, type)) return object;
  const Found init = made == type ? look_up(t.shadows, type, source, interned("__init__"))
                                  : look_up(t.shadows, object, interned("__init__"));
  if (is_object_slot(init.object, "__init__")) {
    if (!python_new && builtin_base(type) == &PyBaseObject_Type && !(args.positional.empty() && args.keywords.empty()))
      t.errors.raise_new(PyExc_TypeError, std::string(type->tp_name) + "() takes no arguments");
    return object;
  }
  run_init(t, object, init, made, args);
  return object;
}

namespace {

Value* call_type_with_own_errors(Tracer& t, Value* type_value, const Arguments& args) {
  PyTypeObject* type = t.facts.known_type(type_value);
  if (CFunction row = find_c_function(reinterpret_cast<PyObject*>(type))) {
    Unresumable guard(t.stack);
    return row(t, args);
  }
  if (is_numpy_scalar_type(type) && runs_concretely(reinterpret_cast<PyObject*>(type)))
    return call_numpy(t, reinterpret_cast<PyObject*>(type), args);
  PyTypeObject* meta = Py_TYPE(type);
  if (meta != &PyType_Type) {
    const Found call = look_up(t.shadows, meta, t.facts.type_source(type_value), interned("__call__"));
    if (call.object && Py_TYPE(call.object) != &PyWrapperDescr_Type)
      return t.call(bind(t, call, type_value, meta, nullptr), args);
    if (call.object && reinterpret_cast<PyDescrObject*>(call.object)->d_type != &PyType_Type)
      graph_break(Reason::unknown_callable, std::string("class ") + type->tp_name);
  }
  if (PyType_IsSubtype(type, &PyType_Type))
    graph_break(Reason::made_in_trace, std::string("a class made by ") + type->tp_name);
  return standard_construct(t, type_value, type, args);
}

}  // namespace

Value* call_type(Tracer& t, Value* type_value, const Arguments& args) {
  return with_cpython_errors(
      t.numbers, [&] { return CCall{real_type(type_value), args}; },
      [&] { return call_type_with_own_errors(t, type_value, args); });
}

}  // namespace framejit::frame_hook
