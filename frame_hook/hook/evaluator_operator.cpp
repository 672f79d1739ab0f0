// frame_hook/hook/evaluator_operator.cpp — unary and binary operators, comparisons, subscripts, slices, formatting,
// match tests.
#include <opcode.h>

#include <string_view>
#include <type_traits>

#include "frame_hook/bytecode/operators.h"
#include "frame_hook/hook/evaluator.h"

namespace framejit::frame_hook {

using Flow = Evaluator::Flow;

namespace {

// The operator as a function of two objects: that of powers takes a third one.
template <auto function>
PyObject* binary_call(PyObject* a, PyObject* b) {
  if constexpr (std::is_same_v<decltype(function), ternaryfunc>) return function(a, b, Py_None);
  else return function(a, b);
}

#define BINARY(op, number, ...) static_assert(static_cast<int>(BinaryOp::op) == (number));
#define COMPARISON(number, name, ...) static_assert(std::string_view(kComparisonNames[number].function) == #name);
#include "frame_hook/bytecode/operators.def"
static_assert(kBinaryOps == NB_INPLACE_ADD);

PyObject* (*const kBinary[])(PyObject*, PyObject*) = {
#define BINARY(op, number, special, function, symbol, slot, call) binary_call<&PyNumber_##call>,
#include "frame_hook/bytecode/operators.def"
#define BINARY(op, number, special, function, symbol, slot, call) binary_call<&PyNumber_InPlace##call>,
#include "frame_hook/bytecode/operators.def"
};

PyObject* as_bool(PyObject* steals) {
  if (!steals || PyBool_Check(steals)) return steals;
  const int truth = PyObject_IsTrue(steals);
  Py_DECREF(steals);
  return truth < 0 ? nullptr : Py_NewRef(truth ? Py_True : Py_False);
}

PyObject* converted(PyObject* value, int conversion) {
  switch (conversion) {
    case 1: return PyObject_Str(value);
    case 2: return PyObject_Repr(value);
    case 3: return PyObject_ASCII(value);
    default: return Py_NewRef(value);
  }
}

}  // namespace

Flow Evaluator::unary_positive(const Instruction&) { return unary(PyNumber_Positive); }
Flow Evaluator::unary_negative(const Instruction&) { return unary(PyNumber_Negative); }
Flow Evaluator::unary_invert(const Instruction&) { return unary(PyNumber_Invert); }
Flow Evaluator::unary_not(const Instruction&) { return consume_bool(1, PyObject_Not(peek(1))); }
Flow Evaluator::to_bool(const Instruction&) { return consume_bool(1, PyObject_IsTrue(peek(1))); }
Flow Evaluator::binary_op(const Instruction& i) { return binary(kBinary[i.arg]); }

Flow Evaluator::compare_op(const Instruction& i) {
  PyObject* result = PyObject_RichCompare(peek(2), peek(1), i.arg);
  return consume(2, i.has(Instruction::kToBool) ? as_bool(result) : result);
}
Flow Evaluator::is_op(const Instruction& i) { return consume_bool(2, (peek(2) == peek(1)) != (i.arg != 0)); }
Flow Evaluator::contains_op(const Instruction& i) {
  const int found = PySequence_Contains(peek(1), peek(2));
  return consume_bool(2, found < 0 ? found : found != i.arg);
}

Flow Evaluator::binary_subscr(const Instruction&) { return binary(PyObject_GetItem); }
Flow Evaluator::store_subscr(const Instruction&) {
  return consume_status(3, PyObject_SetItem(peek(2), peek(1), peek(3)));
}
Flow Evaluator::delete_subscr(const Instruction&) { return consume_status(2, PyObject_DelItem(peek(2), peek(1))); }

Flow Evaluator::binary_slice(const Instruction&) {
  PyObject* slice = PySlice_New(peek(2), peek(1), nullptr);
  PyObject* value = slice ? PyObject_GetItem(peek(3), slice) : nullptr;
  Py_XDECREF(slice);
  return consume(3, value);
}
Flow Evaluator::store_slice(const Instruction&) {
  PyObject* slice = PySlice_New(peek(2), peek(1), nullptr);
  const int status = slice ? PyObject_SetItem(peek(3), slice, peek(4)) : -1;
  Py_XDECREF(slice);
  return consume_status(4, status);
}
Flow Evaluator::build_slice(const Instruction& i) {
  return consume(i.arg, PySlice_New(peek(i.arg), peek(i.arg - 1), i.arg == 3 ? peek(1) : nullptr));
}

Flow Evaluator::format_value(const Instruction& i) {
  const bool has_spec = i.has(Instruction::kHasSpec);
  PyObject* value = converted(peek(has_spec ? 2 : 1), i.arg);
  PyObject* text = nullptr;
  if (value && !has_spec && PyUnicode_CheckExact(value)) text = Py_NewRef(value);
  else if (value) text = PyObject_Format(value, has_spec ? peek(1) : nullptr);
  Py_XDECREF(value);
  return consume(has_spec ? 2 : 1, text);
}
Flow Evaluator::convert_value(const Instruction& i) { return consume(1, converted(peek(1), i.arg)); }

// ---- match tests

Flow Evaluator::get_len(const Instruction&) {
  const Py_ssize_t length = PyObject_Length(peek(1));
  return length < 0 ? Flow::raise : push_new(PyLong_FromSsize_t(length));
}
Flow Evaluator::match_mapping(const Instruction&) {
  return push_bool(PyType_HasFeature(Py_TYPE(peek(1)), Py_TPFLAGS_MAPPING));
}
Flow Evaluator::match_sequence(const Instruction&) {
  return push_bool(PyType_HasFeature(Py_TYPE(peek(1)), Py_TPFLAGS_SEQUENCE));
}

}  // namespace framejit::frame_hook
