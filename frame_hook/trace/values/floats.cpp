// frame_hook/trace/values/floats.cpp — Python floats that differ from call to call.
//
// A float whose guard failed before is open: the trace has a number for it, but guards only its type. In an op with
// tensors it becomes a 0-dim float64 input of the graph. Sums, differences and products of open floats are open too:
// they are 0-dim nodes in the graph, and plain Python arithmetic where they leave the trace. Other arithmetic,
// comparisons, math and texts of open floats are computed sources (computed.cpp). Code that needs the number (an index,
// C code of torch) closes the float: constant_of() guards it, or what it was computed from, by value.
#include <algorithm>
#include <cmath>

#include "frame_hook/trace/values/open_numbers.h"
#include "frame_hook/trace/values/originals.h"

namespace framejit::frame_hook {

using guards::kNoSource;

bool OpenNumbers::is_open_float(Value* v) {
  if (v->kind != ValueKind::object || v->type != &PyFloat_Type || v->value_guarded) return false;
  return v->source != kNoSource ? dynamic_.is_dynamic(v->source) : trace_.float_formulas.count(v) != 0;
}

bool OpenNumbers::is_same_open_float(Value* a, Value* b) {
  return a == b || (is_open_float(a) && is_open_float(b) && source_of(a) == source_of(b));
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

// Only operations that cannot raise: a quotient by an open float would need a guard against zero.
Value* OpenNumbers::float_arithmetic(BinaryOp op, Value* a, Value* b) {
  const bool quotient = op == BinaryOp::true_divide;
  if (op != BinaryOp::add && op != BinaryOp::subtract && op != BinaryOp::multiply && !quotient) return nullptr;
  const bool open_a = is_open_float(a), open_b = is_open_float(b);
  if ((!open_a && !is_number(a)) || (!open_b && !is_number(b)) || (quotient && (open_b || is_zero(b)))) return nullptr;
  size_t depth = 1;
  for (Value* v : {a, b})
    if (const auto at = trace_.float_formulas.find(v); at != trace_.float_formulas.end())
      depth = std::max(depth, at->second.depth + 1);
  if (depth > kDeepest) return nullptr;
  for (auto [v, open] : {std::pair(a, open_a), std::pair(b, open_b)}) {
    if (open) shadows.facts.type_of(v);
    else constant_of(shadows, v);
  }
  PyRef now = PyRef::steal(PyObject_CallFunctionObjArgs(operator_function(names_of(op).function), a->object.get(),
                                                        b->object.get(), nullptr));
  if (!now) shadows.errors.raise_pending();
  Value* result = shadows.heap.object_value(now.get(), kNoSource);
  result->value_guarded = false;
  trace_.float_formulas[result] = {op, a, b, depth, kNoSource};
  return result;
}

}  // namespace framejit::frame_hook
