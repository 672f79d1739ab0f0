// frame_hook/trace/machine/handlers_operator.cpp — operators, subscripts, attributes, pattern matching.
#include "frame_hook/trace/machine/opcode_handlers.h"
#include "frame_hook/trace/protocol/patterns.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

Flow OpcodeHandlers::unary_positive(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* v = f.pop();
  f.push(t.unary_operator(UnaryOp::positive, v));
  return Flow::next;
}

Flow OpcodeHandlers::unary_negative(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* v = f.pop();
  f.push(t.unary_operator(UnaryOp::negative, v));
  return Flow::next;
}

Flow OpcodeHandlers::unary_invert(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* v = f.pop();
  f.push(t.unary_operator(UnaryOp::invert, v));
  return Flow::next;
}

Flow OpcodeHandlers::unary_not(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* v = f.pop();
  f.push(t.heap.boolean(!t.truth(v)));
  return Flow::next;
}

Flow OpcodeHandlers::to_bool(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* v = f.pop();
  f.push(t.heap.boolean(t.truth(v)));
  return Flow::next;
}

Flow OpcodeHandlers::binary_op(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* right = f.pop();
  Value* left = f.pop();
  f.push(t.binary_operator(static_cast<BinaryOp>(i.arg % kBinaryOps), left, right, /*in_place=*/i.arg >= kBinaryOps));
  return Flow::next;
}

Flow OpcodeHandlers::compare_op(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* right = f.pop();
  Value* left = f.pop();
  Value* result = t.compare(i.arg, left, right);
  f.push(i.has(Instruction::kToBool) ? t.heap.boolean(t.truth(result)) : result);
  return Flow::next;
}

Flow OpcodeHandlers::is_op(Shadows& shadows, SymbolicFrame& f, const Instruction& i) {
  Value* right = f.pop();
  Value* left = f.pop();
  f.push(shadows.heap.boolean(same_object(shadows, left, right) != (i.arg == 1)));
  return Flow::next;
}

Flow OpcodeHandlers::contains_op(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* container = f.pop();
  Value* item = f.pop();
  f.push(t.heap.boolean(t.contains(container, item) != (i.arg == 1)));
  return Flow::next;
}

Flow OpcodeHandlers::binary_subscr(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* key = f.pop();
  Value* container = f.pop();
  f.push(t.get_item(container, key));
  return Flow::next;
}

Flow OpcodeHandlers::store_subscr(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* key = f.pop();
  Value* container = f.pop();
  Value* value = f.pop();
  t.set_item(container, key, value);
  return Flow::next;
}

Flow OpcodeHandlers::delete_subscr(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* key = f.pop();
  Value* container = f.pop();
  t.delete_item(container, key);
  return Flow::next;
}

namespace {

Value* pop_slice(Heap& heap, SymbolicFrame& f) {
  auto* slice = heap.make<SliceValue>(ValueKind::slice, &PySlice_Type);
  slice->stop = f.pop();
  slice->start = f.pop();
  slice->step = heap.none();
  return slice;
}

}  // namespace

Flow OpcodeHandlers::binary_slice(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* slice = pop_slice(t.heap, f);
  Value* container = f.pop();
  f.push(t.get_item(container, slice));
  return Flow::next;
}

Flow OpcodeHandlers::store_slice(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* slice = pop_slice(t.heap, f);
  Value* container = f.pop();
  Value* value = f.pop();
  t.set_item(container, slice, value);
  return Flow::next;
}

// ---- attributes

namespace {

// For a call that follows. Pushes a bound Python method as function and object, anything else as a NULL and the value.
void push_for_call(Heap& heap, SymbolicFrame& f, const Instruction& i, Value* object, Value* value) {
  if (value->kind == ValueKind::method && !value->object && as<MethodValue>(value)->self == object &&
      as<MethodValue>(value)->function->kind == ValueKind::function) {
    f.push(as<MethodValue>(value)->function);
    f.push(object);
    return;
  }
  const bool above = i.has(Instruction::kNullAbove);
  f.push(above ? value : heap.null_value());
  f.push(above ? heap.null_value() : value);
}

}  // namespace

Flow OpcodeHandlers::load_attr(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* object = f.pop();
  Value* value = t.get_attribute(object, i.object);
  if (i.has(Instruction::kMethod)) push_for_call(t.heap, f, i, object, value);
  else f.push(value);
  return Flow::next;
}

// super() without arguments gets the class and the object that it would find in the frame.
Flow OpcodeHandlers::load_super_attr(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* object = f.pop();
  Value* type = f.pop();
  Value* callable = f.pop();
  if (callable->kind != ValueKind::object || callable->object.get() != reinterpret_cast<PyObject*>(&PySuper_Type))
    graph_break(Reason::odd_scope, "another object under the name super");
  t.facts.guard_identity(callable);
  Value* value = t.get_attribute(t.call(callable, {type, object}), i.object);
  if (i.has(Instruction::kMethod)) push_for_call(t.heap, f, i, object, value);
  else f.push(value);
  return Flow::next;
}

Flow OpcodeHandlers::store_attr(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* object = f.pop();
  Value* value = f.pop();
  t.set_attribute(object, i.object, value);
  return Flow::next;
}

Flow OpcodeHandlers::delete_attr(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  t.delete_attribute(f.pop(), i.object);
  return Flow::next;
}

// ---- match statements

Flow OpcodeHandlers::get_len(Tracer& t, SymbolicFrame& f, const Instruction&) {
  const auto n = t.length(f.top());
  if (!n) graph_break(Reason::unsupported_pattern, "the length of a matched value");
  f.push(t.heap.integer(*n));
  return Flow::next;
}

Flow OpcodeHandlers::match_mapping(Heap& heap, SymbolicFrame& f, const Instruction&) {
  f.push(heap.boolean((heap.facts.type_of(f.top())->tp_flags & Py_TPFLAGS_MAPPING) != 0));
  return Flow::next;
}

Flow OpcodeHandlers::match_sequence(Heap& heap, SymbolicFrame& f, const Instruction&) {
  f.push(heap.boolean((heap.facts.type_of(f.top())->tp_flags & Py_TPFLAGS_SEQUENCE) != 0));
  return Flow::next;
}

// value keys -- value keys values_or_none
Flow OpcodeHandlers::match_keys(Tracer& t, SymbolicFrame& f, const Instruction&) {
  f.push(mapping_pattern(t, f.top(1), f.top()));
  return Flow::next;
}

// value type names -- attributes_or_none
Flow OpcodeHandlers::match_class(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  const std::vector<Value*> names = t.unpack(f.pop());
  Value* type = f.pop();
  Value* subject = f.pop();
  f.push(class_pattern(t, subject, type, static_cast<size_t>(i.arg), names));
  return Flow::next;
}

}  // namespace framejit::frame_hook
