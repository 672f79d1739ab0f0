#include "frame_hook/trace/machine/errors.h"

#include "frame_hook/trace/values/exception_members.h"
#include "guards/cpython/interrupts.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

void raise_with(Errors& errors, PyObject* type, std::initializer_list<Value*> args) {
  errors.raise(errors.new_exception(type, args));
}

void write_attribute(InstanceValue* v, std::string_view name, Value* to) {
  PyObject* const key = interned(name);
  for (auto& [known, value] : v->attrs) {
    if (known.get() != key) continue;
    value = to;
    return;
  }
  v->attrs.emplace_back(PyRef::borrow(key), to);
}

InstanceValue* Errors::new_exception(PyObject* type, std::vector<Value*> args) {
  auto* v = heap.make<InstanceValue>(ValueKind::instance, reinterpret_cast<PyTypeObject*>(type));
  initialise_exception(heap, v->type, v, Arguments{std::move(args), {}});
  own_errors_.insert(v);
  return v;
}

// The exception that is raised now must not occur in the context chain of the one being handled.
void Errors::cut_context(Value* handled, Value* raised) {
  int links = 0;  // a program can make a cycle
  for (Value* at = handled; at && at->kind == ValueKind::instance && ++links < 1000;) {
    bool known = false;
    Value* context = as<InstanceValue>(at)->find_attr(interned("__context__"), &known);
    if (context != raised) {
      at = context;
      continue;
    }
    if (at->object) graph_break(Reason::exception_raised, "an exception that is in the context of an existing one");
    return write_attribute(as<InstanceValue>(at), "__context__", heap.none());
  }
}

// The exception being handled becomes the context, as in _PyErr_SetObject.
void Errors::raise(Value* exception) {
  FJ_ASSERT(exception->kind == ValueKind::instance, "an exception that is not an instance");
  if (exception->object) graph_break(Reason::exception_raised, exception->type->tp_name);
  bool known = true;
  Value* context = heap.facts.stack.handled_exception(&known);
  if (context && context != exception) {
    cut_context(context, exception);
    write_attribute(as<InstanceValue>(exception), "__context__", context);
  }
  throw SymbolicRaise{exception};
}

void Errors::raise_new(PyObject* type, const std::string& message) {
  raise(new_exception(type, {heap.string(message)}));
}

void Errors::raise_of_pure_call() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const bool raised_by_python = traceback != nullptr;
  PyErr_Restore(type, value, traceback);
  if (!raised_by_python) raise_set_error(true);
  keep_error();
  throw Interrupted{};
}

Value* Errors::constant_steal(PyObject* object) {
  if (!object) raise_of_pure_call();
  PyRef owned = PyRef::steal(object);
  return heap.constant_value(object);
}

void Errors::raise_pending() { raise_set_error(false); }

// own: the tracer raises this error in place of C code, which may word it differently.
void Errors::raise_set_error(bool own) {
  FJ_ASSERT(PyErr_Occurred(), "a call failed without a Python error");
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
  // C code raised it while handling another one: the exception being handled is the context of the first.
  if (Value* handled = heap.facts.stack.handled_exception(&known)) write_attribute(first, "__context__", handled);
  throw SymbolicRaise{exception};
}

bool copy_error_members(PyObject* real, InstanceValue* to, const std::function<Value*(PyObject*)>& value) {
  if (!copy_members(real, to, value)) return false;
  const PyRef notes = PyRef::steal(PyObject_GetAttrString(real, "__notes__"));
  if (!notes) return drop_error(), true;
  Value* const copied = value(notes.get());
  if (copied) write_attribute(to, "__notes__", copied);
  return copied != nullptr;
}

InstanceValue* Errors::exception_of(PyObject* real) {
  const PyRef args = PyRef::steal(PyObject_GetAttrString(real, "args"));
  if (!args || !PyTuple_CheckExact(args.get())) drop_error();
  InstanceValue* made = new_exception(reinterpret_cast<PyObject*>(Py_TYPE(real)), {});
  if (args && PyTuple_CheckExact(args.get())) made->payload = heap.wrap_result(Py_NewRef(args.get()));
  TupleValue* const items = made->payload->kind == ValueKind::tuple ? as<TupleValue>(made->payload) : nullptr;
  copy_error_members(real, made, [&](PyObject* object) -> Value* {  // a member is often an argument
    if (items && object == args.get()) return items;
    for (size_t i = 0; items && i < items->items.size(); ++i)
      if (items->items[i] && PyTuple_GET_ITEM(args.get(), i) == object) return items->items[i];
    return heap.wrap_result(Py_NewRef(object));
  });
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

bool Errors::exception_matches(Value* exception, PyObject* type) {
  return PyErr_GivenExceptionMatches(reinterpret_cast<PyObject*>(heap.facts.type_of(exception)), type) != 0;
}

InstanceValue* Errors::error_of_generator(Value* stop) {
  InstanceValue* error = new_exception(PyExc_RuntimeError, {heap.string("generator raised StopIteration")});
  write_attribute(error, "__cause__", stop);
  write_attribute(error, "__context__", stop);
  write_attribute(error, "__suppress_context__", heap.boolean(true));
  return error;
}

}  // namespace framejit::frame_hook
