// frame_hook/trace/protocol/stand_ins.cpp — stand-ins for traced values, and errors with CPython's own texts.
#include "frame_hook/trace/protocol/stand_ins.h"

#include <algorithm>

#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/protocol/own_dict.h"
#include "frame_hook/trace/values/c_packages.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/exception_members.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

namespace {

constexpr size_t kMostObjects = 4000;

thread_local bool was_called = false;

PyObject* say_called(PyObject*, PyObject*, PyObject*) {
  was_called = true;
  static PyObject* const error = PyErr_NewException("framejit.NotKnown", PyExc_BaseException, nullptr);
  PyErr_SetNone(error);
  return nullptr;
}

PyObject* say_not_implemented(PyObject*, PyObject*, PyObject*) { return Py_NewRef(Py_NotImplemented); }

PyObject* method_of(PyCFunctionWithKeywords function) {
  static PyMethodDef called{"called", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(say_called)),
                            METH_VARARGS | METH_KEYWORDS, nullptr};
  static PyMethodDef declines{"declines",
                              reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(say_not_implemented)),
                              METH_VARARGS | METH_KEYWORDS, nullptr};
  static PyObject* const calls = PyCFunction_New(&called, nullptr);
  static PyObject* const refuses = PyCFunction_New(&declines, nullptr);
  return function == say_called ? calls : refuses;
}

// Methods that make or end a class or its instances, and names that a class statement writes.
bool belongs_to_the_class(std::string_view name) {
  static constexpr std::string_view kNames[] = {"__new__",
                                                "__init__",
                                                "__del__",
                                                "__slots__",
                                                "__dict__",
                                                "__weakref__",
                                                "__module__",
                                                "__doc__",
                                                "__qualname__",
                                                "__init_subclass__",
                                                "__class_getitem__",
                                                "__subclasshook__",
                                                "__set_name__",
                                                "__annotations__",
                                                "__abstractmethods__",
                                                "__class__",
                                                "__getattribute__",
                                                "__mro_entries__",
                                                "__match_args__",
                                                "__orig_bases__",
                                                "__parameters__",
                                                "__classcell__",
                                                "__static_attributes__",
                                                "__firstlineno__"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

PyRef dict_of_class(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyRef::steal(PyType_GetDict(type));
#else
  return PyRef::borrow(type->tp_dict);
#endif
}

bool is_program_class(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE);
}

PyRef new_class(const char* name, PyTypeObject* base, PyObject* members) {
  return PyRef::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(O)O", name, base, members));
}

PyRef call_tp_new(PyTypeObject* base, PyObject* type, PyObject* arguments) {
  return PyRef::steal(base->tp_new(reinterpret_cast<PyTypeObject*>(type), arguments, nullptr));
}

}  // namespace

PyRef StandIns::class_like(PyTypeObject* type, PyTypeObject* base) {
  if (auto known = classes_.find(type); known != classes_.end()) return known->second;
  PyRef members = PyRef::steal(PyDict_New());
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i) {
    auto* owner = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (PyType_IsSubtype(base, owner)) continue;
    const PyRef dict = dict_of_class(owner);
    PyObject *name, *member;
    for (Py_ssize_t position = 0; dict && PyDict_Next(dict.get(), &position, &name, &member);) {
      if (!PyUnicode_CheckExact(name) || PyDict_Contains(members.get(), name)) continue;
      const std::string_view text = text_of(name);
      if (belongs_to_the_class(text)) continue;
      const bool declines = std::find(declined_.begin(), declined_.end(), text) != declined_.end();
      PyObject* stands = member == Py_None ? Py_None : method_of(declines ? say_not_implemented : say_called);
      if (PyDict_SetItem(members.get(), name, stands) < 0) return {};
    }
  }
  if (is_program_class(type)) {
    const PyRef qualified = PyRef::steal(PyType_GetQualName(type));
    if (!qualified || PyDict_SetItemString(members.get(), "__qualname__", qualified.get()) < 0) return {};
  }
  bool has_dict = type->tp_dictoffset != 0;
#ifdef Py_TPFLAGS_MANAGED_DICT
  has_dict = has_dict || (type->tp_flags & Py_TPFLAGS_MANAGED_DICT);
