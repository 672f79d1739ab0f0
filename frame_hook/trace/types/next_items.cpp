// frame_hook/trace/types/next_items.cpp — next() of the iterators in C. Those made in the trace are values with a
// position. If the type of a real one allows it, its next items are read in the trace and taken at the exit; others
// break.
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/writes.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/iterators.h"

namespace framejit::frame_hook {

using Over = IteratorValue::Over;

namespace {

// The dict or set whose keys the iterator walks, or null.
DictValue* dict_under(const IteratorValue* it) {
  return it->over == Over::dict_view ? as<ViewValue>(it->operands[0])->dict : nullptr;
}
SetValue* set_under(const IteratorValue* it) {
  return it->over == Over::snapshot && it->operands.size() == 2 ? as<SetValue>(it->operands[1]) : nullptr;
}

bool size_changed(const IteratorValue* it) {
  if (const DictValue* dict = dict_under(it)) return it->stop != static_cast<int64_t>(dict->entries.size());
  const SetValue* set = set_under(it);
  return set && set->items.size() != as<TupleValue>(it->operands[0])->items.size();
}

bool lost_keys(const IteratorValue* it) {
  const DictValue* dict = dict_under(it);
  const SetValue* set = set_under(it);
  return (dict && dict->removals != it->removals) || (set && set->removals != it->removals);
}

// After one key was removed and another added, the next item depends on their places in the table.
void refuse_lost_keys(const IteratorValue* it) {
  if (lost_keys(it))
    graph_break(Reason::changed_container, "an iterator over a dict or set in which keys were replaced");
}

}  // namespace

bool changed_while_iterated(const IteratorValue* it) { return size_changed(it) || lost_keys(it); }

namespace {

Value* next_in_view(Dicts& dicts, IteratorValue* it) {
  auto* view = as<ViewValue>(it->operands[0]);
  dicts.load(view->dict);
  if (size_changed(it)) {
    it->stop = -1;
    dicts.errors.raise_new(PyExc_RuntimeError, "dictionary changed size during iteration");
  }
  refuse_lost_keys(it);
  const int64_t at = it->step < 0 ? it->stop - 1 - it->position : it->position;
  if (at < 0 || at >= it->stop) return nullptr;
  ++it->position;
  const DictEntry& e = view->dict->entries[at];
  if (view->what == ViewValue::What::keys) return e.key;
  if (view->what == ViewValue::What::values) return e.value;
  return dicts.heap.tuple({e.key, e.value});
}

Value* next_in_deque(Errors& errors, IteratorValue* it) {
  auto* items = as<ListValue>(payload_of(it->operands[0]));
  const bool reversed = it->over == Over::reversed;
  const size_t n = items->items.size(), position = static_cast<size_t>(it->position);
  const bool ended = reversed ? it->position < 0 : position >= n;
  // In CPython, the reversed one first checks whether it has ended, the other first whether the deque has changed.
  if (ended && reversed) return nullptr;
  if (items->changes != it->removals) errors.raise_new(PyExc_RuntimeError, "deque mutated during iteration");
  if (ended) return nullptr;
  it->position += reversed ? -1 : 1;
  return items->items[position];
}

Value* next_in_sequence(Dicts& dicts, IteratorValue* it) {
  Value* sequence = payload_of(it->operands[0]);
  const int64_t n = *raw_length(dicts, sequence);
  if (it->position >= n) return nullptr;
  const size_t i = static_cast<size_t>(it->position++);
  return sequence->kind == ValueKind::list ? dicts.shadows.item(as<ListValue>(sequence), i)
                                           : dicts.shadows.item(as<TupleValue>(sequence), i);
}

Value* next_reversed(Dicts& dicts, IteratorValue* it) {
  if (is_deque(it->operands[0])) return next_in_deque(dicts.errors, it);
  Value* sequence = payload_of(it->operands[0]);
  const int64_t n = *raw_length(dicts, sequence);
  if (it->position < 0 || it->position >= n) return nullptr;
  const size_t i = static_cast<size_t>(it->position--);
  return sequence->kind == ValueKind::list ? dicts.shadows.item(as<ListValue>(sequence), i)
                                           : dicts.shadows.item(as<TupleValue>(sequence), i);
}

Value* next_range(Heap& heap, IteratorValue* it) {
  if (it->step > 0 ? it->position >= it->stop : it->position <= it->stop) return nullptr;
  const int64_t i = it->position;
  it->position += it->step;
  return heap.integer(i);
}

// stop == 1: strict.
Value* next_zip(Tracer& t, IteratorValue* it) {
  if (it->operands.empty()) return nullptr;
  std::vector<Value*> items;
  for (size_t i = 0; i < it->operands.size(); ++i) {
    Value* next = t.next_item(it->operands[i]);
    if (!next) {
      if (it->stop != 1) return nullptr;
      if (i > 0)
        t.errors.raise_new(PyExc_ValueError, "zip() argument " + std::to_string(i + 1) + " is shorter than argument" +
                                                 (i == 1 ? " 1" : "s 1-" + std::to_string(i)));
      for (size_t k = 1; k < it->operands.size(); ++k)
        if (t.next_item(it->operands[k]))
          t.errors.raise_new(PyExc_ValueError, "zip() argument " + std::to_string(k + 1) + " is longer than argument" +
                                                   (k == 1 ? " 1" : "s 1-" + std::to_string(k)));
      return nullptr;
    }
    items.push_back(next);
  }
  return t.heap.tuple(std::move(items));
}

Value* next_map(Tracer& t, IteratorValue* it) {
  Arguments args;
  for (size_t i = 1; i < it->operands.size(); ++i) {
    Value* next = t.next_item(it->operands[i]);
    if (!next) return nullptr;
    args.positional.push_back(next);
  }
  return t.call(it->operands[0], args);
}

Value* next_filter(Tracer& t, IteratorValue* it) {
  Value* function = it->operands[0];
  const bool plain_truth = is_none(t.facts, function);
  while (Value* next = t.next_item(it->operands[1]))
    if ((t.truth(plain_truth ? next : t.call(function, {next}))) != (it->step < 0))
      return next;  // step -1: filterfalse
  return nullptr;
}

// operands[0]: iterator of iterables; operands[1]: the running one, when present.
Value* next_chain(Tracer& t, IteratorValue* it) {
  for (;;) {
    if (it->operands.size() == 1) {
      Value* iterable = t.next_item(it->operands[0]);
      if (!iterable) return nullptr;
      it->operands.push_back(t.iterate(iterable));
    }
    if (Value* next = t.next_item(it->operands[1])) return next;
    it->operands.pop_back();
  }
}

// Columns that have ended are null. stop: how many have not; the last operand is the fill value.
Value* next_zip_longest(Tracer& t, IteratorValue* it) {
  if (it->stop == 0) return nullptr;
  std::vector<Value*> items;
  for (size_t i = 0; i + 1 < it->operands.size(); ++i) {
    Value*& column = it->operands[i];
    Value* next = column ? t.next_item(column) : nullptr;
    if (column && !next) {
      column = nullptr;
      if (--it->stop == 0) return nullptr;
    }
    items.push_back(next ? next : it->operands.back());
  }
  return t.heap.tuple(std::move(items));
}

// operands: iterator, function or null, the total or null. position: 1 if the total is an initial value that has not
// been returned yet.
Value* next_accumulated(Tracer& t, IteratorValue* it) {
  if (std::exchange(it->position, 0) == 1) return it->operands[2];
  Value* next = t.next_item(it->operands[0]);
  if (!next) return nullptr;
  Value* total = it->operands[2];
  if (total)
    next = it->operands[1] ? t.call(it->operands[1], {total, next}) : t.binary_operator(BinaryOp::add, total, next);
  return it->operands[2] = next;
}

Value* next_pair(Tracer& t, IteratorValue* it) {
  Value*& before = it->operands[1];
  if (!before && !(before = t.next_item(it->operands[0]))) return nullptr;
  Value* next = t.next_item(it->operands[0]);
  return next ? t.heap.tuple({std::exchange(before, next), next}) : nullptr;
}

// position: 1 once the answer of the predicate is final.
Value* next_while(Tracer& t, IteratorValue* it) {
  const bool takes = it->over == Over::takewhile;
  if (takes && it->position) return nullptr;
  while (Value* next = t.next_item(it->operands[1])) {
    if (!takes && it->position) return next;
    const bool answer = t.truth(t.call(it->operands[0], {next}));
    if (!answer) it->position = 1;
    if (answer == takes) return next;
    if (takes) return nullptr;
    if (!answer) return next;
  }
  return nullptr;
}

// position: items to drop before the next one is returned; stop: how many positions are left, -1 for no end.
Value* next_islice(Tracer& t, IteratorValue* it) {
  for (; it->position > 0; --it->position) {
    if (it->stop == 0 || !t.next_item(it->operands[0])) return nullptr;
    if (it->stop > 0) --it->stop;
  }
  if (it->stop == 0) return nullptr;
  Value* next = t.next_item(it->operands[0]);
  if (it->stop > 0) --it->stop;
  it->position = it->step - 1;
  return next;
}

// An iterator by index, over an object with __getitem__. step -1: made by reversed().
Value* next_get_item(Tracer& t, IteratorValue* it) {
  if (it->position < 0) return nullptr;
  try {
    Value* item = t.get_item(it->operands[0], t.heap.integer(it->position));
    it->position += it->step;
    return item;
  } catch (const SymbolicRaise& raised) {
    if (it->step < 0) it->position = -1;
    if (t.errors.exception_matches(raised.exception, PyExc_IndexError) ||
        t.errors.exception_matches(raised.exception, PyExc_StopIteration))
      return nullptr;
    throw;
  }
}

// If the trace writes to a container, its items are those of the shadow, which the real iterator does not know.
void refuse_written_container(Shadows& shadows, IteratorValue* it) {
  PyObject* container = guards::container_of(it->object.get());
  if (!container) return;
  const Value* v =
      shadows.heap.wrap(container, shadows.facts.sources().add(guards::SourceKind::iterator_container, it->source));
  if (v->mutated || wrote_attributes_in(shadows, container))
    graph_break(Reason::real_iterator, std::string(it->type->tp_name) + " over a container that was written");
}

Value* next_real(Shadows& shadows, IteratorValue* it) {
  shadows.facts.type_of(it);
  PyObject* real = it->object.get();
  const int64_t left = guards::items_left(real), k = it->position;
  if (left < 0) graph_break(Reason::real_iterator, it->type->tp_name);
  refuse_written_container(shadows, it);
  will_mutate(shadows, it);
  shadows.facts.guard_if_real(left > k ? guards::GuardKind::iterator_has : guards::GuardKind::iterator_ends, it->source,
                              nullptr, left > k ? k + 1 : left);
  if (left <= k) return nullptr;
  auto item = [&](guards::SourceKind kind) {
    PyObject* object =
        guards::peek_item(real, k, kind == guards::SourceKind::iterator_key || it->type == &PyDictIterKey_Type);
    if (!object) graph_break(Reason::real_iterator, it->type->tp_name);
    return shadows.heap.wrap(object, shadows.facts.sources().add(kind, it->source, static_cast<int32_t>(k)));
  };
  ++it->position;
  if (it->type == &PyDictIterKey_Type) return item(guards::SourceKind::iterator_key);
  Value* value = item(guards::SourceKind::iterator_item);
  return it->type == &PyDictIterItem_Type ? shadows.heap.tuple({item(guards::SourceKind::iterator_key), value}) : value;
}

Value* next_enumerated(Tracer& t, IteratorValue* it) {
  Value* next = t.next_item(it->operands[0]);
  if (!next) return nullptr;
  if (!it->object) return t.heap.tuple({t.heap.integer(it->position++), next});
  will_mutate(t.shadows, it);
  Value* index = it->operands[1];
  it->operands[1] = t.binary_operator(BinaryOp::add, index, t.heap.integer(1));
  ++it->step;
  return t.heap.tuple({index, next});
}

}  // namespace

Value* raw_next(Tracer& t, IteratorValue* it) {
  switch (it->over) {
    case Over::real: return next_real(t.shadows, it);
    case Over::sequence: return next_in_sequence(t.dicts, it);
    case Over::reversed: return next_reversed(t.dicts, it);
    case Over::range: return next_range(t.heap, it);
    case Over::zip: return next_zip(t, it);
    case Over::enumerate: return next_enumerated(t, it);
    case Over::map: return next_map(t, it);
    case Over::filter: return next_filter(t, it);
    case Over::dict_view: return next_in_view(t.dicts, it);
    case Over::callable: {
      Value* next = t.call(it->operands[0], {});
      return t.dicts.equal(next, it->operands[1]) ? nullptr : next;
    }
    case Over::chain: return next_chain(t, it);
    case Over::islice: return next_islice(t, it);
    case Over::get_item: return next_get_item(t, it);
    case Over::snapshot:
      if (size_changed(it)) t.errors.raise_new(PyExc_RuntimeError, "Set changed size during iteration");
      refuse_lost_keys(it);
      [[fallthrough]];
    case Over::text: return next_in_sequence(t.dicts, it);
    case Over::deque: return next_in_deque(t.errors, it);
    case Over::zip_longest: return next_zip_longest(t, it);
    case Over::accumulate: return next_accumulated(t, it);
    case Over::starmap: {
      Value* next = t.next_item(it->operands[1]);
      return next ? t.call(it->operands[0], Arguments{t.unpack(next), {}}) : nullptr;
    }
    case Over::takewhile:
    case Over::dropwhile: return next_while(t, it);
    case Over::pairwise: return next_pair(t, it);
    case Over::repeat:
      if (it->stop == 0) return nullptr;
      if (it->stop > 0) --it->stop;
      return it->operands[0];
    case Over::count: {
      Value* next = it->operands[0];
      it->operands[0] = t.binary_operator(BinaryOp::add, next, it->operands[1]);
      return next;
    }
  }
  return nullptr;
}

bool remembers_its_end(Over over) {
  switch (over) {
    case Over::zip:
    case Over::enumerate:
    case Over::map:
    case Over::filter:
    case Over::starmap:
    case Over::accumulate:
    case Over::takewhile:
    case Over::dropwhile:
    case Over::zip_longest:
    case Over::deque: return false;
    default: return true;
  }
}

}  // namespace framejit::frame_hook
