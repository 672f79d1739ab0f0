// frame_hook/trace/types/comparisons.cpp — comparisons as the builtin types implement them: sizes through the shape
// environment (an answer from a hint becomes a guarded fact), containers item by item.
#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook {

namespace {

bool decide(Heap& heap, int op, const graph::SymExpr& a, const graph::SymExpr& b) {
  using graph::Relation;
  graph::ShapeEnv& shapes = heap.recording().shapes();
  const std::string here = heap.facts.stack.here();
  switch (op) {
    case Py_LT: return shapes.decide(a, Relation::kLt, b, here);
    case Py_LE: return shapes.decide(a, Relation::kLe, b, here);
    case Py_EQ: return shapes.decide(a, Relation::kEq, b, here);
    case Py_NE: return shapes.decide(a, Relation::kNe, b, here);
    case Py_GT: return shapes.decide(b, Relation::kLt, a, here);
    default: return shapes.decide(b, Relation::kLe, a, here);
  }
}

bool answer(int op, bool equal) { return op == Py_EQ ? equal : !equal; }

// Lists and tuples: the first items that differ decide.
Value* compare_sequences(Tracer& t, int op, Value* a, Value* b) {
  std::vector<Value*> left = t.unpack(payload_of(a)), right = t.unpack(payload_of(b));
  if ((op == Py_EQ || op == Py_NE) && left.size() != right.size()) return t.heap.boolean(answer(op, false));
  Unresumable guard(t.stack);
  for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (t.dicts.equal(left[i], right[i])) continue;
    if (op == Py_EQ || op == Py_NE) return t.heap.boolean(answer(op, false));
    return t.compare(op, left[i], right[i]);
  }
  return t.compare(op, t.heap.integer(static_cast<int64_t>(left.size())),
                   t.heap.integer(static_cast<int64_t>(right.size())));
}

bool equal_dicts(Dicts& dicts, DictValue* a, DictValue* b) {
  dicts.load(a);
  dicts.load(b);
  if (a->entries.size() != b->entries.size()) return false;
  Unresumable guard(dicts.facts.stack);
  const std::vector<DictEntry> entries = a->entries;
  for (const DictEntry& e : entries) {
    Value* other = dicts.get(b, e.key);
    if (!other || !dicts.equal(e.value, other)) return false;
  }
  return true;
}

Value* compare_sets(Tracer& t, int op, Value* a, Value* b) {
  SetValue* left = set_of(a) ? set_of(a) : make_set(t.dicts, &PySet_Type, t.unpack(payload_of(a)));
  SetValue* right = set_of(b) ? set_of(b) : make_set(t.dicts, &PySet_Type, t.unpack(payload_of(b)));
  t.shadows.load(left);
  t.shadows.load(right);
  auto is_subset = [&](SetValue* small, SetValue* large) {
    for (Value* item : small->items)
      if (find_in_set(t.dicts, large, item) < 0) return false;
    return true;
  };
  const size_t m = left->items.size(), n = right->items.size();
  switch (op) {
    case Py_EQ: return t.heap.boolean(m == n && is_subset(left, right));
    case Py_NE: return t.heap.boolean(!(m == n && is_subset(left, right)));
    case Py_LE: return t.heap.boolean(m <= n && is_subset(left, right));
    case Py_LT: return t.heap.boolean(m < n && is_subset(left, right));
    case Py_GE: return t.heap.boolean(n <= m && is_subset(right, left));
    default: return t.heap.boolean(n < m && is_subset(right, left));
  }
}

bool is_set_like(Value* v) {
  if (set_of(v)) return true;
  auto* view = payload_as<ViewValue>(v, ValueKind::view);
  return view && view->what != ViewValue::What::values;
}

// Whether a type's comparison in C is one that raw_compare() implements: by identity, or that of the builtin type
// that it extends.
bool compares_as_known(PyTypeObject* type) {
  const richcmpfunc compare = builtin_base(type)->tp_richcompare;
  for (PyTypeObject* known : {&PyBaseObject_Type, &PyLong_Type, &PyFloat_Type, &PyComplex_Type, &PyUnicode_Type,
                              &PyBytes_Type, &PyTuple_Type, &PyList_Type, &PyDict_Type, &PySet_Type, &PySlice_Type,
                              &PyRange_Type, &PyMethod_Type, &PyODict_Type, &PyDictProxy_Type, Py_TYPE(Py_None)})
    if (compare == known->tp_richcompare) return true;
  return !compare;
}

// Other C types have their own comparison. It runs concretely if both operands are constants, and otherwise in plain
// Python.
void refuse_unknown_comparison(Heap& heap, Value* a, Value* b) {
  // An instance without a payload, of a subclass of complex, is known by its address alone.
  auto has_value = [](Value* v) {
    const richcmpfunc compare =
        v->kind == ValueKind::instance && payload_of(v) == v ? builtin_base(v->type)->tp_richcompare : nullptr;
    return !compare || compare == PyBaseObject_Type.tp_richcompare;
  };
  if (!has_value(a) || !has_value(b))
    graph_break(Reason::unsupported_operand, "the comparison of " + describe(a) + " and " + describe(b));
  auto known = [&](Value* v) {
    return (v->kind != ValueKind::object && v->kind != ValueKind::instance && v->kind != ValueKind::cell) ||
           compares_as_known(v->type);
  };
  if (known(a) && known(b)) return;
  if (a->kind == ValueKind::object && b->kind == ValueKind::object && heap.is_constant(a) && heap.is_constant(b))
    return;
  graph_break(Reason::unsupported_operand, "the comparison of " + describe(a) + " and " + describe(b));
}