#endif
  const PyRef nothing = PyRef::steal(PyTuple_New(0));
  if (!has_dict && PyDict_SetItemString(members.get(), "__slots__", nothing.get()) < 0) return {};
  for (const char* name : {"__repr__", "__str__"})  // their result shows an address
    if (PyDict_SetItemString(members.get(), name, method_of(say_called)) < 0) return {};
  PyRef made = new_class(type->tp_name, base, members.get());
  if (made && base == &PyBaseObject_Type) {  // C code also asks whether a class has these slots at all
    auto* like = reinterpret_cast<PyTypeObject*>(made.get());
    if (!type->tp_as_number) like->tp_as_number = nullptr;
    if (!type->tp_as_sequence) like->tp_as_sequence = nullptr;
    if (!type->tp_as_mapping) like->tp_as_mapping = nullptr;
  }
  if (made) classes_.emplace(type, made);
  return made;
}

PyRef StandIns::named(PyTypeObject* type) {
  const PyRef like = class_like(type, &PyBaseObject_Type), nothing = PyRef::steal(PyTuple_New(0));
  return like ? call_tp_new(&PyBaseObject_Type, like.get(), nothing.get()) : PyRef();
}

// An object whose class has every special method.
PyRef StandIns::unread() {
  if (!unread_class_) {
    PyRef members = PyRef::steal(PyDict_New());
    for (PyTypeObject* type : {&PyLong_Type, &PyList_Type, &PyDict_Type, &PySet_Type, &PyListIter_Type, &PyFloat_Type,
                               &PyComplex_Type, &PyFunction_Type}) {
      const PyRef dict = dict_of_class(type);
      PyObject *name, *member;
      for (Py_ssize_t position = 0; dict && PyDict_Next(dict.get(), &position, &name, &member);)
        if (!belongs_to_the_class(text_of(name))) PyDict_SetItem(members.get(), name, method_of(say_called));
    }
    for (const char* name : {"__getattr__", "__index__", "__fspath__", "__bytes__", "__enter__", "__exit__"})
      PyDict_SetItemString(members.get(), name, method_of(say_called));
    PyObject* const by_identity = _PyType_Lookup(&PyBaseObject_Type, interned("__hash__"));  // it may be a key
    PyDict_SetItemString(members.get(), "__hash__", by_identity);
    unread_class_ = new_class("framejit.Unread", &PyBaseObject_Type, members.get());
  }
  const PyRef nothing = PyRef::steal(PyTuple_New(0));
  return unread_class_ ? call_tp_new(&PyBaseObject_Type, unread_class_.get(), nothing.get()) : PyRef();
}

PyObject* StandIns::keep(Value* v, PyRef made) {
  if (!made) return drop_error(), nullptr;
  values_.emplace(made.get(), v);
  return made_.insert_or_assign(v, std::move(made)).first->second.get();
}

PyObject* StandIns::of(Value* v) {
  if (auto known = made_.find(v); known != made_.end()) return known->second.get();
  if (made_.size() >= kMostObjects) return nullptr;
  return keep(v, make(v));
}

PyRef StandIns::tuple_of(const std::vector<Value*>& items) {
  PyRef made = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  for (size_t i = 0; i < items.size(); ++i) {
    const PyRef item = items[i] ? PyRef::borrow(of(items[i])) : unread();
    if (!item) return {};
    PyTuple_SET_ITEM(made.get(), i, Py_NewRef(item.get()));
  }
  return made;
}

bool StandIns::fill_list(PyObject* list, Value* v) {
  auto* from = as<ListValue>(v);
  std::vector<Value*> items = from->items;
  if (!from->loaded && from->object && PyList_Check(from->object.get()))
    items.resize(std::min<size_t>(PyList_GET_SIZE(from->object.get()), 8), nullptr);
  const PyRef parts = tuple_of(items);
  return parts && PyList_SetSlice(list, 0, 0, parts.get()) == 0;
}

bool StandIns::fill_dict(PyObject* target, PyTypeObject* base, DictValue* v) {
  const auto put = [&](PyObject* key, PyObject* value) {
    if (!key || !value) return false;
    if (base == &PyDict_Type) return PyDict_SetItem(target, key, value) == 0;
    return base->tp_as_mapping->mp_ass_subscript(target, key, value) == 0;
  };
  if (!v->loaded && v->object && PyDict_Check(v->object.get())) {
    for (Py_ssize_t i = 0; i < std::min<Py_ssize_t>(PyDict_GET_SIZE(v->object.get()), 3); ++i)
      if (!put(unread().get(), Py_None)) return false;
    return true;
  }
  for (const DictEntry& e : v->entries)
    if (!put(of(e.key), e.value ? of(e.value) : unread().get())) return false;
  return true;
}

