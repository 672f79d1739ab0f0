// frame_hook/trace/types/objects.cpp — methods of object, type, exceptions and generators; copy protocol.
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/own_dict.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook::rows {

namespace {

GeneratorValue* self_generator(const Arguments& args, const char* method) {
  if (args.positional.empty() || args.positional[0]->kind != ValueKind::generator)
    graph_break(Reason::real_iterator, args.positional.empty() ? method : describe(args.positional[0]));
  return as<GeneratorValue>(args.positional[0]);
}

[[noreturn]] void stop_iteration(Errors& errors, GeneratorValue* generator) {
  Value* value = generator->return_value;
  if (!is_none(errors.heap.facts, value)) raise_with(errors, PyExc_StopIteration, {value});
  raise_with(errors, PyExc_StopIteration, {});
}

bool has_slots(PyTypeObject* type) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    PyObject* slots = base == &PyBaseObject_Type ? nullptr : _PyType_Lookup(base, interned("__slots__"));
    if (slots && !(PyTuple_Check(slots) && PyTuple_GET_SIZE(slots) == 0) &&
        !(PyList_Check(slots) && PyList_GET_SIZE(slots) == 0))
      return true;
  }
  return false;
}

// State of an instance without slots of its own: its dict, or None if the dict is empty.
Value* default_state(Errors& errors, Value* self) {
  if (self->kind != ValueKind::instance) return errors.heap.none();
  if (has_slots(self->type))
    graph_break(Reason::unsupported_copy, std::string("a copy of an object with slots: ") + self->type->tp_name);
  if (!has_own_dict(errors.heap.facts, self)) return errors.heap.none();
  auto* instance = as<InstanceValue>(self);
  return own_names(errors.heap, instance).empty() ? errors.heap.none() : instance_dict(errors, instance);
}

Value* new_arguments(Tracer& t, Value* self) {
  if (Value* method = python_special(t, self, "__getnewargs_ex__")) {
    (void)method;
    graph_break(Reason::unsupported_copy, "a copy through __getnewargs_ex__");
  }
  if (Value* method = python_special(t, self, "__getnewargs__")) {
    Value* arguments = t.call(method, {});
    if (!tuple_of(arguments))
      t.errors.raise_new(PyExc_TypeError, std::string("__getnewargs__ should return a tuple, not '") +
                                              t.facts.type_of(arguments)->tp_name + "'");
    return arguments;
  }
  Value* payload = payload_of(self);
  if (payload == self || list_of(self) || dict_of(self) || set_of(self)) return t.heap.tuple({});
  return t.heap.tuple({tuple_of(payload) ? t.heap.tuple(t.unpack(payload)) : payload});
}

}  // namespace

Value* object_reduce_ex(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "__reduce_ex__", 2, 2);
  Value* self = args.positional[0];
  if (Value* method = python_special(t, self, "__reduce__")) return t.call(method, {});
  const Found reduce = look_up(t.shadows, self, interned("__reduce__"));
  const bool is_default = reduce.object == _PyType_Lookup(&PyBaseObject_Type, interned("__reduce__"));
  if (!is_default || self->kind != ValueKind::instance || t.as_index(args.positional[1]) < 2 || set_of(self) ||
      (builtin_base(t.facts.type_of(self)) != &PyBaseObject_Type && payload_of(self) == self))
    graph_break(Reason::unsupported_copy, "a copy of " + describe(self));
  Value* get_state = python_special(t, self, "__getstate__");
  Value* state = get_state ? t.call(get_state, {}) : default_state(t.errors, self);
  std::vector<Value*> made = t.unpack(new_arguments(t, self));
  made.insert(made.begin(), t.heap.constant_value(reinterpret_cast<PyObject*>(self->type)));
  Value* items = list_of(self) ? t.iterate(list_of(self)) : t.heap.none();
  Value* pairs = dict_of(self) ? t.iterate(make_view(t.heap, dict_of(self), ViewValue::What::items)) : t.heap.none();
  unreplaced("copyreg", "__newobj__");
  const PyRef copyreg = PyRef::steal(PyImport_GetModule(interned("copyreg")));
  Value* make = copyreg ? t.find_attribute(t.heap.constant_value(copyreg.get()), interned("__newobj__")) : nullptr;
  if (!make) graph_break(Reason::unsupported_copy, "a copy of " + describe(self));
  t.facts.guard_identity(make);  // C code looks it up
  return t.heap.tuple({make, t.heap.tuple(std::move(made)), state, items, pairs});
}

Value* object_reduce(NoPart&, const Arguments& args) {
  graph_break(Reason::unsupported_copy, "the result of __reduce__() of " + describe(args.positional[0]));
}

Value* object_getstate(Errors& errors, const Arguments& args) {
  only_positional(errors, args, "__getstate__", 1, 1);
  return default_state(errors, args.positional[0]);
}

