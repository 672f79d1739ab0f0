// frame_hook/trace/types/numbers.cpp — numbers: int(), abs(), min(), sum(), math: concretely on constants, sizes
// symbolically where the result is a size, tensors through their own methods.
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook::rows {

namespace {

// A C function of numbers: computed in each call if they are open, otherwise on their values.
Value* run_number(RealCalls& calls, PyObject* function, const Arguments& args) {
  Value* result = calls.tensors.numbers.computed(function, args);
  return result ? result : calls.plain(function, without_symbols(calls.dicts.shadows, args));
}

[[noreturn]] void reads_tensor(const char* function) {
  graph_break(Reason::data_dependent_value, std::string(function) + "() of a tensor");
}

Value* known_or_break(Value* known, const char* function) {
  if (!known) reads_tensor(function);
  return known;
}

// The special method, if Python code implements it; null otherwise.
Value* through_special(Tracer& t, const Arguments& args, const char* special) {
  if (args.positional.empty() || args.positional[0]->kind == ValueKind::tensor) return nullptr;
  Value* method = python_special(t, args.positional[0], special);
  return method ? t.call(method, Arguments{{args.positional.begin() + 1, args.positional.end()}, args.keywords})
                : nullptr;
}

// The type that a special method must return; plain Python warns about subclasses and refuses the rest.
Value* exactly(Facts& facts, PyTypeObject* type, Value* result, const char* special) {
  if (result && facts.type_of(result) != type)
    graph_break(Reason::exception_raised,
                std::string("a TypeError of ") + special + "() that returns " + describe(result));
  return result;
}

Value* number_constructor(Tracer& t, PyTypeObject* type, const Arguments& args, const char* special) {
  if (!args.positional.empty() && args.positional[0]->kind == ValueKind::tensor) {
    Value* known = args.positional.size() == 1 && args.keywords.empty()
                       ? of_known_tensor(t.calls, reinterpret_cast<PyObject*>(type), args.positional[0])
                       : nullptr;
    return known_or_break(known, type->tp_name);
  }
  if (args.positional.size() == 1 && args.keywords.empty() && args.positional[0]->kind == ValueKind::array)
    return call_numpy(t, reinterpret_cast<PyObject*>(type), args);
  if (Value* result = through_special(t, args, special)) return exactly(t.facts, type, result, special);
  return run_number(t.calls, reinterpret_cast<PyObject*>(type), args);
}

// min() and max(): the first smallest or largest by `op`.
Value* extreme(Tracer& t, const Arguments& args, int op, const char* name) {
  Value *key = nullptr, *fallback = nullptr;
  for (const auto& [n, v] : args.keywords) {
    if (std::string_view(text_of(n)) == "key") key = v;
    else if (std::string_view(text_of(n)) == "default") fallback = v;
    else graph_break(Reason::exception_raised, std::string("a TypeError of ") + name + "()");
  }
  if (args.positional.empty())
    t.errors.raise_new(PyExc_TypeError, std::string(name) + " expected at least 1 argument, got 0");
  const bool keyed = !is_none(t.facts, key);
  Value *best = nullptr, *best_key = nullptr;
  t.for_each(args.positional.size() == 1 ? args.positional[0] : t.heap.tuple(args.positional), [&](Value* item) {
    Value* item_key = keyed ? t.call(key, {item}) : item;
    if (best && !t.truth(t.compare(op, item_key, best_key))) return;
    best = item;
    best_key = item_key;
  });
  if (best) return best;
  if (fallback) return fallback;
  const char* const empty =
      PY_VERSION_HEX >= 0x030C0000 ? "() iterable argument is empty" : "() arg is an empty sequence";
  t.errors.raise_new(PyExc_ValueError, std::string(name) + empty);
}

Value* rounded(Tracer& t, const Arguments& args, const char* name, const char* special) {
  only_positional(t.errors, args, name, 1, 1);
  if (args.positional[0]->kind == ValueKind::tensor) {
    if (Value* method = t.lookup_special(args.positional[0], special)) return t.call(method, {});
    return known_or_break(of_known_tensor(t.calls, original("math", name), args.positional[0]), name);
  }
  if (payload_of(args.positional[0])->kind == ValueKind::sym_int) return payload_of(args.positional[0]);
  if (Value* result = through_special(t, args, special)) return result;
  return run_number(t.calls, original("math", name), args);
}

}  // namespace

Value* builtin_int(Tracer& t, const Arguments& args) {
  if (args.positional.size() == 1 && args.keywords.empty() &&
      payload_of(args.positional[0])->kind == ValueKind::sym_int)
    return payload_of(args.positional[0]);
  if (!args.positional.empty() && args.positional[0]->kind == ValueKind::instance)
    if (Value* method = python_special(t, args.positional[0], "__index__"))
      if (!python_special(t, args.positional[0], "__int__") && payload_of(args.positional[0]) == args.positional[0])
        return exactly(t.facts, &PyLong_Type, t.call(method, {}), "__index__");
  return number_constructor(t, &PyLong_Type, args, "__int__");
}

Value* builtin_float(Tracer& t, const Arguments& args) {
  return number_constructor(t, &PyFloat_Type, args, "__float__");
}

Value* builtin_bool(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "bool", 0, 1);
  return t.heap.boolean(!args.positional.empty() && t.truth(args.positional[0]));
}

