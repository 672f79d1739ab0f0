// frame_hook/trace/torch/tensor_numbers.cpp — numbers that a program reads from 0-dim tensors: the step counts of an
// optimizer.
//
// The guard program reads the number when the call begins, and repeats what the trace has computed from it. The result
// is an open float, so it may differ in each call. Tensors that hold equal numbers now are guarded to hold equal
// numbers, and share one float: an optimizer counts the steps of each parameter in a tensor of its own.
#include <bit>

#include "frame_hook/trace/torch/traced_tensors.h"
#include "guards/guard_functions.h"

namespace framejit::frame_hook {

using graph::NumberStep;
using guards::SourceId;
using guards::SourceKind;

namespace {

// Arithmetic as tensors do it, on exact floats: in float32 or float64, never an exception.
template <class Number, class Compute>
PyObject* compute(PyObject* const* args, Py_ssize_t count, Py_ssize_t wanted, Compute&& op) {
  if (count != wanted)
    return PyErr_SetString(PyExc_TypeError, "framejit: arithmetic with the wrong number of operands"), nullptr;
  double numbers[2] = {0, 0};
  for (Py_ssize_t i = 0; i < count; ++i) {
    numbers[i] = PyFloat_AsDouble(args[i]);
    if (numbers[i] == -1 && PyErr_Occurred()) return nullptr;
  }
  return PyFloat_FromDouble(static_cast<double>(op(static_cast<Number>(numbers[0]), static_cast<Number>(numbers[1]))));
}

template <class Number>
PyObject* add(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return compute<Number>(args, count, 2, [](Number a, Number b) { return a + b; });
}
template <class Number>
PyObject* sub(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return compute<Number>(args, count, 2, [](Number a, Number b) { return a - b; });
}
template <class Number>
PyObject* mul(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return compute<Number>(args, count, 2, [](Number a, Number b) { return a * b; });
}
template <class Number>
PyObject* div(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return compute<Number>(args, count, 2, [](Number a, Number b) { return a / b; });
}
template <class Number>
PyObject* neg(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return compute<Number>(args, count, 1, [](Number a, Number) { return -a; });
}
PyObject* narrow(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return compute<float>(args, count, 1, [](float a, float) { return a; });
}

// The functions live as long as the process: sources of guards name them.
PyObject* function_of(const NumberStep& step) {
  struct Row {
    NumberStep::Op op;
    bool is_single;
    PyMethodDef method;
    PyObject* function;
  };
  const auto row = [](NumberStep::Op op, bool is_single, const char* name, _PyCFunctionFast function) {
    return Row{op,
               is_single,
               {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL, nullptr},
               nullptr};
  };
  static auto* const rows = new std::vector<Row>{
      row(NumberStep::kAdd, true, "float32.add", add<float>), row(NumberStep::kAdd, false, "float64.add", add<double>),
      row(NumberStep::kSub, true, "float32.sub", sub<float>), row(NumberStep::kSub, false, "float64.sub", sub<double>),
      row(NumberStep::kMul, true, "float32.mul", mul<float>), row(NumberStep::kMul, false, "float64.mul", mul<double>),
      row(NumberStep::kDiv, true, "float32.div", div<float>), row(NumberStep::kDiv, false, "float64.div", div<double>),
      row(NumberStep::kNeg, true, "float32.neg", neg<float>), row(NumberStep::kNeg, false, "float64.neg", neg<double>),
      row(NumberStep::kNarrow, false, "float32", narrow)};
  for (Row& known : *rows) {
    if (known.op != step.op || known.is_single != step.is_single) continue;
    if (!known.function) known.function = PyCFunction_New(&known.method, nullptr);
    return known.function;
  }
  return nullptr;
}

Value* call_on_constants(Shadows& shadows, PyObject* function, const Arguments& operands) {
  std::vector<PyObject*> args;
  for (Value* v : operands.positional) args.push_back(constant_of(shadows, v));
  PyObject* const result = PyObject_Vectorcall(function, args.data(), args.size(), nullptr);
  if (!result) shadows.errors.raise_of_pure_call();
  return shadows.heap.wrap_result(result);
}

}  // namespace

// The number in a tensor that is an input. Tensors with equal numbers share the value of the first.
Value* TracedTensors::number_of_input(size_t input) {
  const SourceId tensor = trace_.input_sources[input];
  const double now = recording().number_in_input(input);
  for (const NumberInTensor& other : read_numbers_) {
    if (std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(other.number->object.get())) != std::bit_cast<uint64_t>(now))
      continue;
    if (other.tensor != tensor) {
      guards::Guard guard;
      guard.kind = guards::GuardKind::same_number;
      guard.source = tensor;
      guard.other = other.tensor;
      facts().add_guard(std::move(guard));
    }
    return other.number;
  }
  const PyRef object = PyRef::steal(PyFloat_FromDouble(now));
  read_numbers_.push_back(
      {tensor, heap().wrap(object.get(), facts().sources().add(SourceKind::tensor_number, tensor))});
  return read_numbers_.back().number;
}

Value* TracedTensors::number_in(Value* v) {
  if (v->kind != ValueKind::tensor) return nullptr;
  std::vector<Value*> made;
  for (const NumberStep& step : recording().number_of(traced(as<TensorValue>(v)))) {
    Value* number = nullptr;
    if (step.op == NumberStep::kInput) {
      number = number_of_input(step.a);
    } else if (step.op == NumberStep::kFloat) {
      number = heap().find(trace_.input_sources[step.a]);
    } else if (step.op == NumberStep::kConstant) {
      const PyRef object = PyRef::steal(PyFloat_FromDouble(step.number));
      number = heap().constant_value(object.get());
    } else {
      PyObject* const function = function_of(step);
      const bool is_unary = step.op == NumberStep::kNeg || step.op == NumberStep::kNarrow;
      const Arguments operands{
          is_unary ? std::vector<Value*>{made[step.a]} : std::vector<Value*>{made[step.a], made[step.b]}, {}};
      const bool is_known = std::none_of(operands.positional.begin(), operands.positional.end(),
                                         [&](Value* operand) { return numbers.is_open_float(operand); });
      number = is_known ? call_on_constants(numbers.shadows, function, operands) : numbers.computed(function, operands);
    }
    if (number == nullptr) return nullptr;
    made.push_back(number);
  }
  return made.empty() ? nullptr : made.back();
}

}  // namespace framejit::frame_hook
