// frame_hook/trace/machine/handlers_build.cpp — building containers and strings, and taking iterables apart.
#include <algorithm>

#include "frame_hook/trace/machine/opcode_handlers.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/describe.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

namespace {

std::vector<Value*> pop_many(SymbolicFrame& f, size_t n) {
  std::vector<Value*> items(f.stack.end() - static_cast<long>(n), f.stack.end());
  f.stack.resize(f.stack.size() - n);
  return items;
}

Value* method_of(Tracer& t, Value* v, const char* name) { return t.get_attribute(v, interned(name)); }

void append(Shadows& shadows, Value* target, Value* item) {
  FJ_ASSERT(target->kind == ValueKind::list, "an item appended to something that is not a list");
  frame_hook::list_append(shadows, as<ListValue>(target), item);
}

// "module.name()", as in _PyObject_FunctionStr.
std::string text_of_callable(Tracer& t, Value* callable) {
  auto attribute = [&](const char* name) -> std::optional<std::string> {
    Value* v = t.find_attribute(callable, interned(name));
    if (!v || !t.heap.is_constant(v) || !PyUnicode_Check(constant_of(t.shadows, v))) return std::nullopt;
    return exact_text(constant_of(t.shadows, v));
  };
  const std::optional<std::string> name = attribute("__qualname__"), module = attribute("__module__");
  if (!name) graph_break(Reason::exception_raised, "TypeError of wrong arguments of " + describe(callable));
  return (module && *module != "builtins" ? *module + "." : std::string()) + *name + "()";
}

bool may_be_iterable(Facts& facts, Value* v) {
  const PyTypeObject* type = facts.type_of(v);
  return type->tp_iter || (type->tp_as_sequence && type->tp_as_sequence->sq_item);
}

// The container under construction, after the operands are popped.
Value* target_of(SymbolicFrame& f, const Instruction& i) { return f.top(static_cast<size_t>(i.arg) - 1); }

}  // namespace

Flow OpcodeHandlers::build_slice(Heap& heap, SymbolicFrame& f, const Instruction& i) {
  auto* slice = heap.make<SliceValue>(ValueKind::slice, &PySlice_Type);
  slice->step = i.arg == 3 ? f.pop() : heap.none();
  slice->stop = f.pop();
  slice->start = f.pop();
  f.push(slice);
  return Flow::next;
}

Flow OpcodeHandlers::build_tuple(Heap& heap, SymbolicFrame& f, const Instruction& i) {
  TupleValue* made = heap.tuple(pop_many(f, static_cast<size_t>(i.arg)));
  f.push(made);
  return Flow::next;
}

Flow OpcodeHandlers::build_list(Heap& heap, SymbolicFrame& f, const Instruction& i) {
  ListValue* made = heap.list(pop_many(f, static_cast<size_t>(i.arg)));
  f.push(made);
  return Flow::next;
}

Flow OpcodeHandlers::build_set(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  const std::vector<Value*> items = pop_many(f, static_cast<size_t>(i.arg));
  SetValue* set = make_set(t.dicts, &PySet_Type, {});
  for (Value* item : items) t.call(method_of(t, set, "add"), {item});
  f.push(set);
  return Flow::next;
}

Flow OpcodeHandlers::build_map(Dicts& dicts, SymbolicFrame& f, const Instruction& i) {
  const std::vector<Value*> items = pop_many(f, 2 * static_cast<size_t>(i.arg));
  DictValue* dict = dicts.heap.dict();
  for (size_t k = 0; k < items.size(); k += 2) dicts.set(dict, items[k], items[k + 1]);
  f.push(dict);
  return Flow::next;
}

Flow OpcodeHandlers::build_const_key_map(Dicts& dicts, SymbolicFrame& f, const Instruction& i) {
  Value* keys = f.pop();
  const std::vector<Value*> values = pop_many(f, static_cast<size_t>(i.arg));
  DictValue* dict = dicts.heap.dict();
  for (size_t k = 0; k < values.size(); ++k) dicts.set(dict, dicts.shadows.item(as<TupleValue>(keys), k), values[k]);
  f.push(dict);
  return Flow::next;
}