Value* builtin_abs(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "abs", 1, 1);
  Value* v = args.positional[0];
  if (v->kind == ValueKind::tensor) return t.call(t.lookup_special(v, "__abs__"), {});
  if (Value* result = through_special(t, args, "__abs__")) return result;
  if (payload_of(v)->kind == ValueKind::sym_int && !t.truth(t.compare(Py_LT, payload_of(v), t.heap.integer(0))))
    return payload_of(v);
  refuse_unknown_arithmetic(v, "abs()");
  return run_number(t.calls, builtin_function("abs"), args);
}

Value* builtin_round(Tracer& t, const Arguments& args) {
  if (!args.positional.empty() && args.positional[0]->kind == ValueKind::tensor) {
    Value* method = t.lookup_special(args.positional[0], "__round__");
    if (!method) t.errors.raise_new(PyExc_TypeError, "type Tensor doesn't define __round__ method");
    return t.call(method, Arguments{{args.positional.begin() + 1, args.positional.end()}, {}});
  }
  if (Value* result = through_special(t, args, "__round__")) return result;
  if (!args.positional.empty()) refuse_unknown_arithmetic(args.positional[0], "round()");
  return run_number(t.calls, builtin_function("round"), args);
}

Value* builtin_divmod(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "divmod", 2, 2);
  for (Value* v : args.positional) {
    const ValueKind kind = payload_of(v)->kind;
    const bool is_own = has_any_special(t.shadows, v, {"__divmod__", "__rdivmod__"});
    if (is_own || (kind != ValueKind::object && kind != ValueKind::sym_int))
      graph_break(Reason::unsupported_operand,
                  std::string("divmod() of an object of type ") + t.facts.type_of(v)->tp_name);
  }
  // divmod() of ints is C code: it calls neither __floordiv__ nor __mod__ of a subclass.
  Value *a = payload_of(args.positional[0]), *b = payload_of(args.positional[1]);
  Value* quotient = t.binary_operator(BinaryOp::floor_divide, a, b);
  return t.heap.tuple({quotient, t.binary_operator(BinaryOp::remainder, a, b)});
}

Value* builtin_pow(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "pow", {"base", "exp", "mod"}, 2);
  if (!a[2]) return t.binary_operator(BinaryOp::power, a[0], a[1]);
  for (Value* v : a)
    if (v->kind == ValueKind::instance)
      graph_break(Reason::unsupported_operand, "pow() with a modulus, of " + describe(v));
  return t.calls.plain(builtin_function("pow"), without_symbols(t.shadows, args));
}

Value* builtin_min(Tracer& t, const Arguments& args) { return extreme(t, args, Py_LT, "min"); }
Value* builtin_max(Tracer& t, const Arguments& args) { return extreme(t, args, Py_GT, "max"); }

namespace {

// Adding such numbers runs no Python code and raises nothing.
bool is_number(Shadows& shadows, Value* v) {
  PyObject* object = v->kind == ValueKind::object ? v->object.get() : nullptr;
  return object && (PyLong_CheckExact(object) || PyBool_Check(object) || PyFloat_CheckExact(object)) &&
         is_plain(shadows, v);
}

}  // namespace

Value* builtin_sum(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "sum", {"iterable", "start"}, 1);
  Value* total = a[1] ? a[1] : t.heap.integer(0);
  if (payload_of(total)->object && PyUnicode_Check(payload_of(total)->object.get()))
    t.errors.raise_new(PyExc_TypeError, "sum() can't sum strings [use ''.join(seq) instead]");
  // CPython 3.12 adds floats with compensation as long as all items are numbers: let CPython do that itself.
  std::vector<Value*> numbers;
  bool numbers_alone = is_number(t.shadows, total);
  const auto add_numbers = [&] {
    if (numbers.empty()) return;
    Value* taken = t.heap.tuple(std::exchange(numbers, {}));
    total = t.calls.pure(builtin_function("sum"), Arguments{{taken, total}, {}});
  };
  t.for_each(a[0], [&](Value* v) {
    if (numbers_alone && is_number(t.shadows, v)) return numbers.push_back(v);
    numbers_alone = false;
    add_numbers();
    total = t.binary_operator(BinaryOp::add, total, v);
  });
  add_numbers();
  return total;
}

Value* operator_index(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "index", 1, 1);
  Value* v = args.positional[0];
  if (v->kind == ValueKind::tensor) reads_tensor("operator.index");
  if (payload_of(v)->kind == ValueKind::sym_int) return payload_of(v);
  const bool is_an_int = PyType_IsSubtype(t.facts.type_of(v), &PyLong_Type);  // it is its own index
  if (is_an_int && v->kind == ValueKind::instance) return payload_of(v);
  if (Value* result = through_special(t, args, "__index__")) return exactly(t.facts, &PyLong_Type, result, "__index__");
  return t.calls.plain(operator_function("index"), without_symbols(t.shadows, args));
}

Value* math_prod(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "prod", {"iterable", "$start"}, 1);
  Value* product = a[1] ? a[1] : t.heap.integer(1);
  t.for_each(a[0], [&](Value* v) { product = t.binary_operator(BinaryOp::multiply, product, v); });
  return product;
}

Value* math_trunc(Tracer& t, const Arguments& args) { return rounded(t, args, "trunc", "__trunc__"); }
Value* math_floor(Tracer& t, const Arguments& args) { return rounded(t, args, "floor", "__floor__"); }
Value* math_ceil(Tracer& t, const Arguments& args) { return rounded(t, args, "ceil", "__ceil__"); }

}  // namespace framejit::frame_hook::rows
