// frame_hook/hook/evaluator_call.cpp — calls from the frame's own stack, functions, imports.
#include "frame_hook/hook/evaluator.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

using Flow = Evaluator::Flow;

Flow Evaluator::replace_operands(int operand_count, PyObject* result) {
  if (consume(operand_count, result) == Flow::raise) return Flow::raise;
  return poll();
}

Flow Evaluator::call(const Instruction& i) {
  const bool names_on_stack = i.has(Instruction::kNamesOnStack);
  PyObject* names = names_on_stack ? peek(1) : i.object;
  const int operand_count = i.arg + 2 + names_on_stack;
  PyObject** base = top_ - operand_count;
  PyObject *callable = base[0], **arguments = base + 2;
  size_t count = static_cast<size_t>(i.arg);
  if (!callable) callable = base[1];
  else if (base[1]) arguments--, count++;
  if (names) count -= static_cast<size_t>(PyTuple_GET_SIZE(names));
  // The callee may briefly write the slot below the arguments. A collector that looks at a generator's stack must not
  // see that.
  if (!pyver::is_generator_frame(frame_)) count |= PY_VECTORCALL_ARGUMENTS_OFFSET;
  return replace_operands(operand_count, PyObject_Vectorcall(callable, arguments, count, names));
}

// If the arguments are not iterable or the keywords are not a dict, the interpreter has its own error texts.
Flow Evaluator::call_function_ex(const Instruction& i) {
  const bool has_kwargs = i.has(Instruction::kHasKwargs);
  PyObject* kwargs = has_kwargs ? peek(1) : nullptr;
  PyObject* given = peek(1 + has_kwargs);
  if (kwargs && !PyDict_CheckExact(kwargs)) return Flow::leave;
  if (!PyTuple_CheckExact(given) && !Py_TYPE(given)->tp_iter && !PySequence_Check(given)) return Flow::leave;
  const int operand_count = 3 + has_kwargs;
  PyObject* callable = peek(operand_count) ? peek(operand_count) : peek(operand_count - 1);
  PyRef arguments = PyTuple_CheckExact(given) ? PyRef::borrow(given) : PyRef::steal(PySequence_Tuple(given));
  PyObject* result = arguments ? PyObject_Call(callable, arguments.get(), kwargs) : nullptr;
  arguments = PyRef();
  return replace_operands(operand_count, result);
}

Flow Evaluator::make_function(const Instruction& i) {
  PyObject* function = PyFunction_New(peek(1), pyver::globals(frame_));
  if (!function) return consume(1, nullptr);
  PyObject* code = pop();
  for (int bit = 8; bit; bit >>= 1)
    if (i.arg & bit) pyver::new_function_attribute(function, bit, pop());
  push(function);
  sync();
  Py_DECREF(code);
  return Flow::next;
}
Flow Evaluator::set_function_attribute(const Instruction& i) {
  PyObject* function = pop();
  PyObject* attribute = pop();
  pyver::new_function_attribute(function, i.arg, attribute);
  push(function);
  return Flow::next;
}

// The builtin __import__ and any replacement of it are both called with these five arguments.
Flow Evaluator::import_name(const Instruction& i) {
  PyObject* builtins = pyver::builtins(frame_);
  PyObject* import = PyDict_CheckExact(builtins) ? PyDict_GetItemString(builtins, "__import__") : nullptr;
  if (!import) return Flow::leave;
  PyObject* names = pyver::locals_mapping(frame_) ? pyver::locals_mapping(frame_) : Py_None;
  PyRef keep = PyRef::borrow(import);
  PyObject* arguments[] = {i.object, pyver::globals(frame_), names, peek(1), peek(2)};
  return consume(2, PyObject_Vectorcall(import, arguments, 5, nullptr));
}

// A submodule that is not yet an attribute of its package (circular imports) is looked up in sys.modules.
Flow Evaluator::import_from(const Instruction& i) {
  PyObject* module = peek(1);
  if (PyObject* value = PyObject_GetAttr(module, i.object)) return push_new(value);
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return Flow::raise;
  PyErr_Clear();
  PyRef package = PyRef::steal(PyObject_GetAttrString(module, "__name__"));
  PyRef full = PyRef::steal(
      package && PyUnicode_Check(package.get()) ? PyUnicode_FromFormat("%U.%U", package.get(), i.object) : nullptr);
  PyObject* value = full ? PyImport_GetModule(full.get()) : nullptr;
  if (value) return push_new(value);
  PyErr_Clear();
  return Flow::leave;  // the interpreter raises the ImportError with all its details
}

}  // namespace framejit::frame_hook
