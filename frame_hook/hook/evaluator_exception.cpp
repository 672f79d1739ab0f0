// frame_hook/hook/evaluator_exception.cpp — raise, handlers, with blocks.
#include "frame_hook/hook/evaluator.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

using Flow = Evaluator::Flow;

namespace {

// type(manager).name bound to manager; null without an error if the type has no such attribute.
PyObject* bound_special(PyObject* manager, const char* name) {
  PyRef text = PyRef::steal(PyUnicode_InternFromString(name));
  if (!text) return nullptr;
  PyTypeObject* type = Py_TYPE(manager);
  PyRef found = PyRef::borrow(_PyType_Lookup(type, text.get()));
  if (!found) return nullptr;
  descrgetfunc get = Py_TYPE(found.get())->tp_descr_get;
  return get ? get(found.get(), manager, reinterpret_cast<PyObject*>(type)) : found.release();
}

// The object that `raise x` means: x, or x() for a class; null with an error set.
PyObject* exception_object(PyObject* raised, const char* otherwise) {
  if (PyExceptionClass_Check(raised)) {
    PyObject* made = PyObject_CallNoArgs(raised);
    if (!made || PyExceptionInstance_Check(made)) return made;
    PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", raised,
                 Py_TYPE(made));
    Py_DECREF(made);
    return nullptr;
  }
  if (PyExceptionInstance_Check(raised)) return Py_NewRef(raised);
  PyErr_SetString(PyExc_TypeError, otherwise);
  return nullptr;
}

}  // namespace

// When an operation below fails, only look-ups have happened: the interpreter repeats them for its error text.
Flow Evaluator::before_with(const Instruction&) {
  PyObject* manager = peek(1);
  PyRef enter = PyRef::steal(bound_special(manager, "__enter__"));
  PyRef exit = PyRef::steal(enter ? bound_special(manager, "__exit__") : nullptr);
  if (!exit) {
    PyErr_Clear();
    return Flow::leave;
  }
  top_[-1] = exit.release();
  Py_DECREF(manager);
  PyObject* entered = PyObject_CallNoArgs(enter.get());
  return entered ? push_new(entered) : consume(1, nullptr);
}

Flow Evaluator::with_except_start(const Instruction&) {
  PyObject* exception = peek(1);
  PyRef traceback = PyRef::steal(PyException_GetTraceback(exception));
  PyObject* arguments[] = {nullptr, reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception,
                           traceback ? traceback.get() : Py_None};
  return push_new(PyObject_Vectorcall(peek(4), arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

Flow Evaluator::push_exc_info(const Instruction&) {
  PyObject* exception = peek(1);
  PyObject*& handled = thread_->exc_info->exc_value;
  top_[-1] = handled ? handled : Py_NewRef(Py_None);
  push(exception);
  handled = Py_NewRef(exception);
  return Flow::next;
}

Flow Evaluator::pop_except(const Instruction&) {
  PyObject* previous = pop();
  sync();
  pyver::set_handled(thread_, pyver::none_as_handled(previous));
  return Flow::next;
}

Flow Evaluator::check_exc_match(const Instruction&) {
  PyObject *type = peek(1), *exception = peek(2);
  if (PyTuple_Check(type)) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(type); k++)
      if (!PyExceptionClass_Check(PyTuple_GET_ITEM(type, k))) return Flow::leave;
  } else if (!PyExceptionClass_Check(type)) {
    return Flow::leave;
  }
  return consume_bool(1, PyErr_GivenExceptionMatches(exception, type));
}

Flow Evaluator::reraise(const Instruction& i) {
  PyObject* exception = pop();
  if (i.arg) {
    PyObject* lasti = peek(i.arg);
    if (!PyLong_Check(lasti)) {
      push(exception);
      return Flow::leave;
    }
    pyver::set_current(frame_, static_cast<int>(PyLong_AsLong(lasti)));
  }
  sync();
  pyver::give_exception(exception);
  return Flow::reraise;
}

Flow Evaluator::raise_varargs(const Instruction& i) {
  if (i.arg == 0) {
    PyObject* handled = PyErr_GetHandledException();
    if (handled && handled != Py_None) {
      pyver::give_exception(handled);
      return Flow::reraise;
    }
    Py_XDECREF(handled);
    PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
    return Flow::raise;
  }
  PyRef exception = PyRef::steal(exception_object(peek(i.arg), "exceptions must derive from BaseException"));
  if (exception && i.arg == 2) {
    PyObject* given = peek(1);
    PyRef cause = given == Py_None
                      ? PyRef()
                      : PyRef::steal(exception_object(given, "exception causes must derive from BaseException"));
    if (cause || given == Py_None) PyException_SetCause(exception.get(), cause.release());
    else exception = PyRef();
  }
  if (exception) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
  return consume_status(i.arg, -1);
}

}  // namespace framejit::frame_hook
