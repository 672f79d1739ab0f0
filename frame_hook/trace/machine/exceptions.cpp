// frame_hook/trace/machine/exceptions.cpp — exceptions of the traced program: made, raised, matched, handled.
//
// They are instance values whose payload is the tuple of arguments; __context__, __cause__ and the like are attributes.
// None leaves the traced frame: when nobody catches one, tracing stops before the instruction that raised it, and plain
// Python raises it again.
#include "frame_hook/trace/machine/opcode_handlers.h"
#include "frame_hook/trace/protocol/protocol.h"
#include "guards/interrupts.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

namespace {

PyTypeObject* base_exception() { return reinterpret_cast<PyTypeObject*>(PyExc_BaseException); }

}  // namespace

void write_attribute(InstanceValue* v, const char* name, Value* to) {
  PyRef key = PyRef::steal(PyUnicode_InternFromString(name));
  for (auto& [known, value] : v->attrs) {
    if (known.get() != key.get()) continue;
    value = to;
    return;
  }
  v->attrs.emplace_back(std::move(key), to);
}

InstanceValue* Tracer::new_exception(PyObject* type, std::vector<Value*> args) {
  auto* v = heap.make<InstanceValue>(ValueKind::instance, reinterpret_cast<PyTypeObject*>(type));
  v->payload = heap.tuple(std::move(args));
  own_errors_.insert(v);
  return v;
}

// The chain of contexts of what is handled does not lead back to what is raised now.
void Tracer::cut_context(Value* handled, Value* raised) {
  int links = 0;  // a program can make a circle
  for (Value* at = handled; at && at->kind == ValueKind::instance && ++links < 1000;) {
    bool known = false;
    Value* context = as<InstanceValue>(at)->find_attr(interned("__context__"), &known);
    if (context != raised) {
      at = context;
      continue;
    }
    if (at->object) graph_break(Reason::exception_raised, "a context of an exception that is there");
    return write_attribute(as<InstanceValue>(at), "__context__", heap.none());
  }
}

// The exception being handled becomes the context, as in _PyErr_SetObject.
void Tracer::raise(Value* exception) {
  FJ_CHECK(exception->kind == ValueKind::instance, "an exception that is no instance");
  if (exception->object) graph_break(Reason::exception_raised, exception->type->tp_name);
  bool known = true;
  Value* context = stack.handled_exception(&known);
  if (context && context != exception) {
    cut_context(context, exception);
    write_attribute(as<InstanceValue>(exception), "__context__", context);
  }
  throw SymbolicRaise{exception};
}

void Tracer::raise_new(PyObject* type, const std::string& message) {
  raise(new_exception(type, {heap.string(message.c_str())}));
}

void Tracer::raise_of_pure_call() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const bool raised_by_python = traceback != nullptr;
  PyErr_Restore(type, value, traceback);
  if (!raised_by_python) raise_set_error(true);
  keep_error();
  throw Interrupted{};
}

Value* Tracer::constant_steal(PyObject* object) {
  if (!object) raise_of_pure_call();
  PyRef owned = PyRef::steal(object);
  return heap.constant_value(object);
}

void Tracer::raise_pending() { raise_set_error(false); }

// own: as of C code that the trace stands in for, which may say it in other words.
void Tracer::raise_set_error(bool own) {
  FJ_CHECK(PyErr_Occurred(), "a call failed without a Python error");
  if (error_is_interrupt()) {
    keep_error();
    throw Interrupted{};
  }
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const PyRef owned_type = PyRef::steal(type), real = PyRef::steal(value), owned_traceback = PyRef::steal(traceback);
  InstanceValue* exception = exception_of(real.get());
  if (!own) own_errors_.erase(exception);
  bool known = false;
  InstanceValue* first = exception;
  while (Value* before = first->find_attr(interned("__context__"), &known)) first = as<InstanceValue>(before);
  if (first == exception) raise(exception);
  // C code raised it over another one: what is handled is the context of the first.
  if (Value* handled = stack.handled_exception(&known)) write_attribute(first, "__context__", handled);
  throw SymbolicRaise{exception};
}

bool copy_error_members(PyObject* real, InstanceValue* to, const std::function<Value*(PyObject*)>& value) {
  for (const char* name : {"name", "obj", "path", "name_from", "__notes__"}) {
    const bool is_member = _PyType_Lookup(to->type, interned(name)) || std::string_view(name) == "__notes__";
    const PyRef member = PyRef::steal(is_member ? PyObject_GetAttrString(real, name) : nullptr);
    if (!member) drop_error();
    if (!member || member.get() == Py_None) continue;
    Value* v = value(member.get());
    if (!v) return false;
    write_attribute(to, name, v);
  }
  return true;
}

InstanceValue* Tracer::exception_of(PyObject* real) {
  const PyRef args = PyRef::steal(PyObject_GetAttrString(real, "args"));
  if (!args || !PyTuple_CheckExact(args.get())) drop_error();
  InstanceValue* made = new_exception(reinterpret_cast<PyObject*>(Py_TYPE(real)), {});
  if (args && PyTuple_CheckExact(args.get())) made->payload = heap.wrap_result(Py_NewRef(args.get()));
  copy_error_members(real, made, [&](PyObject* object) { return heap.wrap_result(Py_NewRef(object)); });
  const PyRef cause = PyRef::steal(PyException_GetCause(real)), context = PyRef::steal(PyException_GetContext(real)),
              handled = PyRef::steal(PyErr_GetHandledException());
  if (cause) {
    write_attribute(made, "__cause__", exception_of(cause.get()));
    write_attribute(made, "__suppress_context__", heap.boolean(true));
  }
  if (context && context.get() != handled.get() && context.get() != cause.get())
    write_attribute(made, "__context__", exception_of(context.get()));
  return made;
}