bool in_the_same_order(Dicts& dicts, DictValue* a, DictValue* b) {
  for (size_t i = 0; i < a->entries.size(); ++i)
    if (!dicts.equal(a->entries[i].key, b->entries[i].key)) return false;
  return true;
}

}  // namespace

Value* raw_compare(Tracer& t, int op, Value* a, Value* b) {
  refuse_unknown_comparison(t.heap, a, b);
  Value *left = contents_of(t.heap, a), *right = contents_of(t.heap, b);
  if ((list_of(left) && list_of(right)) || (tuple_of(left) && tuple_of(right)))
    return compare_sequences(t, op, left, right);
  const bool equality = op == Py_EQ || op == Py_NE;
  if (equality && left->kind == ValueKind::dict && right->kind == ValueKind::dict) {
    auto *x = as<DictValue>(left), *y = as<DictValue>(right);
    return t.heap.boolean(answer(op, equal_dicts(t.dicts, x, y) && (!shows_ordered_dict(a) || !shows_ordered_dict(b) ||
                                                                    in_the_same_order(t.dicts, x, y))));
  }
  if (is_set_like(left) && is_set_like(right)) return compare_sets(t, op, left, right);
  if (equality && left->kind == ValueKind::slice && right->kind == ValueKind::slice) {
    auto *x = as<SliceValue>(left), *y = as<SliceValue>(right);
    return t.heap.boolean(answer(
        op, t.dicts.equal(x->start, y->start) && t.dicts.equal(x->stop, y->stop) && t.dicts.equal(x->step, y->step)));
  }
  if (equality && left->kind == ValueKind::method && right->kind == ValueKind::method) {
    auto *x = as<MethodValue>(left), *y = as<MethodValue>(right);
    return t.heap.boolean(
        answer(op, same_object(t.shadows, x->self, y->self) && same_object(t.shadows, x->function, y->function)));
  }
  auto beside = [](Value* v, Value* other) {
    return v->kind == ValueKind::method && v->type != &PyMethod_Type && other->kind == ValueKind::object &&
           other->type == v->type;
  };
  if (beside(left, right) || beside(right, left))
    graph_break(Reason::unsupported_operand, "the comparison of methods in C");
  if (left->kind == ValueKind::identity || right->kind == ValueKind::identity) {
    if (left->kind == right->kind && equality)
      return t.heap.boolean(
          answer(op, same_object(t.shadows, as<IdentityValue>(left)->of, as<IdentityValue>(right)->of)));
    if (left->kind == right->kind || is_int(left) || is_int(right))
      specialised(t.heap, left->kind == ValueKind::identity ? left : right);
  }
  if ((left->kind == ValueKind::sym_int && is_int(right)) || (right->kind == ValueKind::sym_int && is_int(left))) {
    auto x = t.as_size(left), y = t.as_size(right);
    if (x && y) return t.heap.boolean(decide(t.heap, op, *x, *y));
  }
  auto is_number = [](Value* v) {
    return v->kind == ValueKind::sym_int ||
           (v->object &&
            (PyLong_Check(v->object.get()) || PyFloat_Check(v->object.get()) || PyComplex_Check(v->object.get())));
  };
  if (is_number(left) && is_number(right)) {
    if (Value* result = t.numbers.computed(operator_function(kComparisonNames[op].function), {left, right}))
      return result;
    left = specialised(t.heap, left);
    right = specialised(t.heap, right);
  }
  const bool constants = left->kind != ValueKind::instance && right->kind != ValueKind::instance &&
                         t.heap.is_constant(left) && t.heap.is_constant(right);
  if (!constants) return nullptr;
  // Pairs of unlike builtin types, such as None and a str, are unequal because of their types alone.
  if (equality && left->kind == ValueKind::object && right->kind == ValueKind::object && left->type != right->type &&
      !is_number(left) && is_plain(left->object.get()) && is_plain(right->object.get()) &&
      !is_numpy_scalar(left->object.get()) && !is_numpy_scalar(right->object.get())) {
    t.facts.type_of(left);
    t.facts.type_of(right);
    return t.heap.boolean(answer(op, false));
  }
  PyObject *x = constant_of(t.shadows, left), *y = constant_of(t.shadows, right);
  if (real_type(left) || real_type(right) || !Py_TYPE(x)->tp_richcompare) {
    if (!equality) return nullptr;
    return t.heap.boolean(answer(op, x == y));
  }
  return t.errors.constant_steal(PyObject_RichCompare(x, y, op));
}

std::optional<bool> raw_equal(Tracer& t, Value* a, Value* b) {
  Value* result = raw_compare(t, Py_EQ, a, b);
  if (!result || is_not_implemented(result)) return std::nullopt;
  return t.truth(result);
}

}  // namespace framejit::frame_hook
