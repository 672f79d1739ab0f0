// frame_hook/trace/types/container_operators.cpp — operators of the builtin containers, on shadows, and text % values.
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/protocol/strings.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/set_order.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook {

bool adds_in_c(Facts& facts, Value* v) {
  if (v->kind != ValueKind::instance && (v->kind != ValueKind::object || !v->object)) return false;
  const PyTypeObject* type = builtin_base(facts.type_of(v));
  return !is_exact_scalar(v->type) && !real_type(v) && type->tp_as_number && type->tp_as_number->nb_add;
}

namespace {

Value* concatenate(Tracer& t, Value* a, Value* b, bool in_place) {
  const bool lists = list_of(a) != nullptr,
             tuples = t.facts.type_of(a) == &PyTuple_Type && t.facts.type_of(b) == &PyTuple_Type;
  if (tuples && raw_length(t.dicts, b) == 0) return a;
  if (tuples && raw_length(t.dicts, a) == 0) return b;
  if (in_place && lists) {
    list_extend(t, list_of(a), b);
    return a;
  }
  if (lists != (list_of(b) != nullptr) || !is_list_or_tuple(b)) return nullptr;
  std::vector<Value*> items = t.unpack(payload_of(a)), more = t.unpack(payload_of(b));
  items.insert(items.end(), more.begin(), more.end());
  return sequence_like(t.heap, is_size(b) && adds_in_c(t.facts, b) ? b : a, std::move(items));
}

constexpr int64_t kLongest = 1 << 16;  // longer ones are too much work for a trace

Value* repeat(Tracer& t, Value* sequence, Value* times, bool in_place) {
  const int64_t n = t.as_index(times);
  if (n == 1 && t.facts.type_of(sequence) == &PyTuple_Type) return sequence;
  std::vector<Value*> once = t.unpack(payload_of(sequence)), items;
  if (n > kLongest || static_cast<int64_t>(once.size()) * n > kLongest)
    graph_break(Reason::too_large, "a sequence with this many items");
  for (int64_t i = 0; i < n; ++i) items.insert(items.end(), once.begin(), once.end());
  if (in_place && list_of(sequence)) {
    will_mutate(t.shadows, list_of(sequence));
    list_of(sequence)->items = std::move(items);
    return sequence;
  }
  return sequence_like(t.heap, sequence, std::move(items));
}

PyRef set_operator_order(Shadows& shadows, BinaryOp op, SetValue* left, SetValue* right, bool in_place) {
  shadows.load(left);
  if (in_place) will_mutate(shadows, left);
  return call_order(shadows.errors, order_of(shadows, left), in_place ? names_of(op).in_place : names_of(op).special,
                    {{{}, true, order_of(shadows, right)}});
}

// The order of the result for views of keys, and for sets combined with them: a view's own operators make the set.
PyRef view_operator_order(Tracer& t, BinaryOp op, Value* a, Value* b) {
  const auto real = [&](Value* v) {
    if (SetValue* set = set_of(v)) return t.shadows.load(set), order_of(t.shadows, set);
    ViewValue* view = payload_as<ViewValue>(v, ValueKind::view);
    PyRef keys =
        view && view->what == ViewValue::What::keys ? new_order(t.shadows, &PyDict_Type, t.unpack(view)) : PyRef();
    return keys ? PyRef::steal(PyObject_CallMethod(keys.get(), "keys", nullptr)) : PyRef();
  };
  const PyRef left = real(a), right = real(b);
  if (!left || !right) return {};
  PyRef made = PyRef::steal(
      PyObject_CallFunctionObjArgs(operator_function(names_of(op).function), left.get(), right.get(), nullptr));
  if (!made) t.errors.raise_pending();
  return made;
}

Value* set_operator(Tracer& t, BinaryOp op, Value* a, Value* b, bool in_place) {
  SetValue *left = set_of(a), *right = set_of(b);
  // With a view on the other side, an operator in place makes a new set.
  in_place = in_place && left && right && left->type == &PySet_Type;
  std::vector<Value*> others;
  PyRef order;  // null: the order of the result is unknown
  if (right) {
    t.shadows.load(right);
    others = right->items;
    order = left ? set_operator_order(t.shadows, op, left, right, in_place) : view_operator_order(t, op, a, b);
  } else if (ViewValue* view = payload_as<ViewValue>(b, ValueKind::view)) {
    others = t.unpack(view);
    order = view_operator_order(t, op, a, b);
  } else {
    return nullptr;
  }
  SetValue* other = make_set(t.dicts, &PySet_Type, others, {});
  std::vector<Value*> mine;
  if (left) {
    t.shadows.load(left);
    mine = left->items;
  } else {
    mine = t.unpack(payload_of(a));
  }
  SetValue* me = make_set(t.dicts, &PySet_Type, mine, {});
  std::vector<Value*> result;
  if (op == BinaryOp::bit_and) {
    result = common_items(t.dicts, me, other, !left || !right);
  } else {
    for (Value* item : mine)
      if (op == BinaryOp::bit_or || find_in_set(t.dicts, other, item) < 0) result.push_back(item);
  }
  if (op == BinaryOp::bit_or || op == BinaryOp::bit_xor)
    for (Value* item : others)
      if (find_in_set(t.dicts, me, item) < 0) result.push_back(item);
  if (in_place) {
    will_mutate(t.shadows, left);
    left->items = std::move(result);
    ++left->removals;
    left->order = std::move(order);
    return a;
  }
  return make_set(t.dicts, left && right ? left->type : &PySet_Type, result,
                  std::move(order));  // a view's operators make sets
}

// Both classes have dict's own operators, or both are the one class that has its own (OrderedDict).
bool is_exactly(Value* a, Value* b) {
  auto own = [](Value* v) {
    return v->kind == ValueKind::instance && builtin_base(v->type) != &PyDict_Type ? builtin_base(v->type) : nullptr;
  };
  return own(a) == own(b) && (!own(a) || own(a) == &PyODict_Type);
}

Value* merge_dicts(Tracer& t, Value* a, Value* b, bool in_place) {
  if (in_place) {
    update_mapping(t, a, b);
    return a;
  }
  if (!dict_of(b)) return nullptr;
  if (!is_exactly(a, b))
    graph_break(Reason::unsupported_operand, "operator | on " + describe(a) + " and " + describe(b));
  DictValue* merged = t.heap.dict();
  dict_update(t, merged, a);
  dict_update(t, merged, b);
  if (a->kind != ValueKind::instance || builtin_base(a->type) == &PyDict_Type) return merged;  // also for a subclass
  InstanceValue* same_class = make_instance(t.heap, a->type);
  same_class->payload = merged;
  return same_class;
}

}  // namespace

Value* container_operator(Tracer& t, BinaryOp op, Value* a, Value* b, bool in_place) {
  t.facts.type_of(a);
  t.facts.type_of(b);
  if (op == BinaryOp::add && in_place && is_deque(a)) return deque_extend(t, a, b), a;
  for (Value* v : {a, b})
    if (is_deque(v))
      graph_break(Reason::unsupported_operand, std::string("operator ") + names_of(op).symbol + " on " + describe(v));
  if (op == BinaryOp::add && is_list_or_tuple(a)) return concatenate(t, a, b, in_place);
  if (op == BinaryOp::multiply && is_list_or_tuple(a) && is_int(payload_of(b))) return repeat(t, a, b, in_place);
  const bool has_sequence_slots = t.facts.type_of(a)->tp_as_sequence;  // a *= b: CPython asks a for sq_inplace_repeat
  if (op == BinaryOp::multiply && is_list_or_tuple(b) && is_int(payload_of(a)) && !(in_place && has_sequence_slots))
    return repeat(t, b, a, false);
  ViewValue *left_view = payload_as<ViewValue>(a, ValueKind::view),
            *right_view = payload_as<ViewValue>(b, ValueKind::view);
  const bool set_like = set_of(a) || left_view, for_sets = op == BinaryOp::bit_or || op == BinaryOp::bit_and ||
                                                           op == BinaryOp::subtract || op == BinaryOp::bit_xor;
  // The operators of a view of a dict accept any iterable.
  const bool takes_any = for_sets && ((left_view && !right_view && !set_of(b)) || (right_view && !set_like));
  if (takes_any)
    graph_break(Reason::unsupported_operand, std::string("operator ") + names_of(op).symbol +
                                                 " on a view of a dict and " + describe(left_view ? b : a));
  if (set_like &&
      (op == BinaryOp::bit_or || op == BinaryOp::bit_and || op == BinaryOp::subtract || op == BinaryOp::bit_xor))
    return set_operator(t, op, a, b, in_place);
  if (op == BinaryOp::bit_or && dict_of(a)) return merge_dicts(t, a, b, in_place);
  return nullptr;
}

namespace {

// Turns each "%(name)s" into "%s"; adds the values that the mapping has for the names.
std::string without_names(Dicts& dicts, std::string text, DictValue* mapping, std::vector<Value*>& values) {
  for (size_t i = text.find('%'); i != std::string::npos && i + 1 < text.size(); i = text.find('%', i)) {
    if (text[i + 1] == '%') {
      i += 2;
      continue;
    }
    const size_t end = text[i + 1] == '(' ? text.find_first_of("()", i + 2) : std::string::npos;
    if (end == std::string::npos || text[end] == '(')
      graph_break(Reason::text_formatting, "a format with fields that have no plain name");
    Value* name = dicts.heap.string(text.substr(i + 2, end - i - 2));
    Value* value = dicts.get(mapping, name);
    if (!value) raise_with(dicts.errors, PyExc_KeyError, {name});
    values.push_back(value);
    text.erase(i + 1, end - i);
    ++i;
  }
  return text;
}

}  // namespace

Value* format_percent(Tracer& t, Value* format, Value* values) {
  // CPython reads a tuple of any class item by item, without its __iter__.
  std::vector<Value*> parts = tuple_of(values) ? t.unpack(payload_of(values)) : std::vector<Value*>{values};
  std::string text = plain_text(t.shadows, format, "format");
  if (values->kind == ValueKind::dict && text.find("%(") != std::string::npos) {
    parts.clear();
    text = without_names(t.dicts, text, as<DictValue>(values), parts);
    format = t.heap.string(text);
  }
  size_t next = 0;
  bool holds_reprs = false;  // their texts are made here: %r becomes %s
  for (size_t i = 0; i + 1 < text.size() && next < parts.size(); ++i) {
    if (text[i] != '%') continue;
    size_t k = i + 1;
    while (k < text.size() && std::string_view("0123456789.-+ #").find(text[k]) != std::string_view::npos) ++k;
    if (k >= text.size() || text[k] == '(' || text[k] == '*')
      graph_break(Reason::text_formatting, "a format with named or starred fields");
    if (text[k] != '%') {
      Value*& part = parts[next++];
      if (text[k] == 's') part = t.to_string(part);
      else if (text[k] == 'r') part = t.heap.string(repr_text(t, part)), text[k] = 's', holds_reprs = true;
      else if (has_any_special(t.shadows, part, {"__int__", "__index__", "__trunc__", "__float__"}))
        graph_break(Reason::text_formatting, "a number with a conversion of its own");
      else part = specialised(t.heap, payload_of(part));
    }
    i = k;
  }
  return t.calls.plain(
      operator_function(names_of(BinaryOp::remainder).function),
      Arguments{{holds_reprs ? t.heap.string(text) : format, t.heap.tuple(std::move(parts))}, {}});
}

}  // namespace framejit::frame_hook
