// frame_hook/trace/types/slots.cpp — slot wrappers of builtin classes, called as methods: super().__setattr__(...),
// dict.__getitem__(self, key), function.__get__(...). They act on the shadow and never look at overrides.
#include "frame_hook/trace/protocol/attributes.h"
#include "frame_hook/trace/protocol/construct.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/exception_members.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook {

namespace {

using Slot = Value* (*)(Tracer& t, PyTypeObject* owner, const Arguments& args);

// Checks for self and this many more arguments, counted as slot wrappers count them.
void takes(Errors& errors, const Arguments& args, const char* name, size_t wanted) {
  if (!args.keywords.empty())
    errors.raise_new(PyExc_TypeError, std::string("wrapper ") + name + "() takes no keyword arguments");
  if (args.positional.size() == wanted + 1) return;
  errors.raise_new(PyExc_TypeError, "expected " + std::to_string(wanted) + " argument" + (wanted == 1 ? "" : "s") +
                                        ", got " + std::to_string(args.positional.size() - 1));
}

PyObject* name_argument(Shadows& shadows, const Arguments& args) {
  only_positional(shadows.errors, args, "attribute access", 2, 3);
  Value* name = payload_of(args.positional[1]);
  if (name->kind != ValueKind::object || !PyUnicode_CheckExact(name->object.get()))
    shadows.errors.raise_new(PyExc_TypeError, "attribute name must be string");
  return interned(exact_text(constant_of(shadows, name)));
}

Value* not_implemented(Heap& heap) { return heap.constant_value(Py_NotImplemented); }

// BaseException.__init__() takes no keywords; some subclasses do.
void init_exception(Errors& errors, PyTypeObject* owner, Value* self, const Arguments& rest) {
  auto is_class = [&](PyObject* of) { return PyType_IsSubtype(owner, reinterpret_cast<PyTypeObject*>(of)); };
  const bool named = takes_keyword(owner, "name");
  if (!rest.keywords.empty() && !named)
    errors.raise_new(PyExc_TypeError,
                     std::string(errors.heap.facts.type_of(self)->tp_name) + "() takes no keyword arguments");
  for (const auto& [name, v] : rest.keywords) {
    if (takes_keyword(owner, text_of(name))) continue;
    errors.raise_new(PyExc_TypeError, std::string("'") + exact_text(name) + "' is an invalid keyword argument for " +
                                          owner->tp_name + "()");
  }
  if (self->kind != ValueKind::instance) graph_break(Reason::unsupported_operand, "__init__() of " + describe(self));
  if (self->object) graph_break(Reason::exception_state, "__init__() of an existing exception");
  // A subclass of OSError with its own __new__ took its arguments there.
  const auto* os_error = reinterpret_cast<PyTypeObject*>(PyExc_OSError);
  if (is_class(PyExc_OSError) && (self->type->tp_init == os_error->tp_init || self->type->tp_new != os_error->tp_new))
    return;
  refuse_parsed_arguments(owner, rest.positional.size());
  initialise_exception(errors.heap, owner, as<InstanceValue>(self), rest);
}

// object.__init__() takes no arguments if the class has no __new__ of its own, or has an __init__.
void init_object(Errors& errors, PyTypeObject* type, const Arguments& rest) {
  if (rest.positional.empty() && rest.keywords.empty()) return;
  if (type->tp_init != PyBaseObject_Type.tp_init)
    errors.raise_new(PyExc_TypeError, "object.__init__() takes exactly one argument (the instance to initialize)");
  if (type->tp_new == PyBaseObject_Type.tp_new)
    errors.raise_new(PyExc_TypeError, std::string(type->tp_name) +
                                          ".__init__() takes exactly one argument (the instance to initialize)");
}

Value* slot_init(Tracer& t, PyTypeObject* owner, const Arguments& args) {
  Value* self = args.positional[0];
  Arguments rest{{args.positional.begin() + 1, args.positional.end()}, args.keywords};
  if (is_exception_type(owner)) return init_exception(t.errors, owner, self, rest), t.heap.none();
  if (owner == &PyBaseObject_Type) return init_object(t.errors, t.facts.type_of(self), rest), t.heap.none();
  const auto is_of_class = [&](const auto& keyword) {  // a descriptor would hide the entry of the dict
    return _PyType_Lookup(t.facts.type_of(self), interned(exact_text(keyword.first))) != nullptr;
  };
  if (is_known(owner, KnownType::name_space) && rest.positional.empty() &&
      std::none_of(rest.keywords.begin(), rest.keywords.end(), is_of_class)) {
    for (const auto& [name, v] : rest.keywords) generic_set_attribute(t, self, interned(exact_text(name)), v);
    return t.heap.none();
  }
  if (is_known(owner, KnownType::default_dict)) {
    if (!rest.positional.empty()) {
      if (!is_none(t.facts, rest.positional[0]) && !unchanged_type_of(t.facts, rest.positional[0])->tp_call)
        t.errors.raise_new(PyExc_TypeError, "first argument must be callable or None");
      as<InstanceValue>(self)->attrs.emplace_back(PyRef::borrow(interned("default_factory")), rest.positional[0]);
      rest.positional.erase(rest.positional.begin());
    }
  }
  if (DictValue* dict = dict_of(self)) {
    only_positional(t.errors, Arguments{rest.positional, {}}, "dict", 0, 1);
    if (!rest.positional.empty()) update_mapping(t, self, rest.positional[0]);
    for (const auto& [name, v] : rest.keywords) t.dicts.set(dict, t.heap.constant_value(name), v);
  } else if (ListValue* list = owner == &PyList_Type ? list_of(self) : nullptr) {
    only_positional(t.errors, rest, "list", 0, 1);
    t.shadows.load(list);
    will_mutate(t.shadows, list);
    list->items.clear();
    if (!rest.positional.empty()) list_extend(t, list, rest.positional[0]);
  } else if (SetValue* set = set_of(self); set && set->type == &PySet_Type) {
    if (!rest.keywords.empty()) only_positional(t.errors, rest, "set", 0, 1);
    only_positional(t.errors, rest, t.facts.type_of(self)->tp_name, 0, 1);
    t.shadows.load(set);
    will_mutate(t.shadows, set);
    ++set->removals;
    set->items.clear();
    set->order = make_set(t.dicts, &PySet_Type, {})->order;
    if (!rest.positional.empty()) set_update(t, set, rest.positional[0]);
  } else {
    graph_break(Reason::unknown_callable, std::string(owner->tp_name) + ".__init__");
  }
  return t.heap.none();
}

Value* slot_getattribute(Tracer& t, PyTypeObject* owner, const Arguments& args) {
  PyObject* name = name_argument(t.shadows, args);
  Value* self = args.positional[0];
  Value* found = owner == &PyType_Type         ? type_attribute(t, self, name)
                 : owner == &PyBaseObject_Type ? generic_attribute(t, self, name)
                                               : attribute_or_null(t, self, name);
  if (found) return found;
  t.errors.raise_new(PyExc_AttributeError,
                     "'" + class_of_missing(self->type, name) + "' object has no attribute '" + exact_text(name) + "'");
}

Value* slot_setattr(Tracer& t, PyTypeObject*, const Arguments& args) {
  PyObject* name = name_argument(t.shadows, args);
  if (args.positional.size() != 3) t.errors.raise_new(PyExc_TypeError, "expected 2 arguments");
  generic_set_attribute(t, args.positional[0], name, args.positional[2]);
  return t.heap.none();
}

Value* slot_delattr(Tracer& t, PyTypeObject*, const Arguments& args) {
  generic_set_attribute(t, args.positional[0], name_argument(t.shadows, args), nullptr);
  return t.heap.none();
}

Value* slot_getitem(Tracer& t, PyTypeObject*, const Arguments& args) {
  takes(t.errors, args, "__getitem__", 1);
  return raw_get_item(t, args.positional[0], args.positional[1]);
}

Value* slot_setitem(Tracer& t, PyTypeObject*, const Arguments& args) {
  takes(t.errors, args, "__setitem__", 2);
  raw_set_item(t, args.positional[0], args.positional[1], args.positional[2]);
  return t.heap.none();
}

Value* slot_delitem(Tracer& t, PyTypeObject*, const Arguments& args) {
  takes(t.errors, args, "__delitem__", 1);
  raw_delete_item(t, args.positional[0], args.positional[1]);
  return t.heap.none();
}

Value* slot_len(Dicts& dicts, PyTypeObject*, const Arguments& args) {
  takes(dicts.errors, args, "__len__", 0);
  auto n = raw_length(dicts, args.positional[0]);
  return n ? dicts.heap.integer(*n) : nullptr;
}

Value* slot_iter(Tracer& t, PyTypeObject*, const Arguments& args) {
  takes(t.errors, args, "__iter__", 0);
  return raw_iterate(t, args.positional[0]);
}

Value* slot_next(Tracer& t, PyTypeObject*, const Arguments& args) {
  takes(t.errors, args, "__next__", 0);
  return rows::builtin_next(t, Arguments{{args.positional[0]}, {}});
}

Value* slot_reversed(Tracer& t, PyTypeObject*, const Arguments& args) {
  takes(t.errors, args, "__reversed__", 0);
  return rows::builtin_reversed(t, Arguments{{payload_of(args.positional[0])}, {}});
}

Value* slot_contains(Tracer& t, PyTypeObject*, const Arguments& args) {
  takes(t.errors, args, "__contains__", 1);
  return t.heap.boolean(raw_contains(t, args.positional[0], args.positional[1]));
}

// What a slot that is called by name returns or raises itself: NotImplemented (where an operator would ask the other
// operand), or its error. Null: neither; the protocol knows the answer.
Value* refusal_of_slot(OpenNumbers& numbers, PyTypeObject* owner, const char* name, const Arguments& args) {
  PyObject* slot = _PyType_Lookup(owner, interned(name));
  if (!slot) return nullptr;
  StandIns stand_ins(numbers, false);
  const StandIns::Answer answer = stand_ins.ask(slot, args);
  if (answer.is_not_implemented()) return not_implemented(numbers.shadows.heap);
  if (answer.kind == StandIns::Answer::Kind::raised && stand_ins.is_exact()) {
    InstanceValue* traced_error = stand_ins.traced_error(answer.object.get());
    if (!traced_error) graph_break(Reason::unknown_callable, name_of_callable(slot));
    numbers.shadows.errors.forget_own_error(traced_error);
    numbers.shadows.errors.raise(traced_error);
  }
  if (answer.kind != StandIns::Answer::Kind::unknown) return nullptr;
  // Code of the program is involved, and the operator might ask another method first.
  for (Value* v : args.positional)
    if (v->kind == ValueKind::instance && payload_of(v) == v)
      graph_break(Reason::unknown_callable, name_of_callable(slot) + " on " + describe(v));
  return nullptr;
}

Value* equality_slot(Tracer& t, PyTypeObject* owner, Value* a, Value* b, int op) {
  Value *left = payload_of(a), *right = payload_of(b);
  if (left->kind == ValueKind::object && right->kind == ValueKind::object && t.heap.is_constant(left) &&
      t.heap.is_constant(right) && owner->tp_richcompare)
    return t.errors.constant_steal(
        owner->tp_richcompare(constant_of(t.shadows, left), constant_of(t.shadows, right), op));
  const char* const name = op == Py_EQ ? "__eq__" : "__ne__";
  if (Value* refused = refusal_of_slot(t.numbers, owner, name, Arguments{{a, b}, {}})) return refused;
  const bool sets = set_of(left) && set_of(right);
  if (left->kind != right->kind || (left->type != right->type && !sets))
    graph_break(Reason::unsupported_operand,
                std::string(owner->tp_name) + "." + name + "() of " + describe(a) + " and " + describe(b));
  const auto equal = raw_equal(t, a, b);
  return equal ? t.heap.boolean(*equal == (op == Py_EQ)) : not_implemented(t.heap);
}

Value* slot_eq(Tracer& t, PyTypeObject* owner, const Arguments& args) {
  takes(t.errors, args, "__eq__", 1);
  Value *a = args.positional[0], *b = args.positional[1];
  if (owner == &PyBaseObject_Type) return same_object(t.shadows, a, b) ? t.heap.boolean(true) : not_implemented(t.heap);
  return equality_slot(t, owner, a, b, Py_EQ);
}

Value* slot_ne(Tracer& t, PyTypeObject* owner, const Arguments& args) {
  takes(t.errors, args, "__ne__", 1);
  Value *a = args.positional[0], *b = args.positional[1];
  if (owner != &PyBaseObject_Type) return equality_slot(t, owner, a, b, Py_NE);
  Value* method = t.lookup_special(a, "__eq__");
  Value* equal = method ? t.call(method, {b}) : not_implemented(t.heap);
  return is_not_implemented(equal) ? equal : t.heap.boolean(!t.truth(equal));
}

Value* slot_hash(Shadows& shadows, PyTypeObject* owner, const Arguments& args) {
  takes(shadows.errors, args, "__hash__", 0);
  Value* self = owner == &PyBaseObject_Type ? args.positional[0] : without_symbols(shadows, args.positional[0]);
  if (owner == &PyBaseObject_Type || !shadows.heap.is_constant(self))
    graph_break(Reason::unsupported_key, "the hash of " + describe(self));
  const Py_hash_t h = PyObject_Hash(constant_of(shadows, self));
  if (h == -1 && PyErr_Occurred()) shadows.errors.raise_pending();
  return shadows.heap.integer(h);
}

Value* slot_str(Tracer& t, PyTypeObject* owner, const Arguments& args) {
  takes(t.errors, args, "__str__", 0);
  Value* self = args.positional[0];
  if (owner == &PyBaseObject_Type) return t.to_repr(self);
  if (is_exception_type(owner)) return t.to_string(self);
  return t.to_string(payload_of(self));
}

Value* slot_repr(Tracer& t, PyTypeObject* owner, const Arguments& args) {
  takes(t.errors, args, "__repr__", 0);
  Value* self = args.positional[0];
  if (owner == &PyBaseObject_Type)
    graph_break(Reason::memory_address, "the address in the repr of " + describe(self));
  return t.to_repr(is_exception_type(owner) ? self : payload_of(self));
}

Value* slot_call(Tracer& t, PyTypeObject* owner, const Arguments& args) {
  Value* self = args.positional[0];
  Arguments rest{{args.positional.begin() + 1, args.positional.end()}, args.keywords};
  if (self->object && PyWeakref_CheckRef(self->object.get())) return call_weak_reference(t.drops, self, rest);
  if (owner == &PyType_Type) return standard_construct(t, self, t.facts.known_type(self), rest);
  return t.call(self, rest);
}

Value* slot_get(Tracer& t, PyTypeObject* owner, const Arguments& args) {
  only_positional(t.errors, args, "__get__", 2, 3);
  Value *self = args.positional[0], *object = args.positional[1];
  const bool unbound = is_none(t.facts, object);
  if (unbound && (args.positional.size() == 2 || is_none(t.facts, args.positional[2])))
    t.errors.raise_new(PyExc_TypeError, "__get__(None, None) is invalid");
  if (owner == &PyFunction_Type) return unbound ? self : make_method(t.heap, self, object);
  if (!self->object) return nullptr;
  t.facts.guard_identity(self);
  return bind(t, Found{self->object.get(), t.facts.source_of(self)}, unbound ? nullptr : object,
              unbound ? nullptr : t.facts.type_of(object), args.positional.size() == 3 ? args.positional[2] : nullptr);
}

const std::unordered_map<std::string_view, Slot>& slots() {
  static const auto* const table =
      new std::unordered_map<std::string_view, Slot>{{"__init__", slot_init},
                                                     {"__getattribute__", slot_getattribute},
                                                     {"__setattr__", slot_setattr},
                                                     {"__delattr__", slot_delattr},
                                                     {"__getitem__", slot_getitem},
                                                     {"__setitem__", slot_setitem},
                                                     {"__delitem__", slot_delitem},
                                                     {"__len__", on_part<slot_len>},
                                                     {"__iter__", slot_iter},
                                                     {"__next__", slot_next},
                                                     {"__reversed__", slot_reversed},
                                                     {"__contains__", slot_contains},
                                                     {"__eq__", slot_eq},
                                                     {"__ne__", slot_ne},
                                                     {"__hash__", on_part<slot_hash>},
                                                     {"__str__", slot_str},
                                                     {"__repr__", slot_repr},
                                                     {"__call__", slot_call},
                                                     {"__get__", slot_get}};
  return *table;
}

enum class Form : uint8_t { plain, reflected, in_place };
struct BinaryMethod {
  BinaryOp op;
  Form form;
};

std::optional<BinaryMethod> find_binary(std::string_view special) {
  for (int i = 0; i < kBinaryOps; ++i) {
    const auto op = static_cast<BinaryOp>(i);
    const BinaryNames& names = names_of(op);
    if (special == names.special) return BinaryMethod{op, Form::plain};
    if (special == names.reflected) return BinaryMethod{op, Form::reflected};
    if (special == names.in_place) return BinaryMethod{op, Form::in_place};
  }
  return std::nullopt;
}

// Binary operators and comparisons on what the instances hold.
Value* operator_slot(Tracer& t, PyTypeObject* owner, std::string_view name, const Arguments& args) {
  const std::optional<BinaryMethod> binary = find_binary(name);
  const auto* const compared = std::ranges::find(kComparisonNames, name, &ComparisonNames::special);
  if (!binary && compared == std::end(kComparisonNames)) return nullptr;
  PyObject* slot = _PyType_Lookup(owner, interned(std::string(name)));
  if (args.positional.size() != 2 || !args.keywords.empty()) {
    if (all_plain(t.shadows, args)) return slot ? t.calls.plain(slot, args) : nullptr;
    if (args.positional.size() == 3) return nullptr;
    raise_as_cpython(t.numbers, PyExc_TypeError, "expected 1 argument", CCall{slot, args});
  }
  Value *a = payload_of(args.positional[0]), *b = payload_of(args.positional[1]);
  const bool is_of_subclass = owner != a->type && args.positional[0] != a;  // in C: OrderedDict, torch.Size
  if (slot && !is_of_subclass && is_plain(t.shadows, a) && is_plain(t.shadows, b))
    return t.calls.plain(slot, Arguments{{a, b}, {}});
  const bool repeats =
      binary && binary->op == BinaryOp::multiply && is_int(b);  // the result may be too long for a stand-in
  if (!repeats)
    if (Value* refused = refusal_of_slot(t.numbers, owner, std::string(name).c_str(), args)) return refused;
  if (owner != a->type) refuse_unknown_arithmetic(args.positional[0], std::string(name).c_str());
  if (is_of_subclass && owner != &PyBaseObject_Type) {
    if (args.positional[0]->type != owner)
      graph_break(Reason::unknown_callable, name_of_callable(slot) + " of " + describe(args.positional[0]));
    a = args.positional[0];
  }
  if (!binary) return t.compare(static_cast<int>(compared - std::begin(kComparisonNames)), a, b);
  const auto [op, form] = *binary;
  if (form == Form::reflected) return t.binary_operator(op, b, a);
  if (form == Form::plain) return t.binary_operator(op, a, b);
  if (op == BinaryOp::add && list_of(a)) {
    list_extend(t, list_of(a), args.positional[1]);  // which asks its __iter__
    return args.positional[0];
  }
  Value* result = t.binary_operator(op, a, b, /*in_place=*/true);
  return result == a ? args.positional[0] : result;
}

}  // namespace

Value* call_slot(Tracer& t, PyTypeObject* owner, std::string_view name, const Arguments& args) {
  if (args.positional.empty() || name.substr(0, 2) != "__" || args.positional[0]->kind == ValueKind::tensor)
    return nullptr;
  t.facts.type_of(args.positional[0]);
  if (auto it = slots().find(name); it != slots().end()) return it->second(t, owner, args);
  return operator_slot(t, owner, name, args);
}

}  // namespace framejit::frame_hook
