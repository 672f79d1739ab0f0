// frame_hook/trace/types/operator_functions.cpp — the functions of module operator, and its getters: each does what the
// operator, the item or the attribute that it names does in traced code.
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/originals.h"

namespace framejit::frame_hook {

namespace {

// C code asks the sequence slot of the class on the left, which no method of a Python class replaces.
Value* concatenated(Tracer& t, const char* name, const std::vector<Value*>& a, bool in_place) {
  bool are_sequences = true;
  for (Value* v : a) {
    t.facts.type_of(v);
    are_sequences = are_sequences && (v->kind == ValueKind::list || v->kind == ValueKind::tuple || is_size(v));
    if (!is_size(v) && payload_of(v) != v)
      graph_break(Reason::unsupported_operand, std::string(name) + "() of " + describe(v));
  }
  if (!are_sequences) return t.calls.plain(operator_function(name), Arguments{a, {}});
  if (!in_place && a[0]->kind == ValueKind::list && is_size(a[1]))
    graph_break(Reason::exception_raised, "an error of " + std::string(name) + "()");
  return t.binary_operator(BinaryOp::add, a[0], is_size(a[0]) ? a[1] : payload_of(a[1]), in_place);
}

}  // namespace

namespace rows {

#define FJ_ROW(handler, name, count, result)                    \
  Value* operator_##handler(Tracer& t, const Arguments& args) { \
    only_positional(t.errors, args, name, count, count);        \
    const std::vector<Value*>& a = args.positional;             \
    return result;                                              \
  }
#define BINARY(op, number, special, function, ...)                            \
  FJ_ROW(function, #function, 2, t.binary_operator(BinaryOp::op, a[0], a[1])) \
  FJ_ROW(i##special, "i" #special, 2, t.binary_operator(BinaryOp::op, a[0], a[1], /*in_place=*/true))
#define UNARY(op, special, function, ...) FJ_ROW(function, #function, 1, t.unary_operator(UnaryOp::op, a[0]))
#define COMPARISON(number, name, ...) FJ_ROW(name, #name, 2, t.compare(number, a[0], a[1]))
#include "frame_hook/bytecode/operators.def"
FJ_ROW(not, "not_", 1, t.heap.boolean(!t.truth(a[0])))
FJ_ROW(is, "is_", 2, t.heap.boolean(same_object(t.shadows, a[0], a[1])))
FJ_ROW(is_not, "is_not", 2, t.heap.boolean(!same_object(t.shadows, a[0], a[1])))
FJ_ROW(concat, "concat", 2, concatenated(t, "concat", a, false))
FJ_ROW(iconcat, "iconcat", 2, concatenated(t, "iconcat", a, true))
FJ_ROW(truth, "truth", 1, t.heap.boolean(t.truth(a[0])))
FJ_ROW(contains, "contains", 2, t.heap.boolean(t.contains(a[0], a[1])))
FJ_ROW(getitem, "getitem", 2, t.get_item(a[0], a[1]))
FJ_ROW(setitem, "setitem", 3, (t.set_item(a[0], a[1], a[2]), t.heap.none()))
FJ_ROW(delitem, "delitem", 2, (t.delete_item(a[0], a[1]), t.heap.none()))
#undef FJ_ROW

// A getter never changes, so one that is made of constants is a constant.
#define FJ_GETTER(handler, type)                                                          \
  Value* handler(Tracer& t, const Arguments& args) {                                      \
    return t.calls.plain(reinterpret_cast<PyObject*>(known_type(KnownType::type)), args); \
  }
FJ_GETTER(operator_itemgetter, item_getter)
FJ_GETTER(operator_attrgetter, attribute_getter)
#undef FJ_GETTER

}  // namespace rows

// Which items or attributes it gets is kept in C; only its __reduce__ shows them.
Value* call_getter(Tracer& t, Value* getter, const Arguments& args) {
  PyObject* const real = getter->object.get();
  t.facts.guard_identity(getter);
  if (args.positional.size() != 1 || !args.keywords.empty())
    graph_break(Reason::exception_raised, std::string("an error of ") + Py_TYPE(real)->tp_name);
  const PyRef reduced = PyRef::steal(PyObject_CallMethod(real, "__reduce__", nullptr));
  PyObject* const wanted = reduced && PyTuple_Check(reduced.get()) && PyTuple_GET_SIZE(reduced.get()) == 2
                               ? PyTuple_GET_ITEM(reduced.get(), 1)
                               : nullptr;
  if (!wanted || !PyTuple_CheckExact(wanted)) graph_break(Reason::unknown_callable, Py_TYPE(real)->tp_name);
  const bool is_item = is_known(Py_TYPE(real), KnownType::item_getter);
  std::vector<Value*> got;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(wanted); ++k) {
    PyObject* const key = PyTuple_GET_ITEM(wanted, k);
    if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key))
      graph_break(Reason::unknown_callable,
                  std::string(Py_TYPE(real)->tp_name) + " of an item that is neither an int nor a str");
    Value* v = args.positional[0];
    if (is_item) {
      v = t.get_item(v, t.heap.constant_value(key));
    } else {
      const std::string path = exact_text(key);
      for (size_t begin = 0, dot = 0; dot != std::string::npos; begin = dot + 1) {
        dot = path.find('.', begin);
        v = t.get_attribute(v, interned(path.substr(begin, dot - begin)));
      }
    }
    got.push_back(v);
  }
  return got.size() == 1 ? got[0] : t.heap.tuple(std::move(got));
}

}  // namespace framejit::frame_hook