bool Tracer::exception_matches(Value* exception, PyObject* type) {
  return PyErr_GivenExceptionMatches(reinterpret_cast<PyObject*>(facts.type_of(exception)), type) != 0;
}

void Tracer::enter_handler(SymbolicFrame& f, Value* exception) {
  const Instruction& i = f.code->instructions[f.position];
  const int unit = std::exchange(f.reraised_unit, -1);
  const ExceptionRange* range = f.code->find_handler(i.opcode_index);
  const auto leave_to_python = [&] {
    const RaisePoint& point = raised_at_.at(exception);
    break_step_ = point.step;
    stop_place_here();
    throw GraphBreak{Reason::exception_raised, exception->type->tp_name};
  };
  try {
    for (size_t depth = range ? static_cast<size_t>(range->depth) : 0; f.stack.size() > depth;) drops(f.pop());
  } catch (const GraphBreak&) {
    leave_to_python();
  }
  if (!range) throw SymbolicRaise{exception};
  bool known = true;
  stack.handled_exception(&known);
  if (!known && !facts.relies_on_nothing_handled())
    leave_to_python();  // its context, and what is handled behind the handler, are the live frame's
  if (range->push_lasti) f.push(heap.integer(unit >= 0 ? unit : i.opcode_index));
  f.push(exception);
  f.position = static_cast<size_t>(range->target_position);
}

// ---- handlers

// exception -- previous exception
Flow OpcodeHandlers::push_exc_info(Tracer& t, SymbolicFrame& f, const Instruction&) {
  bool known = true;
  Value* previous = f.handled.empty() && f.generator ? nullptr : t.stack.handled_exception(&known);
  if (!known && !t.facts.relies_on_nothing_handled())
    graph_break(Reason::exception_state, "a handler that is entered while an exception is handled");
  Value* exception = f.pop();
  f.push(previous ? previous : t.heap.none());
  f.push(exception);
  f.handled.push_back(exception);
  ++f.entered_handlers;
  return Flow::next;
}

// previous --. A handler that was entered before the trace began leaves with what the live stack kept.
Flow OpcodeHandlers::pop_except(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* previous = f.pop();
  if (f.entered_handlers > 0) {
    --f.entered_handlers;
    f.handled.pop_back();
    return Flow::next;
  }
  const bool nothing = previous->kind == ValueKind::null || t.same_object(previous, t.heap.none());
  f.handled.assign(1, nothing ? nullptr : previous);
  return Flow::next;
}

// exception type -- exception bool
Flow OpcodeHandlers::check_exc_match(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* type = f.pop();
  auto is_class = [](PyObject* o) {
    return PyType_Check(o) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(o), base_exception());
  };
  PyObject* object = t.heap.is_constant(type) ? t.constant(type) : nullptr;
  bool legal = object && (is_class(object) || PyTuple_CheckExact(object));
  if (legal && PyTuple_CheckExact(object))
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(object); ++k) legal = legal && is_class(PyTuple_GET_ITEM(object, k));
  if (!legal) t.raise_new(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
  f.push(t.heap.boolean(t.exception_matches(f.top(), object)));
  return Flow::next;
}

// exception --
Flow OpcodeHandlers::reraise(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* exception = f.pop();
  if (i.arg > 0) f.reraised_unit = static_cast<int>(t.as_index(f.top(static_cast<size_t>(i.arg) - 1)));
  if (exception->object) graph_break(Reason::exception_raised, exception->type->tp_name);
  throw SymbolicRaise{exception};
}

// An instance: classes are called.
Value* OpcodeHandlers::as_exception(Tracer& t, Value* v, const char* error) {
  if (v->kind == ValueKind::object && PyType_Check(v->object.get()) &&
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(v->object.get()), base_exception()))
    v = t.call(v, {});
  if (v->kind != ValueKind::instance || !PyType_IsSubtype(t.facts.type_of(v), base_exception()))
    t.raise_new(PyExc_TypeError, error);
  return v;
}

// [exception] [cause] --
Flow OpcodeHandlers::raise_varargs(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  if (i.arg == 0) {
    bool known = true;
    Value* exception = t.stack.handled_exception(&known);
    if (!known) graph_break(Reason::exception_state, "the exception that was being handled when tracing began");
    if (!exception) t.raise_new(PyExc_RuntimeError, "No active exception to reraise");
    if (exception->object) graph_break(Reason::exception_raised, exception->type->tp_name);
    throw SymbolicRaise{exception};
  }
  Value* cause = i.arg == 2 ? f.pop() : nullptr;
  Value* exception = as_exception(t, f.pop(), "exceptions must derive from BaseException");
  if (cause) {
    const bool none = t.same_object(cause, t.heap.none());
    if (!none) cause = as_exception(t, cause, "exception causes must derive from BaseException");
    write_attribute(as<InstanceValue>(exception), "__cause__", cause);
    write_attribute(as<InstanceValue>(exception), "__suppress_context__", t.heap.boolean(true));
  }
  t.raise(exception);
}

InstanceValue* Tracer::error_of_generator(Value* stop) {
  InstanceValue* error = new_exception(PyExc_RuntimeError, {heap.string("generator raised StopIteration")});
  write_attribute(error, "__cause__", stop);
  write_attribute(error, "__context__", stop);
  write_attribute(error, "__suppress_context__", heap.boolean(true));
  return error;
}

// exception -- exception: what a generator body may not let out (3.12+; before, resume_generator does it)
Flow OpcodeHandlers::stopiteration_error(Tracer& t, SymbolicFrame& f, const Instruction&) {
  if (t.exception_matches(f.top(), PyExc_StopIteration)) f.top() = t.error_of_generator(f.top());
  return Flow::next;
}

}  // namespace framejit::frame_hook
