// frame_hook/trace/protocol/operators_compare.cpp — rich comparison: sizes through the shape environment (an answer
// from a hint becomes a guarded fact), builtin containers item by item, special methods in CPython's order, identity as
// the last resort of == and !=.
#include <cmath>

#include "frame_hook/trace/protocol/protocol.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/values/object_kinds.h"

namespace framejit::frame_hook {

namespace {

constexpr const char* kSpecials[] = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"};
constexpr const char* kFunctions[] = {"lt", "le", "eq", "ne", "gt", "ge"};
constexpr const char* kSymbols[] = {"<", "<=", "==", "!=", ">", ">="};
constexpr int kSwapped[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};

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

// Whether a type's comparison in C is one that builtin_compare() implements: by identity, or that of the builtin type
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

// The comparison that the builtin types implement; null: NotImplemented.
Value* builtin_compare(Tracer& t, int op, Value* a, Value* b) {
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
    load_method(t.heap, x);
    load_method(t.heap, y);
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
    if (Value* result = t.numbers.computed(operator_function(kFunctions[op]), {left, right})) return result;
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
    Value* method = type_special(t, self, kSpecials[which]);
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
  const bool right_first = left != right && PyType_IsSubtype(right, left);
  if (right_first)
    if (Value* result = attempt(b, kSwapped[op], a)) return result;
  if (Value* result = attempt(a, op, b)) return result;
  return right_first || left_compares(a, b) ? nullptr : attempt(b, kSwapped[op], a);
}

// Whether C code of its class compares it, neither by identity nor as a traced kind of value does.
bool compares_in_c(Heap& heap, Value* v) {
  const bool may_be_of_c = (v->kind == ValueKind::instance || v->kind == ValueKind::object) && payload_of(v) == v;
  if (!may_be_of_c || heap.is_constant(v) || real_type(v)) return false;
  const richcmpfunc compare = builtin_base(heap.facts.type_of(v))->tp_richcompare;
  return compare && compare != PyBaseObject_Type.tp_richcompare;
}

}  // namespace

std::optional<bool> raw_equal(Tracer& t, Value* a, Value* b) {
  Value* result = builtin_compare(t, Py_EQ, a, b);
  if (!result || is_not_implemented(result)) return std::nullopt;
  return t.truth(result);
}

Value* Tracer::compare(int op, Value* a, Value* b) {
  return with_cpython_errors(
      numbers,
      [&] {
        const char* const swapped = kSpecials[kSwapped[op]];
        return CCall{operator_function(kFunctions[op]), Arguments{{a, b}, {}}, {kSpecials[op], swapped}};
      },
      [&] { return compare_with_own_errors(op, a, b); });
}

Value* Tracer::compare_with_own_errors(int op, Value* a, Value* b) {
  if (a->kind == ValueKind::array || b->kind == ValueKind::array)
    return call_numpy(*this, operator_function(kFunctions[op]), Arguments{{a, b}, {}});
  if (a->kind == ValueKind::tensor || b->kind == ValueKind::tensor) {
    Value* other = a->kind == ValueKind::tensor ? b : a;
    const bool takes = other == b && is_subclassed_number(b);  // the tensor is asked first, and takes any number
    if (other->kind == ValueKind::instance && !takes)
      if (Value* result = special_compare(*this, op, a, b)) return result;
    if (Value* input = float_input(*this, other, other == b ? a : b)) (other == b ? b : a) = input;
    return call_recorded(operator_function(kFunctions[op]),
                         operands(facts, {kSpecials[op], kSpecials[kSwapped[op]]}, {a, b}));
  }
  if (a->kind == ValueKind::instance || b->kind == ValueKind::instance || a->kind == ValueKind::object ||
      b->kind == ValueKind::object)
    if (Value* result = special_compare(*this, op, a, b)) return result;
  facts.type_of(a);
  facts.type_of(b);
  Value* result = builtin_compare(*this, op, a, b);
  if (result && !is_not_implemented(result)) return result;
  for (Value* v : {a, b})
    if (!result && compares_in_c(heap, v))
      graph_break(Reason::unsupported_operand, std::string(kSymbols[op]) + " on " + describe(v));
  if (op == Py_EQ || op == Py_NE) return heap.boolean(answer(op, same_object(shadows, a, b)));
  errors.raise_new(PyExc_TypeError, std::string("'") + kSymbols[op] + "' not supported between instances of '" +
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