bool StandIns::fill_set(PyObject* target, SetValue* v) {
  for (Value* item : v->items)
    if (PyObject* stands = of(item); !stands || PySet_Add(target, stands) < 0) return false;
  return true;
}

PyRef StandIns::make_object(Value* v) {
  PyObject* object = v->object.get();
  if (!object) return {};
  if (numbers_.is_open(v) && !specialises_) return exact_ = false, v->object;
  if (PyType_Check(object)) {
    auto* type = reinterpret_cast<PyTypeObject*>(object);
    if (!is_program_class(type)) return PyRef::borrow(constant_of(shadows_, v));
    if (Py_TYPE(type) != &PyType_Type) return {};
    shadows_.facts.guard_identity(v);
    return class_like(type, builtin_base(type));
  }
  if (shadows_.heap.is_constant(v) && !is_program_class(Py_TYPE(object)))
    return PyRef::borrow(constant_of(shadows_, v));
  if (is_known(v->type, KnownType::deque)) {
    const PyRef nothing = PyRef::steal(PyTuple_New(0));
    return call_tp_new(v->type, reinterpret_cast<PyObject*>(v->type), nothing.get());
  }
  return builtin_base(v->type) == &PyBaseObject_Type || builtin_base(v->type) == v->type ? named(v->type) : PyRef();
}

PyRef StandIns::make_instance(InstanceValue* v) {
  PyTypeObject* base = builtin_base(v->type);
  Value* payload = v->payload;
  const bool of_exception = is_exception_type(base);
  if (of_exception && payload && payload->kind != ValueKind::tuple) return {};
  const PyRef nothing = PyRef::steal(PyTuple_New(0));
  if (of_exception && !payload) {  // a real one, whose arguments are unread
    exact_ = false;
    const PyRef type = base == v->type ? PyRef::borrow(reinterpret_cast<PyObject*>(base)) : class_like(v->type, base);
    return type ? call_tp_new(base, type.get(), nothing.get()) : PyRef();
  }
  if (!payload && base == v->type && is_known(base, KnownType::deque))
    return call_tp_new(base, reinterpret_cast<PyObject*>(base), nothing.get());
  if (!payload) return base == &PyBaseObject_Type || base == v->type ? named(v->type) : PyRef();
  const PyRef type = base == v->type ? PyRef::borrow(reinterpret_cast<PyObject*>(base)) : class_like(v->type, base);
  if (!type || !base->tp_new) return {};
  if (base == &PyDictProxy_Type) return PyRef::steal(PyDictProxy_New(of(payload)));
  if (payload->kind == ValueKind::dict && PyType_IsSubtype(base, &PyDict_Type)) {
    PyRef made = call_tp_new(base, type.get(), nothing.get());
    const bool has_factory = base != &PyDict_Type && base != &PyODict_Type;
    if (has_factory && PyObject_SetAttrString(made.get(), "default_factory", method_of(say_called)) < 0) return {};
    return made && fill_dict(made.get(), base, as<DictValue>(payload)) ? made : PyRef();
  }
  if (payload->kind == ValueKind::list) {
    PyRef items = PyRef::steal(PyList_New(0)), made = call_tp_new(base, type.get(), nothing.get());
    PyObject* extend = _PyType_Lookup(base, interned("extend"));
    if (!made || !extend || !fill_list(items.get(), payload)) return {};
    const bool done =
        static_cast<bool>(PyRef::steal(PyObject_CallFunctionObjArgs(extend, made.get(), items.get(), nullptr)));
    return done ? made : PyRef();
  }
  if (payload->kind == ValueKind::set) {
    PyRef made = call_tp_new(base, type.get(), nothing.get());
    return made && fill_set(made.get(), as<SetValue>(payload)) ? made : PyRef();
  }
  PyRef arguments;
  if (of_exception) arguments = tuple_of(as<TupleValue>(payload)->items);
  else if (PyObject* one = of(payload)) arguments = PyRef::steal(PyTuple_Pack(1, one));
  if (!arguments) return {};
  PyRef made = call_tp_new(base, type.get(), arguments.get());
  if (made && of_exception && base->tp_init(made.get(), arguments.get(), nullptr) < 0) return {};
  return made;
}