Value* object_format(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "__format__", 2, 2);
  if (!plain_text(t.shadows, args.positional[1], "format spec").empty())
    t.errors.raise_new(PyExc_TypeError, std::string("unsupported format string passed to ") +
                                            t.facts.type_of(args.positional[0])->tp_name + ".__format__");
  return t.to_string(args.positional[0]);
}

Value* type_instancecheck(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "__instancecheck__", 2, 2);
  PyTypeObject* cls = t.facts.known_type(args.positional[0]);
  if (!cls) graph_break(Reason::unsupported_operand, "type.__instancecheck__ of " + describe(args.positional[0]));
  return t.heap.boolean(is_real_instance(t, args.positional[1], cls));
}

Value* type_subclasscheck(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "__subclasscheck__", 2, 2);
  PyTypeObject *cls = t.facts.known_type(args.positional[0]), *sub = t.facts.known_type(args.positional[1]);
  if (!cls) graph_break(Reason::unsupported_operand, "type.__subclasscheck__ of " + describe(args.positional[0]));
  if (!sub) raise_unless_class(t, args.positional[1]);
  return t.heap.boolean(PyType_IsSubtype(sub, cls));
}

Value* type_mro(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "mro", 1, 1);
  return t.heap.list(t.unpack(t.get_attribute(args.positional[0], interned("__mro__"))));
}

Value* exception_with_traceback(Tracer& t, const Arguments& args) {
  t.set_attribute(args.positional[0], interned("__traceback__"), args.positional[1]);
  return args.positional[0];
}

Value* exception_add_note(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "add_note", 2, 2);
  if (!PyType_IsSubtype(t.facts.type_of(args.positional[1]), &PyUnicode_Type))
    t.errors.raise_new(PyExc_TypeError,
                       std::string("note must be a str, not '") + args.positional[1]->type->tp_name + "'");
  Value* notes = t.find_attribute(args.positional[0], interned("__notes__"));
  if (!notes) {
    notes = t.heap.list({});
    t.set_attribute(args.positional[0], interned("__notes__"), notes);
  }
  if (!list_of(notes)) t.errors.raise_new(PyExc_TypeError, "Cannot add note: __notes__ is not a list");
  list_extend(t, list_of(notes), t.heap.tuple({args.positional[1]}));
  return t.heap.none();
}

Value* generator_send(Machine& machine, const Arguments& args) {
  only_positional(machine.errors, args, "send", 2, 2);
  GeneratorValue* generator = self_generator(args, "send");
  if (generator->state == GeneratorValue::State::finished) raise_with(machine.errors, PyExc_StopIteration, {});
  Value* next = machine.resume_generator(generator, args.positional[1], nullptr);
  if (next) return next;
  stop_iteration(machine.errors, generator);
}

Value* generator_throw(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "throw", 2, 4);
  GeneratorValue* generator = self_generator(args, "throw");
  Value* exception = args.positional[1];
  if (real_type(exception)) {
    Value* value = args.positional.size() > 2 ? args.positional[2] : nullptr;
    const bool given = !is_none(t.facts, value);
    exception = given && value->kind == ValueKind::instance ? value
                : given                                     ? t.call(exception, {value})
                                                            : t.call(exception, {});
  }
  auto* const base = reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
  if (exception->kind != ValueKind::instance || !PyType_IsSubtype(t.facts.type_of(exception), base))
    graph_break(Reason::exception_state, "throw() of " + describe(exception));
  if (generator->state == GeneratorValue::State::finished) t.errors.raise(exception);
  Value* next = t.machine.resume_generator(generator, nullptr, exception);
  if (next) return next;
  stop_iteration(t.errors, generator);
}

Value* generator_close(Machine& machine, const Arguments& args) {
  only_positional(machine.errors, args, "close", 1, 1);
  GeneratorValue* generator = self_generator(args, "close");
  if (generator->state != GeneratorValue::State::suspended) {
    generator->state = GeneratorValue::State::finished;
    return machine.errors.heap.none();
  }
  Value* yielded = nullptr;
  try {
    yielded = machine.resume_generator(generator, nullptr, machine.errors.new_exception(PyExc_GeneratorExit, {}));
  } catch (const SymbolicRaise& raised) {
    if (!machine.errors.exception_matches(raised.exception, PyExc_GeneratorExit) &&
        !machine.errors.exception_matches(raised.exception, PyExc_StopIteration))
      throw;
  }
  if (yielded) machine.errors.raise_new(PyExc_RuntimeError, "generator ignored GeneratorExit");
#if PY_VERSION_HEX >= 0x030D0000
  if (generator->return_value) return generator->return_value;
#endif
  return machine.errors.heap.none();
}

}  // namespace framejit::frame_hook::rows
