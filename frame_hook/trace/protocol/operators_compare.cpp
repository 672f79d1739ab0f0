// frame_hook/trace/protocol/operators_compare.cpp — rich comparison: special methods in CPython's order, then what C
// code does (types/comparisons.cpp), identity as the last resort of == and !=.
#include <cmath>

#include "frame_hook/trace/machine/nested.h"
#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/torch/tensor_operands.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook {

namespace {

// Whether the comparison in C that a's class inherits has an answer for b. CPython asks it before a method of b.
bool left_compares(Value* a, Value* b) {
  const richcmpfunc compare = builtin_base(a->type)->tp_richcompare;
  if (a->kind == ValueKind::tensor || !compare || compare == PyBaseObject_Type.tp_richcompare) return false;
  const PyTypeObject* const other = builtin_base(b->type);
  return compare == other->tp_richcompare ||
         (compare == PyFloat_Type.tp_richcompare && other->tp_richcompare == PyLong_Type.tp_richcompare);
}

// object.__ne__ inverts __eq__. A builtin class has a __ne__ of its own, which does not.
bool inverts_equality(Facts& facts, Value* v) {
  const richcmpfunc compare = real_type(v) ? nullptr : builtin_base(facts.type_of(v))->tp_richcompare;
  return !compare || compare == PyBaseObject_Type.tp_richcompare;
}

Value* special_compare(Tracer& t, int op, Value* a, Value* b) {
  PyTypeObject *left = t.facts.type_of(a), *right = t.facts.type_of(b);
  auto attempt = [&](Value* self, int which, Value* other) -> Value* {
    Value* method = type_special(t, self, kComparisonNames[which].special);
    if (!method && which == Py_NE && inverts_equality(t.facts, self)) {
      method = type_special(t, self, "__eq__");
      if (!method) return nullptr;
      Value* equal = t.call(method, {other});
      return is_not_implemented(equal) ? nullptr : t.heap.boolean(!t.truth(equal));
    }
    if (!method) return nullptr;
    Value* result = t.call(method, {other});
    return is_not_implemented(result) ? nullptr : result;
  };
  Unresumable guard(t.stack);
  const int swapped = kComparisonNames[op].swapped;
  const bool right_first = left != right && PyType_IsSubtype(right, left);
  if (right_first)
    if (Value* result = attempt(b, swapped, a)) return result;
  if (Value* result = attempt(a, op, b)) return result;
  return right_first || left_compares(a, b) ? nullptr : attempt(b, swapped, a);
}

// Whether C code of its class compares it, neither by identity nor as a traced kind of value does.
bool compares_in_c(Heap& heap, Value* v) {
  const bool may_be_of_c = (v->kind == ValueKind::instance || v->kind == ValueKind::object) && payload_of(v) == v;
  if (!may_be_of_c || heap.is_constant(v) || real_type(v)) return false;
  const richcmpfunc compare = builtin_base(heap.facts.type_of(v))->tp_richcompare;
  return compare && compare != PyBaseObject_Type.tp_richcompare;
}

}  // namespace

Value* Tracer::compare(int op, Value* a, Value* b) {
  return with_cpython_errors(
      numbers,
      [&] {
        const ComparisonNames& names = kComparisonNames[op];
        const char* const swapped = kComparisonNames[names.swapped].special;
        return CCall{operator_function(names.function), Arguments{{a, b}, {}}, {names.special, swapped}};
      },
      [&] { return compare_with_own_errors(op, a, b); });
}

Value* Tracer::compare_with_own_errors(int op, Value* a, Value* b) {
  const ComparisonNames& names = kComparisonNames[op];
  if (a->kind == ValueKind::array || b->kind == ValueKind::array)
    return call_numpy(*this, operator_function(names.function), Arguments{{a, b}, {}});
  if (a->kind == ValueKind::tensor || b->kind == ValueKind::tensor) {
    Value* other = a->kind == ValueKind::tensor ? b : a;
    const bool takes = other == b && is_subclassed_number(b);  // the tensor is asked first, and takes any number
    if (other->kind == ValueKind::instance && !takes)
      if (Value* result = special_compare(*this, op, a, b)) return result;
    if (Value* input = float_input(*this, other, other == b ? a : b)) (other == b ? b : a) = input;
    return calls.recorded(operator_function(names.function),
                          operands(facts, {names.special, kComparisonNames[names.swapped].special}, {a, b}));
  }
  if (a->kind == ValueKind::instance || b->kind == ValueKind::instance || a->kind == ValueKind::object ||
      b->kind == ValueKind::object)
    if (Value* result = special_compare(*this, op, a, b)) return result;
  facts.type_of(a);
  facts.type_of(b);
  Value* result = raw_compare(*this, op, a, b);
  if (result && !is_not_implemented(result)) return result;
  for (Value* v : {a, b})
    if (!result && compares_in_c(heap, v))
      graph_break(Reason::unsupported_operand, std::string(names.symbol) + " on " + describe(v));
  if (op == Py_EQ || op == Py_NE) return heap.boolean(same_object(shadows, a, b) == (op == Py_EQ));
  errors.raise_new(PyExc_TypeError, std::string("'") + names.symbol + "' not supported between instances of '" +
                                        a->type->tp_name + "' and '" + b->type->tp_name + "'");
}

bool Dicts::equal(Value* a, Value* b) {
  if (a == b) return true;
  if (a->object && b->object && a->object.get() == b->object.get() && a->kind != ValueKind::sym_int &&
      b->kind != ValueKind::sym_int && same_object(shadows, a, b))
    return true;
  const Nested nested("a comparison");
  Unresumable guard(facts.stack);
  const bool equal = t_.truth(t_.compare(Py_EQ, a, b));
  const auto is_open = [&](Value* v) { return t_.numbers.is_open_float(payload_of(v)); };
  if (equal || (!is_open(a) && !is_open(b))) return equal;
  // In another call both may be the same NaN, which equals nothing but is found by its identity.
  const auto is_nan = [&](Value* v) {
    if (is_open(v)) return !t_.truth(t_.compare(Py_EQ, v, v));
    return v->object && PyFloat_Check(v->object.get()) && std::isnan(PyFloat_AS_DOUBLE(v->object.get()));
  };
  return is_nan(a) && is_nan(b) && same_object(shadows, a, b);
}

}  // namespace framejit::frame_hook