PyRef StandIns::make(Value* v) {
  shadows_.facts.type_of(v);
  switch (v->kind) {
    case ValueKind::object: return make_object(v);
    case ValueKind::sym_int:
      if (specialises_ || as<SymIntValue>(v)->expr.is_constant()) return PyRef::borrow(constant_of(shadows_, v));
      [[fallthrough]];
    case ValueKind::identity: return exact_ = false, PyRef::steal(PyLong_FromLong(1));
    case ValueKind::tuple: return tuple_of(as<TupleValue>(v)->items);
    case ValueKind::list: {
      PyObject* made = keep(v, PyRef::steal(PyList_New(0)));
      return made && fill_list(made, v) ? PyRef::borrow(made) : PyRef();
    }
    case ValueKind::dict: {
      PyObject* made = keep(v, PyRef::steal(PyDict_New()));
      return made && fill_dict(made, &PyDict_Type, as<DictValue>(v)) ? PyRef::borrow(made) : PyRef();
    }
    case ValueKind::set: {
      PyRef made = PyRef::steal(v->type == &PySet_Type ? PySet_New(nullptr) : PyFrozenSet_New(nullptr));
      return made && fill_set(made.get(), as<SetValue>(v)) ? made : PyRef();
    }
    case ValueKind::slice: {
      auto* s = as<SliceValue>(v);
      PyObject *start = of(s->start), *stop = of(s->stop), *step = of(s->step);
      return start && stop && step ? PyRef::steal(PySlice_New(start, stop, step)) : PyRef();
    }
    case ValueKind::view: {
      auto* view = as<ViewValue>(v);
      PyObject* dict = of(view->dict);
      using What = ViewValue::What;
      const char* name = view->what == What::keys ? "keys" : view->what == What::values ? "values" : "items";
      return dict ? PyRef::steal(PyObject_CallMethod(dict, name, nullptr)) : PyRef();
    }
    case ValueKind::instance: return make_instance(as<InstanceValue>(v));
    case ValueKind::tensor:
    case ValueKind::array:
    case ValueKind::cell:
    case ValueKind::function:
    case ValueKind::method:
    case ValueKind::iterator:
    case ValueKind::generator:
    case ValueKind::super: return named(v->type);
    case ValueKind::null: break;
  }
  return {};
}

StandIns::Answer StandIns::ask(PyObject* callable, const Arguments& args) {
  std::vector<PyObject*> given;
  for (Value* v : args.positional) given.push_back(of(v));
  PyRef names = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(args.keywords.size())));
  for (size_t i = 0; i < args.keywords.size(); ++i) {
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(args.keywords[i].first));
    given.push_back(of(args.keywords[i].second));
  }
  Answer answer;
  if (std::find(given.begin(), given.end(), nullptr) != given.end()) return answer;
  const bool has_self = Py_IS_TYPE(callable, &PyMethodDescr_Type) || Py_IS_TYPE(callable, &PyWrapperDescr_Type);
  if (has_self && !args.positional.empty()) {  // a stand-in of another class says nothing about the method
    auto* const owner = reinterpret_cast<PyDescrObject*>(callable)->d_type;
    if (PyType_IsSubtype(args.positional[0]->type, owner) != PyObject_TypeCheck(given[0], owner)) return answer;
  }
  was_called = false;
  PyRef result = PyRef::steal(PyObject_Vectorcall(callable, given.data(), args.positional.size(), names.get()));
  if (!result && error_is_interrupt() && !was_called) {
    keep_error();
    throw Interrupted{};
  }
  PyObject *type = nullptr, *error = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &error, &traceback);
  if (type) PyErr_NormalizeException(&type, &error, &traceback);
  const PyRef owned_type = PyRef::steal(type), owned_traceback = PyRef::steal(traceback);
  PyRef raised = PyRef::steal(error);
  if (was_called) return answer;
  if (!result && (!raised || PyErr_GivenExceptionMatches(type, PyExc_MemoryError) ||
                  PyErr_GivenExceptionMatches(type, PyExc_RecursionError)))
    return answer;
  answer.kind = result ? Answer::Kind::returned : Answer::Kind::raised;
  answer.object = result ? std::move(result) : std::move(raised);
  return answer;
}

