// frame_hook/trace/values/floats.cpp — Python floats that differ from call to call.
//
// A float whose guard failed before is open: the trace has a number for it, but guards only its type. In an op with
// tensors it becomes a 0-dim float64 input of the graph. Sums, differences and products of open floats are open too:
// they are 0-dim nodes in the graph, and plain Python arithmetic where they leave the trace. Other arithmetic,
// comparisons, math and texts of open floats are computed sources (computed.cpp). Code that needs the number (an index,
// C code of torch) closes the float: constant() guards it, or what it was computed from, by value.
#include <algorithm>
#include <cmath>

#include "frame_hook/trace/machine/tracer.h"
#include "frame_hook/trace/protocol/protocol.h"

namespace framejit::frame_hook {

using guards::kNoSource;

bool Tracer::is_open_float(Value* v) {
  if (v->kind != ValueKind::object || v->type != &PyFloat_Type || v->value_guarded) return false;
  return v->source != kNoSource ? dynamic.is_dynamic(v->source) : trace_.float_formulas.count(v) != 0;
}

bool Tracer::is_same_open_float(Value* a, Value* b) {
  return a == b || (is_open_float(a) && is_open_float(b) && operand_source(a) == operand_source(b));
}

namespace {

constexpr int64_t kExactInts = int64_t{1} << 53;
constexpr size_t kDeepest = 256;  // a loop would make an endless formula

// A constant for which Python and a float64 kernel compute the same.
bool is_number(Value* v) {
  if (v->kind != ValueKind::object || !v->object) return false;
  if (PyFloat_CheckExact(v->object.get())) return true;
  if (!PyLong_CheckExact(v->object.get())) return false;
  int overflow = 0;
  const long long i = PyLong_AsLongLongAndOverflow(v->object.get(), &overflow);
  return overflow == 0 && i >= -kExactInts && i <= kExactInts;
}

bool is_zero(Value* v) { return PyObject_IsTrue(v->object.get()) == 0; }

}  // namespace

// Only operations that cannot raise: for a quotient by an open float, zero would have to be guarded against.
Value* Tracer::float_arithmetic(const char* function, Value* a, Value* b) {
  const std::string_view name = function;
  const bool quotient = name == "truediv";
  if (name != "add" && name != "sub" && name != "mul" && !quotient) return nullptr;
  const bool open_a = is_open_float(a), open_b = is_open_float(b);
  if ((!open_a && !is_number(a)) || (!open_b && !is_number(b)) || (quotient && (open_b || is_zero(b)))) return nullptr;
  size_t depth = 1;
  for (Value* v : {a, b})
    if (const auto at = trace_.float_formulas.find(v); at != trace_.float_formulas.end())
      depth = std::max(depth, at->second.depth + 1);
  if (depth > kDeepest) return nullptr;
  for (auto [v, open] : {std::pair(a, open_a), std::pair(b, open_b)}) {
    if (open) facts.type_of(v);
    else constant(v);
  }
  PyRef now = PyRef::steal(
      PyObject_CallFunctionObjArgs(operator_function(function), a->object.get(), b->object.get(), nullptr));
  if (!now) errors.raise_pending();
  Value* result = heap.object_value(now.get(), kNoSource);
  result->value_guarded = false;
  trace_.float_formulas[result] = {function, a, b, depth, kNoSource};
  return result;
}

Value* Tracer::float_tensor(Value* number) {
  if (const auto at = protocol().float_tensors.find(number); at != protocol().float_tensors.end()) return at->second;
  const guards::SourceId source = operand_source(number);
  const auto alike = protocol().float_tensor_of.find(source);
  if (alike != protocol().float_tensor_of.end()) return protocol().float_tensors[number] = alike->second;
  Value* tensor = nullptr;
  if (number->source != kNoSource) {
    const size_t inputs = recording().input_count();
    std::string text = dynamic.text(source);
    const bool is_taken = std::any_of(protocol().float_tensor_of.begin(), protocol().float_tensor_of.end(),
                                      [&](const auto& known) { return dynamic.text(known.first) == text; });
    if (is_taken) text += " #" + std::to_string(source);  // keys of dicts that are tensors look alike
    PyRef traced = PyRef::steal(recording().add_float(PyFloat_AS_DOUBLE(number->object.get()), text));
    if (!traced) break_of_recording("a float input");
    if (recording().input_count() > inputs) trace_.input_sources.push_back(number->source);
    facts.type_of(number);
    tensor = heap.wrap_result(traced.release());
  } else {
    const FloatFormula formula = trace_.float_formulas.at(number);
    auto operand = [&](Value* v) { return is_open_float(v) ? float_tensor(v) : v; };
    Value *a = operand(formula.a), *b = operand(formula.b);
    tensor = call_recorded(operator_function(formula.function), Arguments{{a, b}, {}});
  }
  protocol().float_tensor_of[source] = tensor;
  return protocol().float_tensors[number] = tensor;
}

Value* Tracer::float_input(Value* number, Value* beside, bool promotes) {
  if (!is_open_float(number)) return nullptr;
  const FloatBeside dtype = recording().float_beside(traced_tensor(as<TensorValue>(beside)));
  if (dtype == FloatBeside::kConstant || (dtype == FloatBeside::kFloat && !promotes)) return nullptr;
  Value* tensor = float_tensor(number);
  return dtype == FloatBeside::kFloat ? call(get_attribute(tensor, interned("float")), {}) : tensor;
}

Value* Tracer::float_number(Value* number) {
  if (!is_open_float(number)) return nullptr;
  Value* tensor = float_tensor(number);
  PyRef made = PyRef::steal(
      recording().float_number(traced_tensor(as<TensorValue>(tensor)), PyFloat_AS_DOUBLE(number->object.get())));
  if (!made) break_of_recording("a float");
  return heap.object_value(made.get(), kNoSource);
}

// After a call: guards the numbers that its C code has read.
void Tracer::guard_fixed_floats() {
  for (PyObject* traced : recording().take_fixed_floats())
    for (const auto& [number, tensor] : protocol().float_tensors)
      if (as<TensorValue>(tensor)->traced.get() == traced) facts.guard_value(number);
}

}  // namespace framejit::frame_hook