Flow OpcodeHandlers::build_string(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  const std::vector<Value*> parts = pop_many(f, static_cast<size_t>(i.arg));
  if (std::any_of(parts.begin(), parts.end(), [&](Value* part) { return t.numbers.is_open(part); })) {
    Value* joined = parts[0];
    for (size_t k = 1; k < parts.size(); ++k) joined = t.binary_operator(BinaryOp::add, joined, parts[k]);
    f.push(joined);
    return Flow::next;
  }
  PyRef list = PyRef::steal(PyList_New(0));
  for (Value* part : parts) {
    if (!t.heap.is_constant(part)) graph_break(Reason::text_formatting, "a string that is not a constant");
    if (PyList_Append(list.get(), constant_of(t.shadows, part)) < 0) t.errors.raise_pending();
  }
  PyRef empty = PyRef::steal(PyUnicode_FromString(""));
  f.push(t.errors.constant_steal(PyUnicode_Join(empty.get(), list.get())));
  return Flow::next;
}

Flow OpcodeHandlers::list_append(Shadows& shadows, SymbolicFrame& f, const Instruction& i) {
  Value* item = f.pop();
  append(shadows, target_of(f, i), item);
  return Flow::next;
}

Flow OpcodeHandlers::set_add(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* item = f.pop();
  t.call(method_of(t, target_of(f, i), "add"), {item});
  return Flow::next;
}

Flow OpcodeHandlers::map_add(Dicts& dicts, SymbolicFrame& f, const Instruction& i) {
  Value* value = f.pop();
  Value* key = f.pop();
  dicts.set(as<DictValue>(target_of(f, i)), key, value);
  return Flow::next;
}

Flow OpcodeHandlers::list_extend(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* iterable = f.pop();
  if (!may_be_iterable(t.facts, iterable))
    t.errors.raise_new(PyExc_TypeError,
                       std::string("Value after * must be an iterable, not ") + t.facts.type_of(iterable)->tp_name);
  frame_hook::list_extend(t, as<ListValue>(target_of(f, i)), iterable);
  return Flow::next;
}

Flow OpcodeHandlers::set_update(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* items = f.pop();
  t.call(method_of(t, target_of(f, i), "update"), {items});
  return Flow::next;
}

std::vector<Value*> OpcodeHandlers::unpack_arguments(Tracer& t, Value* iterable, Value* callable) {
  if (!may_be_iterable(t.facts, iterable))
    t.errors.raise_new(PyExc_TypeError, text_of_callable(t, callable) + " argument after * must be an iterable, not " +
                                            t.facts.type_of(iterable)->tp_name);
  return t.unpack(iterable);
}

// `callable` is set if the mapping holds the keyword arguments of a call, which must not repeat.
void OpcodeHandlers::merge_into(Tracer& t, DictValue* target, Value* mapping, Value* callable) {
  auto put = [&](Value* key, Value* value) {
    if (callable && t.dicts.get(target, key)) {
      if (!t.heap.is_constant(key) || !PyUnicode_Check(constant_of(t.shadows, key)))
        graph_break(Reason::exception_raised, "TypeError of a keyword that repeats");
      const std::string name = exact_text(constant_of(t.shadows, key));
      t.facts.guard_order(target->order_from);
      t.errors.raise_new(PyExc_TypeError,
                         text_of_callable(t, callable) + " got multiple values for keyword argument '" + name + "'");
    }
    t.dicts.set(target, key, value);
  };
  if (merge_mapping(t, mapping, put, target)) return;
  const std::string type = t.facts.type_of(mapping)->tp_name;
  if (!callable) t.errors.raise_new(PyExc_TypeError, "'" + type + "' object is not a mapping");
  t.errors.raise_new(PyExc_TypeError,
                     text_of_callable(t, callable) + " argument after ** must be a mapping, not " + type);
}

Flow OpcodeHandlers::dict_update(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* mapping = f.pop();
  merge_into(t, as<DictValue>(target_of(f, i)), mapping, nullptr);
  return Flow::next;
}

