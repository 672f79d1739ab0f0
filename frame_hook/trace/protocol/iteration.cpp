// frame_hook/trace/protocol/iteration.cpp — iter() and next(): __iter__ and __next__ in Python are inlined, generators
// are resumed, types/ does what iterators in C do.
#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/values/originals.h"

namespace framejit::frame_hook {

Value* Tracer::iterate(Value* v) {
  PyObject* const iter = builtin_function("iter");
  return with_cpython_errors(
      numbers, [&] { return CCall{iter, Arguments{{v}, {}}}; }, [&] { return iterate_with_own_errors(v); });
}

Value* Tracer::iterate_with_own_errors(Value* v) {
  if (v->kind == ValueKind::tensor) return call(lookup_special(v, "__iter__"), {});
  if (v->kind == ValueKind::array && length(v))
    return make_iterator(heap, IteratorValue::Over::get_item, &PySeqIter_Type, {v});
  if (v->kind == ValueKind::instance) {
    if (Value* method = python_special(*this, v, "__iter__")) {
      Value* iterator = call(method, {});
      PyTypeObject* type = facts.type_of(iterator);
      if (!type->tp_iternext || !_PyType_Lookup(type, interned("__next__")))
        errors.raise_new(PyExc_TypeError, std::string("iter() returned non-iterator of type '") + type->tp_name + "'");
      return iterator;
    }
    if (!v->type->tp_iter)
      if (python_special(*this, v, "__getitem__"))
        return make_iterator(heap, IteratorValue::Over::get_item, &PySeqIter_Type, {v});
  }
  return raw_iterate(*this, v);
}

Value* Tracer::next_item(Value* iterator, Value** stop) {
  if (iterator->kind == ValueKind::iterator) {
    auto* it = as<IteratorValue>(iterator);
    if (it->exhausted) return nullptr;
    if (it->object && !it->value_guarded) guard_parts(facts, it);
    Unresumable guard(stack);
    Value* next = raw_next(*this, it);
    it->exhausted = next == nullptr && remembers_its_end(it->over);
    return next;
  }
  if (iterator->kind == ValueKind::generator) {
    auto* generator = as<GeneratorValue>(iterator);
    if (generator->state == GeneratorValue::State::finished) return nullptr;
    return machine.resume_generator(generator, heap.none(), nullptr);
  }
  Value* method = python_special(*this, iterator, "__next__");
  if (!method) {
    if (iterator->object && Py_TYPE(iterator->object.get())->tp_iternext)
      graph_break(Reason::real_iterator, Py_TYPE(iterator->object.get())->tp_name);
    errors.raise_new(PyExc_TypeError,
                     std::string("'") + facts.type_of(iterator)->tp_name + "' object is not an iterator");
  }
  Unresumable guard(stack);
  try {
    return call(method, {});
  } catch (const SymbolicRaise& raised) {
    if (!errors.exception_matches(raised.exception, PyExc_StopIteration)) throw;
    if (stop) *stop = raised.exception;
    return nullptr;
  }
}

// Asks for the length as list() and tuple() do before they take the items. The answer changes nothing.
static void ask_length_hint(Tracer& t, Value* v) {
  // An iterator by index, forwards or backwards, asks the sequence.
  if (v->kind == ValueKind::iterator && as<IteratorValue>(v)->over == IteratorValue::Over::get_item)
    v = as<IteratorValue>(v)->exhausted ? v : as<IteratorValue>(v)->operands[0];
  if (v->kind != ValueKind::instance) return;
  try {
    if (python_special(t, v, "__len__")) t.length(v);
    else if (Value* hint = python_special(t, v, "__length_hint__")) t.call(hint, {});
  } catch (const SymbolicRaise& raised) {
    if (!t.errors.exception_matches(raised.exception, PyExc_TypeError)) throw;
  }
}

// An endless iterator would not run into the step limit of a trace.
static constexpr size_t kLongest = 1 << 17;

void Tracer::for_each(Value* iterable, const std::function<void(Value*)>& use, bool asks_length) {
  Unresumable guard(stack);
  Value* iterator = iterate(iterable);
  if (asks_length) ask_length_hint(*this, iterable);
  for (size_t taken = 0; Value* next = next_item(iterator); ++taken) {
    if (taken >= kLongest) graph_break(Reason::trace_too_long, std::to_string(kLongest) + " items of an iterator");
    use(next);
  }
}

std::vector<Value*> Tracer::unpack(Value* v) {
  std::vector<Value*> items;
  Value* inner = v->kind == ValueKind::instance && python_special(*this, v, "__iter__") ? v : payload_of(v);
  facts.type_of(v);
  if (inner->kind == ValueKind::tuple) {
    auto* tuple = as<TupleValue>(inner);
    raw_length(dicts, inner);
    for (size_t i = 0; i < tuple->items.size(); ++i) items.push_back(shadows.item(tuple, i));
    return items;
  }
  if (inner->kind == ValueKind::list) {
    auto* list = as<ListValue>(inner);
    shadows.load(list);
    for (size_t i = 0; i < list->items.size(); ++i) items.push_back(shadows.item(list, i));
    return items;
  }
  for_each(v, [&](Value* next) { items.push_back(next); }, true);
  return items;
}

}  // namespace framejit::frame_hook
