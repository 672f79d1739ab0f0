// frame_hook/trace/protocol/operators.cpp — binary and unary operators.
//
// Order: tensors (recorded through the functions of module operator, whose C code uses torch's own slots), symbolic
// sizes, plain constants (concretely), builtin containers on shadows, then CPython's protocol of special methods.
#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/protocol/strings.h"
#include "frame_hook/trace/torch/tensor_operands.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"
#include "graph/int64_range.h"

namespace framejit::frame_hook {

namespace {

// In a loop that computes with a number, the expression would grow with each iteration, and so would the time of
// everything that walks it.
constexpr uint32_t kLongestSize = 64;

// Subtracts the length of the expression, in symbols and operations, from `left`; false if it is longer.
bool takes(const graph::SymExpr& size, uint32_t& left) {
  if (left == 0) return false;
  --left;
  if (size.is_constant()) return true;
  const auto& operands = size.node()->operands;
  return std::all_of(operands.begin(), operands.end(), [&](const graph::SymExpr& part) { return takes(part, left); });
}

Value* short_size(Heap& heap, const graph::SymExpr& size) {
  uint32_t left = kLongestSize;
  return takes(size, left) ? heap.size_value(size) : nullptr;
}

// Arithmetic of sizes; null: this operator specialises, or the result needs more than 64 bits or is too long.
Value* size_operator(Errors& errors, BinaryOp op, const graph::SymExpr& left, const graph::SymExpr& right) {
  const bool divides = op == BinaryOp::floor_divide || op == BinaryOp::remainder;
  if (divides &&
      errors.heap.recording().shapes().decide(right, graph::Relation::kEq, 0, errors.heap.facts.stack.here()))
    errors.raise_new(PyExc_ZeroDivisionError,
                     op == BinaryOp::remainder ? "integer modulo by zero" : "integer division or modulo by zero");
  try {
    switch (op) {
      case BinaryOp::add: return short_size(errors.heap, left + right);
      case BinaryOp::subtract: return short_size(errors.heap, left - right);
      case BinaryOp::multiply: return short_size(errors.heap, left * right);
      case BinaryOp::floor_divide: return short_size(errors.heap, graph::SymExpr::floor_div(left, right));
      case BinaryOp::remainder: return short_size(errors.heap, graph::SymExpr::mod(left, right));
      default: return nullptr;
    }
  } catch (const graph::NoInt64&) {
    return nullptr;
  }
}

bool has_own_special(PyTypeObject* sub, PyTypeObject* base, const char* name) {
  return _PyType_Lookup(sub, interned(name)) != _PyType_Lookup(base, interned(name));
}

// Null: the slot takes a third operand.
using BinarySlot = binaryfunc PyNumberMethods::*;
constexpr BinarySlot binary_slot(BinarySlot slot) { return slot; }
constexpr BinarySlot binary_slot(ternaryfunc PyNumberMethods::*) { return nullptr; }

constexpr BinarySlot kBinarySlots[] = {
#define BINARY(op, number, special, function, symbol, slot, call) binary_slot(&PyNumberMethods::slot),
#include "frame_hook/bytecode/operators.def"
};
constexpr unaryfunc PyNumberMethods::* kUnarySlots[] = {
#define UNARY(op, special, function, symbol, slot, call) &PyNumberMethods::slot,
#include "frame_hook/bytecode/operators.def"
};

// Whether the number slot of a's C class, which CPython asks before a method of b, has an answer: "%s" % b.
bool left_answers(OpenNumbers& numbers, BinaryOp op, Value* a, Value* b) {
  const BinarySlot slot = kBinarySlots[static_cast<int>(op)];
  const PyNumberMethods* slots = builtin_base(numbers.shadows.facts.type_of(a))->tp_as_number;
  PyObject* const method = _PyType_Lookup(builtin_base(a->type), interned(names_of(op).special));
  if (real_type(a) || !slot || !slots || !(slots->*slot) || !method) return false;
  StandIns stand_ins(numbers, false);
  return !stand_ins.ask(method, Arguments{{payload_of(a), b}, {}}).is_not_implemented();
}

// a.__op__(b), b.__rop__(a), the subclass first. Null: nobody implements it in Python.
Value* special_operator(Tracer& t, BinaryOp op, Value* a, Value* b, bool in_place) {
  const BinaryNames& names = names_of(op);
  PyTypeObject *left = t.facts.type_of(a), *right = t.facts.type_of(b);
  auto attempt = [&](Value* self, const char* name, Value* other) -> Value* {
    Value* method = type_special(t, self, name);
    if (!method) return nullptr;
    Value* result = t.call(method, {other});
    return is_not_implemented(result) ? nullptr : result;
  };
  Unresumable guard(t.stack);
  if (in_place)
    if (Value* result = attempt(a, names.in_place, b)) return result;
  const bool right_first =
      left != right && PyType_IsSubtype(right, left) && has_own_special(right, left, names.reflected);
  if (right_first)
    if (Value* result = attempt(b, names.reflected, a)) return result;
  if (Value* result = attempt(a, names.special, b)) return result;
  if (!right_first && left != right && type_special(t, b, names.reflected) && !left_answers(t.numbers, op, a, b))
    if (Value* result = attempt(b, names.reflected, a)) return result;
  return nullptr;
}

// Whether C code of v's class may implement the operator. Constants, and values traced by their kind, are handled here.
bool may_know_operator(Heap& heap, Value* v) {
  if ((v->kind != ValueKind::instance && v->kind != ValueKind::object) || heap.is_constant(v)) return false;
  const PyTypeObject* type = builtin_base(heap.facts.type_of(v));
  return type->tp_as_number ||
         (type->tp_as_sequence && (type->tp_as_sequence->sq_concat || type->tp_as_sequence->sq_repeat));
}

// An object with __index__ repeats a sequence.
bool repeats(Shadows& shadows, Value* v, Value* other) {
  const bool of_text = other->object && (PyUnicode_Check(other->object.get()) || PyBytes_Check(other->object.get()));
  return (of_text || is_list_or_tuple(other)) && v->kind == ValueKind::instance &&
         has_any_special(shadows, v, {"__index__"});
}

// A tensor on the left is asked first, and takes a number of any class.
bool takes_number(BinaryOp op, Value* a, Value* b) {
  return a->kind == ValueKind::tensor && op != BinaryOp::matrix_multiply && is_subclassed_number(b);
}

// One of the two is a tensor.
Value* tensor_operator(Tracer& t, BinaryOp op, Value* a, Value* b, bool in_place) {
  const BinaryNames& names = names_of(op);
  Value* other = a->kind == ValueKind::tensor ? b : a;
  if (other->kind == ValueKind::instance && !takes_number(op, a, b))
    if (Value* result = special_operator(t, op, a, b, in_place)) return result;
  const bool promotes_alike = op == BinaryOp::add || op == BinaryOp::subtract || op == BinaryOp::multiply ||
                              ((op == BinaryOp::true_divide || op == BinaryOp::floor_divide) && other == b);
  if (Value* input = promotes_alike ? float_input(t, other, other == b ? a : b) : nullptr) {
    if (other == a)
      return t.calls.recorded(operator_function(names.function),
                              operands(t.facts, {names.special, names.reflected}, {input, b}));
    b = input;
  }
  const bool by_value = op == BinaryOp::power || op == BinaryOp::remainder;
  if (Value* number = by_value && other == b ? t.tensors.float_number(b) : nullptr) b = number;
  if (by_value && other == a && t.numbers.is_open_float(a))
    return t.call(t.get_attribute(b, interned(names.reflected)), {a});
  // As Tensor.__rtruediv__ does.
  const BinaryNames& product = names_of(BinaryOp::multiply);
  if (Value* input = op == BinaryOp::true_divide && other == a ? float_input(t, a, b) : nullptr)
    return t.calls.recorded(operator_function(product.function),
                            operands(t.facts, {product.special, names.reflected},
                                     {t.call(t.get_attribute(b, interned("reciprocal")), {}), input}));
  if (in_place)
    return t.calls.recorded(operator_function(names.in_place_function),
                            operands(t.facts, {names.in_place, names.special, names.reflected}, {a, b}));
  return t.calls.recorded(operator_function(names.function),
                          operands(t.facts, {names.special, names.reflected}, {a, b}));
}

}  // namespace

Value* Tracer::binary_operator(BinaryOp op, Value* a, Value* b, bool in_place) {
  return with_cpython_errors(
      numbers,
      [&] {
        const BinaryNames& names = names_of(op);
        PyObject* function = operator_function(in_place ? names.in_place_function : names.function);
        return CCall{function, Arguments{{a, b}, {}}, {names.special, names.reflected, names.in_place}};
      },
      [&] { return binary_operator_with_own_errors(op, a, b, in_place); });
}

Value* Tracer::binary_operator_with_own_errors(BinaryOp op, Value* a, Value* b, bool in_place) {
  const BinaryNames& names = names_of(op);
  PyObject* function = operator_function(in_place ? names.in_place_function : names.function);
  const bool has_array = a->kind == ValueKind::array || b->kind == ValueKind::array;
  if (has_array && !(in_place && a->kind == ValueKind::tensor))
    return array_operator(*this, in_place ? names.in_place_function : names.function, a, b, in_place);
  if (a->kind == ValueKind::tensor || b->kind == ValueKind::tensor) return tensor_operator(*this, op, a, b, in_place);
  Value *left = payload_of(a), *right = payload_of(b);
  const bool python =
      (a->kind == ValueKind::instance || b->kind == ValueKind::instance || real_type(a) || real_type(b));
  if (python)
    if (Value* result = special_operator(*this, op, a, b, in_place)) return result;
  // If a class overrides the operator, the number's own one is not used.
  const auto is_own = [&](Value* v, const char* special) {
    return v->kind == ValueKind::instance && payload_of(v)->kind != ValueKind::instance &&
           python_special(*this, v, special);
  };
  if (python && is_own(a, names.special) && (facts.type_of(a) == facts.type_of(b) || is_own(b, names.reflected)))
    errors.raise_new(PyExc_TypeError, std::string("unsupported operand type(s) for ") + names.symbol +
                                          (in_place ? "=" : "") + ": '" + a->type->tp_name + "' and '" +
                                          b->type->tp_name + "'");
  refuse_unknown_arithmetic(a, names.special);
  refuse_unknown_arithmetic(b, names.special);
  if ((left->kind == ValueKind::sym_int && is_int(right)) || (right->kind == ValueKind::sym_int && is_int(left))) {
    const auto x = as_size(left), y = as_size(right);
    if (Value* result = x && y ? size_operator(errors, op, *x, *y) : nullptr) return result;
  }
  const bool formats = op == BinaryOp::remainder && left->kind == ValueKind::object && left->object &&
                       PyUnicode_CheckExact(left->object.get());
  if (formats && !is_plain(shadows, b)) return format_percent(*this, left, b);
  if (formats && plain_text(shadows, left, "format").find('%') == std::string::npos)
    return itself_if_unchanged(shadows, a, calls.pure(function, Arguments{{left, right}, {}}));
  for (Value* v : {a, b})
    if (op == BinaryOp::add && (is_list_or_tuple(a) || is_list_or_tuple(b)) && adds_in_c(facts, v) && !is_size(v))
      graph_break(Reason::unsupported_operand, std::string("operator ") + names.symbol + " on " + describe(v));
  if (is_list_or_tuple(a) || is_list_or_tuple(b) || set_of(a) || dict_of(a) || a->kind == ValueKind::view ||
      b->kind == ValueKind::view)
    if (Value* result = container_operator(*this, op, a, b, in_place)) return result;
  if (numbers.is_open_float(left) || numbers.is_open_float(right))
    if (Value* result = numbers.float_arithmetic(op, left, right)) return result;
  if (Value* result = numbers.computed(operator_function(names.function), {left, right})) return result;
  left = specialised(heap, left);
  right = specialised(heap, right);
  const bool concrete =
      (is_plain(shadows, left) || heap.is_constant(left)) && (is_plain(shadows, right) || heap.is_constant(right));
  for (Value* v : {left, right})
    if (concrete && op == BinaryOp::bit_or && v->object && !type_compares_in_c(v->object.get()))
      graph_break(Reason::unsupported_operand, "operator | on " + describe(v));
  if (concrete) return calls.pure(function, Arguments{{left, right}, {}});
  for (Value* v : {a, b})
    if (may_know_operator(heap, v) || (op == BinaryOp::multiply && repeats(shadows, v, v == a ? b : a)))
      graph_break(Reason::unsupported_operand, std::string("operator ") + names.symbol + " on " + describe(v));
  errors.raise_new(PyExc_TypeError, std::string("unsupported operand type(s) for ") + names.symbol +
                                        (in_place ? "=" : "") + ": '" + facts.type_of(a)->tp_name + "' and '" +
                                        facts.type_of(b)->tp_name + "'");
}

Value* Tracer::unary_operator(UnaryOp op, Value* v) {
  return with_cpython_errors(
      numbers, [&] { return CCall{operator_function(names_of(op).function), Arguments{{v}, {}}}; },
      [&] { return unary_operator_with_own_errors(op, v); });
}

Value* Tracer::unary_operator_with_own_errors(UnaryOp op, Value* v) {
  const UnaryNames& names = names_of(op);
  PyObject* const function = operator_function(names.function);
  if (v->kind == ValueKind::tensor) return calls.recorded(function, operands(facts, {names.special}, {v}));
  if (v->kind == ValueKind::array) return call_numpy(*this, function, Arguments{{v}, {}});
  if (Value* method = python_special(*this, v, names.special)) return call(method, {});
  refuse_unknown_arithmetic(v, names.special);
  Value* inner = payload_of(v);
  if (inner->kind == ValueKind::sym_int) {
    if (op == UnaryOp::positive) return inner;
    const graph::SymExpr from(op == UnaryOp::negative ? 0 : -1);
    if (Value* result = size_operator(errors, BinaryOp::subtract, from, as<SymIntValue>(inner)->expr)) return result;
  }
  if (op == UnaryOp::negative && numbers.is_open_float(inner))
    return numbers.float_arithmetic(BinaryOp::multiply, inner, heap.integer(-1));
  if (Value* result = numbers.computed(function, {inner})) return result;
  inner = specialised(heap, inner);
  if (is_plain(shadows, inner)) return calls.pure(function, Arguments{{inner}, {}});
  const PyNumberMethods* slots = builtin_base(facts.type_of(v))->tp_as_number;
  raise_unless_in_c(errors, v, slots && slots->*kUnarySlots[static_cast<int>(op)],
                    std::string("bad operand type for unary ") + names.symbol + ": '" + v->type->tp_name + "'");
}

}  // namespace framejit::frame_hook
