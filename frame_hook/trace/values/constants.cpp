// frame_hook/trace/values/constants.cpp — concrete objects of values, guarded deeply.
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/shadows.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

using guards::kNoSource;

int64_t specialise(Heap& heap, const graph::SymExpr& size) {
  return heap.recording().shapes().specialise(size, heap.facts.stack.here());
}

Value* specialised(Heap& heap, Value* v) {
  if (v->kind == ValueKind::identity) graph_break(Reason::escaped_traced, "id(), used as a number,");
  if (v->kind != ValueKind::sym_int) return v;
  const graph::SymExpr& size = as<SymIntValue>(v)->expr;
  const std::optional<int64_t> constant = size.as_constant();
  return heap.integer(constant ? *constant : specialise(heap, size));
}

Value* without_symbols(Shadows& shadows, Value* v) {
  v = specialised(shadows.heap, payload_of(v));
  if (v->kind != ValueKind::tuple || shadows.heap.is_constant(v)) return v;
  shadows.facts.type_of(v);
  std::vector<Value*> items = items_of(shadows, v);
  for (Value*& item : items)
    if (item->kind == ValueKind::sym_int || item->kind == ValueKind::tuple) item = without_symbols(shadows, item);
  return shadows.heap.tuple(std::move(items));
}

Arguments without_symbols(Shadows& shadows, const Arguments& args) {
  Arguments plain = args;
  for (Value*& v : plain.positional) v = without_symbols(shadows, v);
  for (auto& [name, v] : plain.keywords) v = without_symbols(shadows, v);
  return plain;
}

namespace {

PyRef real_item(Shadows& shadows, Value* v) {
  // A built-in method is a constant object, but its value is not: it is a MethodValue.
  if (!shadows.heap.is_constant(v))
    graph_break(Reason::unsupported_operand,
                std::string("an object of type ") + v->type->tp_name + " passed to a C function");
  if (v->kind == ValueKind::sym_int) return PyRef::steal(PyLong_FromLongLong(*as<SymIntValue>(v)->expr.as_constant()));
  if (v->kind != ValueKind::slice) return PyRef::borrow(constant_of(shadows, v));
  auto* s = as<SliceValue>(v);
  const PyRef start = real_item(shadows, s->start), stop = real_item(shadows, s->stop),
              step = real_item(shadows, s->step);
  return PyRef::steal(PySlice_New(start.get(), stop.get(), step.get()));
}

// A tuple of the items of a constant.
PyRef real_items(Shadows& shadows, const std::vector<Value*>& items) {
  PyRef made = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  if (!made) shadows.errors.raise_pending();
  for (size_t i = 0; i < items.size(); ++i)
    PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), real_item(shadows, items[i]).release());
  return made;
}

}  // namespace

PyObject* constant_of(Shadows& shadows, Value* v) {
  Facts& facts = shadows.facts;
  if (v->value_guarded && v->object && v->kind != ValueKind::sym_int) return v->object.get();
  switch (v->kind) {
    case ValueKind::object:
    case ValueKind::instance: facts.guard_value(v); break;
    case ValueKind::tuple:
      if (v->object && holds_only_scalars(v->object.get())) {
        facts.guard_value(v);
      } else {
        PyRef made = real_items(shadows, items_of(shadows, v));
        const bool is_payload =
            v->object &&
            !PyTuple_CheckExact(v->object.get());  // its items are guarded, so it is a tuple like those that the trace
                                                   // makes
        if (is_payload) v->source = kNoSource;
        if (is_payload || !v->object) v->object = made;
        v->value_guarded = true;
      }
      break;
    case ValueKind::set:
      if (v->object) {
        facts.guard_value(v);
      } else {
        PyRef items = real_items(shadows, as<SetValue>(v)->items);
        v->object = PyRef::steal(PyFrozenSet_New(items.get()));
      }
      break;
    case ValueKind::slice: {
      auto* s = as<SliceValue>(v);
      PyObject* const start = constant_of(shadows, s->start);
      PyObject* const stop = constant_of(shadows, s->stop);
      PyObject* const step = constant_of(shadows, s->step);
      if (!v->object) v->object = PyRef::steal(PySlice_New(start, stop, step));
      v->value_guarded = true;
      break;
    }
    case ValueKind::sym_int: {
      const int64_t value = specialise(shadows.heap, as<SymIntValue>(v)->expr);
      if (!v->object) v->object = PyRef::steal(PyLong_FromLongLong(value));
      as<SymIntValue>(v)->expr = graph::SymExpr(value);
      break;
    }
    case ValueKind::null:
    case ValueKind::tensor:
    case ValueKind::list:
    case ValueKind::dict:
    case ValueKind::cell:
    case ValueKind::function:
    case ValueKind::method:
    case ValueKind::iterator:
    case ValueKind::generator:
    case ValueKind::super:
    case ValueKind::view:
    case ValueKind::identity:
    case ValueKind::array: FJ_ASSERT(false, "constant_of() of a value that is not one");
  }
  if (!v->object) shadows.errors.raise_pending();
  return v->object.get();
}

}  // namespace framejit::frame_hook