Value* StandIns::value_of(PyObject* object) {
  if (auto known = values_.find(object); known != values_.end()) return known->second;
  if (unread_class_ && Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(unread_class_.get())) return nullptr;
  return is_plain(object) || (!is_program_class(Py_TYPE(object)) && has_identity_constant(object))
             ? shadows_.heap.constant_value(object)
             : nullptr;
}

InstanceValue* StandIns::traced_error(PyObject* real) {
  const PyRef args = PyRef::steal(PyObject_GetAttrString(real, "args"));
  if (!args || !PyTuple_CheckExact(args.get())) return drop_error(), nullptr;
  std::vector<Value*> items;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(args.get(), i);
    if (PyUnicode_Check(item) && std::string_view(text_of(item)).find("framejit.Unread") != std::string_view::npos)
      return nullptr;
    items.push_back(value_of(item));
    if (!items.back()) return nullptr;
  }
  InstanceValue* made = shadows_.errors.new_exception(reinterpret_cast<PyObject*>(Py_TYPE(real)), std::move(items));
  const auto value = [&](PyObject* object) { return value_of(object); };
  return copy_error_members(real, made, value) ? made : nullptr;
}

CBoundary::CBoundary(Errors& errors)
    : errors_(errors),
      before_(errors.c_call_frames()),
      is_outermost_(errors.heap.facts.stack.frames().size() > before_) {
  if (is_outermost_) errors_.c_call_frames() = errors.heap.facts.stack.frames().size();
}

CBoundary::~CBoundary() {
  if (is_outermost_) errors_.c_call_frames() = before_;
}

namespace {

// Whether the error already has its whole text, as errors of items and attributes do, whatever the object holds.
bool has_final_text(InstanceValue* exception) {
  const auto* type = exception->type;
  bool has_name = false;
  if (type == reinterpret_cast<PyTypeObject*>(PyExc_AttributeError))
    has_name = find_member(exception, member_descriptor(PyExc_AttributeError, "name")) != nullptr;
  // A KeyError whose key is None or a tuple: CPython would take that for its arguments.
  TupleValue* args = exception->payload ? tuple_of(exception->payload) : nullptr;
  const bool is_odd_key = args && args->items.size() == 1 && args->items[0] &&
                          (args->items[0]->kind == ValueKind::tuple || args->items[0]->object.get() == Py_None);
  if (type == reinterpret_cast<PyTypeObject*>(PyExc_KeyError) && is_odd_key) return false;
  for (PyObject* known : {PyExc_KeyError, PyExc_IndexError, PyExc_StopIteration, PyExc_NameError, PyExc_GeneratorExit})
    if (type == reinterpret_cast<PyTypeObject*>(known)) return true;
  return has_name;
}

bool only_computes(PyTypeObject* type) {
  constexpr CPackage kPackages[] = {CPackage::builtins, CPackage::collections, CPackage::itertools, CPackage::functools,
                                    CPackage::types};
  return has_no_package(type) || std::any_of(std::begin(kPackages), std::end(kPackages),
                                             [&](CPackage package) { return is_of(type, package); });
}

bool is_str(Value* v) {
  v = payload_of(v);
  return v->kind == ValueKind::object && v->object && PyUnicode_Check(v->object.get());
}

// C code that only computes with its arguments, so that it can be called with stand-ins.
bool may_be_asked(const CCall& call) {
  if (!call.callable) return false;
  const bool is_super = call.callable == reinterpret_cast<PyObject*>(&PySuper_Type);
  if (is_super && call.args.positional.empty()) return false;  // it looks at the calling frame
  const bool is_descriptor = Py_IS_TYPE(call.callable, &PyMethodDescr_Type) ||
                             Py_IS_TYPE(call.callable, &PyWrapperDescr_Type) ||
                             Py_IS_TYPE(call.callable, &PyClassMethodDescr_Type);
  if (is_descriptor || PyType_Check(call.callable)) {
    auto* type = is_descriptor ? reinterpret_cast<PyDescrObject*>(call.callable)->d_type
                               : reinterpret_cast<PyTypeObject*>(call.callable);
    return !is_program_class(type) && only_computes(type);
  }
  if (!PyCFunction_Check(call.callable)) return false;
  PyObject *const set = builtin_function("setattr"), *const del = builtin_function("delattr");
  const std::vector<Value*>& given = call.args.positional;
  const bool may_write = given.size() == (call.callable == set ? 3 : 2) && is_str(given[1]);  // it would really write
  if ((call.callable == set || call.callable == del) && may_write && given[0]->kind == ValueKind::object) return false;
  PyObject* const self = PyCFunction_GET_SELF(call.callable);
  if (self && PyType_Check(self)) return !is_program_class(reinterpret_cast<PyTypeObject*>(self));
  return is_function_for(call.callable, kAsked);
}

// The text of a TypeError names only types, so it holds for every number that a symbol may be.
InstanceValue* error_of_types(StandIns stand_ins, const InstanceValue* ours, const CCall& call) {
  PyObject* const type_error = PyExc_TypeError;
  if (ours->type != reinterpret_cast<PyTypeObject*>(type_error)) return nullptr;
  stand_ins.decline(call.declined);
  const StandIns::Answer answer = stand_ins.ask(call.callable, call.args);
  const bool is_raised = answer.kind == StandIns::Answer::Kind::raised;
  return is_raised && Py_IS_TYPE(answer.object.get(), ours->type) ? stand_ins.traced_error(answer.object.get())
                                                                  : nullptr;
}

// Null: CPython's answer is not known.
InstanceValue* exact_error(StandIns stand_ins, const CCall& call) {
  stand_ins.decline(call.declined);
  const StandIns::Answer answer = stand_ins.ask(call.callable, call.args);
  if (answer.kind == StandIns::Answer::Kind::unknown || !stand_ins.is_exact()) return nullptr;
  if (answer.kind == StandIns::Answer::Kind::returned)
    graph_break(Reason::unsupported_operand,
                name_of_callable(call.callable) + ", which raises no error in CPython,");
  return stand_ins.traced_error(answer.object.get());
}

}  // namespace