// Below the dictionary: the positional arguments, then the callable and a NULL in either order.
Flow OpcodeHandlers::dict_merge(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* mapping = f.pop();
  const size_t arg = static_cast<size_t>(i.arg);
  Value* callable = f.top(arg + 1)->kind == ValueKind::null ? f.top(arg + 2) : f.top(arg + 1);
  merge_into(t, as<DictValue>(target_of(f, i)), mapping, callable);
  return Flow::next;
}

Flow OpcodeHandlers::list_to_tuple(Tracer& t, SymbolicFrame& f, const Instruction&) {
  f.top() = t.heap.tuple(t.unpack(f.top()));
  return Flow::next;
}

namespace {

Value* iterator_to_unpack(Tracer& t, Value* v) {
  if (!may_be_iterable(t.facts, v))
    t.errors.raise_new(PyExc_TypeError,
                       std::string("cannot unpack non-iterable ") + t.facts.type_of(v)->tp_name + " object");
  return t.iterate(v);
}

}  // namespace

Flow OpcodeHandlers::unpack_sequence(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* iterable = f.pop();
  const size_t wanted = static_cast<size_t>(i.arg);
  auto too_many = [&] {
    t.errors.raise_new(PyExc_ValueError, "too many values to unpack (expected " + std::to_string(wanted) + ")");
  };
  std::vector<Value*> items;
  if (iterable->kind == ValueKind::tuple || iterable->kind == ValueKind::list) {
    items = t.unpack(iterable);
    if (items.size() > wanted) too_many();
  } else {
    Value* iterator = iterator_to_unpack(t, iterable);
    while (items.size() < wanted) {
      Value* item = t.next_item(iterator);
      if (!item) break;
      items.push_back(item);
    }
    if (items.size() == wanted && t.next_item(iterator)) too_many();
  }
  if (items.size() < wanted)
    t.errors.raise_new(PyExc_ValueError, "not enough values to unpack (expected " + std::to_string(wanted) + ", got " +
                                             std::to_string(items.size()) + ")");
  f.stack.insert(f.stack.end(), items.rbegin(), items.rend());
  return Flow::next;
}

Flow OpcodeHandlers::unpack_ex(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* iterator = iterator_to_unpack(t, f.pop());
  const size_t before = static_cast<size_t>(i.arg), after = static_cast<size_t>(i.extra);
  std::vector<Value*> items;
  while (items.size() < before) {
    Value* next = t.next_item(iterator);
    if (!next) break;
    items.push_back(next);
  }
  if (items.size() == before)
    for (Value* rest : t.unpack(iterator)) items.push_back(rest);
  if (items.size() < before + after)
    t.errors.raise_new(PyExc_ValueError, "not enough values to unpack (expected at least " +
                                             std::to_string(before + after) + ", got " + std::to_string(items.size()) +
                                             ")");
  const auto middle = items.begin() + static_cast<long>(before), tail = items.end() - static_cast<long>(after);
  f.stack.insert(f.stack.end(), items.rbegin(), std::make_reverse_iterator(tail));
  f.push(t.heap.list(std::vector<Value*>(middle, tail)));
  f.stack.insert(f.stack.end(), std::make_reverse_iterator(middle), items.rend());
  return Flow::next;
}

namespace {

Value* converted(Tracer& t, Value* v, int conversion) {
  switch (conversion) {
    case 1: return t.to_string(v);
    case 2: return t.to_repr(v);
    default: return v;
  }
}

}  // namespace

Flow OpcodeHandlers::format_value(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* spec = i.has(Instruction::kHasSpec) ? f.pop() : nullptr;
  Value* v = f.pop();
  if (i.arg == 3) graph_break(Reason::text_formatting, "an f-string with !a");
  v = converted(t, v, i.arg);
  f.push(!spec && t.facts.type_of(v) == &PyUnicode_Type ? v : t.format(v, spec));
  return Flow::next;
}

Flow OpcodeHandlers::convert_value(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* v = f.pop();
  if (i.arg == 3) graph_break(Reason::text_formatting, "an f-string with !a");
  f.push(converted(t, v, i.arg));
  return Flow::next;
}

}  // namespace framejit::frame_hook