void take_cpython_error(OpenNumbers& numbers, Value* exception, const CCall& call) {
  if (!numbers.shadows.errors.forget_own_error(exception)) return;
  auto* ours = as<InstanceValue>(exception);
  if (has_final_text(ours) || !may_be_asked(call)) return;
  InstanceValue* traced_error = error_of_types(StandIns(numbers, false), ours, call);
  if (!traced_error) traced_error = exact_error(StandIns(numbers, true), call);
  if (!traced_error) return;
  numbers.shadows.errors.forget_own_error(traced_error);
  ours->type = traced_error->type;
  ours->payload = traced_error->payload;
  ours->members.clear();
  for (const auto& [descriptor, v] : traced_error->members) write_member(ours, descriptor.get(), v);
  for (const auto& [name, v] : traced_error->attrs) write_attribute(ours, exact_text(name.get()), v);
}

void raise_as_cpython(OpenNumbers& numbers, PyObject* type, const std::string& text, const CCall& call) {
  InstanceValue* error = numbers.shadows.errors.new_exception(type, {numbers.shadows.heap.string(text)});
  take_cpython_error(numbers, error, call);
  numbers.shadows.errors.raise(error);
}

void raise_unwritable(OpenNumbers& numbers, Value* v, PyObject* name, Value* to, bool is_in_class) {
  PyRef members = PyRef::steal(PyDict_New());
  const PyRef nothing = PyRef::steal(PyTuple_New(0));
  if (!has_own_dict(numbers.shadows.facts, v)) PyDict_SetItemString(members.get(), "__slots__", nothing.get());
  if (is_in_class) PyDict_SetItem(members.get(), name, Py_None);
  const PyRef like = new_class(v->type->tp_name, &PyBaseObject_Type, members.get());
  const PyRef object = like ? call_tp_new(&PyBaseObject_Type, like.get(), nothing.get()) : PyRef();
  StandIns stand_ins(numbers, true);
  if (object) stand_ins.stands(object, v);
  if (object) PyObject_SetAttr(object.get(), name, to ? Py_None : nullptr);
  PyObject *type = nullptr, *error = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &error, &traceback);
  if (type) PyErr_NormalizeException(&type, &error, &traceback);
  const PyRef owned_type = PyRef::steal(type), owned_traceback = PyRef::steal(traceback), real = PyRef::steal(error);
  InstanceValue* traced_error = real ? stand_ins.traced_error(real.get()) : nullptr;
  if (!traced_error) graph_break(Reason::exception_raised, std::string("an error of a write to ") + text_of(name));
  numbers.shadows.errors.forget_own_error(traced_error);
  numbers.shadows.errors.raise(traced_error);
}

}  // namespace framejit::frame_hook
