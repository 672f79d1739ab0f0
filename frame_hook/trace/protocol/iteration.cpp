// frame_hook/trace/protocol/iteration.cpp — iter() and next(): iterators made in the trace are values with a position;
// generators are resumed. If the type of an iterator from outside the trace allows it, its next items are read in the
// trace and taken at the exit; others break.
#include "frame_hook/trace/machine/opcode_handlers.h"
#include "frame_hook/trace/protocol/protocol.h"
#include "frame_hook/trace/protocol/stand_ins.h"
#include "frame_hook/trace/types/set_order.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/iterators.h"

namespace framejit::frame_hook {

using Over = IteratorValue::Over;

namespace {

PyTypeObject* type_of_iterator(PyObject* iterable) {  // of a sample builtin object: the C iterator's type
  PyRef iterator = PyRef::steal(PyObject_GetIter(iterable));
  return Py_TYPE(iterator.get());
}

PyTypeObject* list_iterator_type() {
  static PyTypeObject* const type = type_of_iterator(PyRef::steal(PyList_New(0)).get());
  return type;
}

PyTypeObject* tuple_iterator_type() {
  static PyTypeObject* const type = type_of_iterator(PyRef::steal(PyTuple_New(0)).get());
  return type;
}

PyTypeObject* set_iterator_type() {
  static PyTypeObject* const type = type_of_iterator(PyRef::steal(PySet_New(nullptr)).get());
  return type;
}

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
  if (total) next = it->operands[1] ? t.call(it->operands[1], {total, next}) : t.binary_operator(0, total, next);
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
  if (v->mutated || OpcodeHandlers::wrote_attributes_in(shadows, container))
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
  it->operands[1] = t.binary_operator(0, index, t.heap.integer(1));
  ++it->step;
  return t.heap.tuple({index, next});
}

Value* advance(Tracer& t, IteratorValue* it) {
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
      it->operands[0] = t.binary_operator(0, next, it->operands[1]);
      return next;
    }
  }
  return nullptr;
}

// CPython's iterators of these kinds stay exhausted once they have ended. The others ask their parts again.
bool remembers_its_end(Over over) {
  switch (over) {
    case Over::zip: case Over::enumerate: case Over::map: case Over::filter: case Over::starmap: case Over::accumulate:
    case Over::takewhile: case Over::dropwhile: case Over::zip_longest: case Over::deque: return false;
    default: return true;
  }
}

}  // namespace

IteratorValue* make_iterator(Heap& heap, Over over, PyTypeObject* type, std::vector<Value*> operands) {
  auto* it = heap.make<IteratorValue>(ValueKind::iterator, type);
  it->over = over;
  it->operands = std::move(operands);
  return it;
}

static IteratorValue* iterate_set(Shadows& shadows, SetValue* set) {
  IteratorValue* it = make_iterator(shadows.heap, Over::snapshot, set_iterator_type(),
                                    {shadows.heap.tuple(ordered_items(shadows, set)), set});
  it->removals = set->removals;
  return it;
}

static IteratorValue* iterate_deque(Heap& heap, Value* deque) {
  IteratorValue* it = make_iterator(heap, Over::deque, list_iterator_type(), {deque});
  it->removals = as<ListValue>(payload_of(deque))->changes;
  return it;
}

IteratorValue* wrap_iterator(Heap& heap, PyObject* object, guards::SourceId source) {
  PyTypeObject* type = Py_TYPE(object);
  if (guards::has_items(type)) return make_iterator(heap, Over::real, type, {});
  if (!guards::has_parts(type)) return nullptr;
  const bool enumerates = type == &PyEnum_Type, calls = type == &PyMap_Type || type == &PyFilter_Type;
  const int64_t first = calls ? -1 : 0, end = guards::part_count(object) + (enumerates ? 1 : 0);
  std::vector<Value*> parts;
  for (int64_t i = first; i < end; ++i) {
    PyObject* part = guards::iterator_part(object, i);
    if (!part) return nullptr;
    parts.push_back(
        heap.wrap(part, heap.facts.sources().add(guards::SourceKind::iterator_part, source, static_cast<int32_t>(i))));
  }
  IteratorValue* it = make_iterator(heap,
                                    enumerates            ? Over::enumerate
                                    : type == &PyZip_Type ? Over::zip
                                    : type == &PyMap_Type ? Over::map
                                                          : Over::filter,
                                    type, std::move(parts));
  it->stop = guards::is_strict_zip(object);
  it->step = enumerates ? 0 : 1;
  return it;
}

Value* make_view(Heap& heap, DictValue* dict, ViewValue::What what) {
  static PyTypeObject* const types[] = {&PyDictKeys_Type, &PyDictValues_Type, &PyDictItems_Type};
  auto* view = heap.make<ViewValue>(ValueKind::view, types[static_cast<int>(what)]);
  view->dict = dict;
  view->what = what;
  return view;
}

static Value* iterate_range(Shadows& shadows, Value* v) {
  PyObject* range = constant_of(shadows, v);
  auto part = [&](const char* name) {
    PyRef value = PyRef::steal(PyObject_GetAttrString(range, name));
    return static_cast<int64_t>(PyLong_AsLongLong(value.get()));
  };
  IteratorValue* it = make_iterator(shadows.heap, Over::range, &PyRangeIter_Type, {});
  it->position = part("start");
  it->stop = part("stop");
  it->step = part("step");
  if (PyErr_Occurred()) {
    drop_error();
    graph_break(Reason::too_large, "a range beyond 64 bits");
  }
  return it;
}

Value* raw_iterate(Tracer& t, Value* v) {
  t.facts.type_of(v);
  Value* inner = contents_of(t.heap, v);
  switch (inner->kind) {
    case ValueKind::list:
      if (is_deque(v)) return iterate_deque(t.heap, v);
      [[fallthrough]];
    case ValueKind::tuple:
      raw_length(t.dicts, inner);
      return make_iterator(t.heap, Over::sequence,
                           inner->kind == ValueKind::tuple ? tuple_iterator_type() : list_iterator_type(), {inner});
    case ValueKind::dict: inner = make_view(t.heap, as<DictValue>(inner), ViewValue::What::keys); [[fallthrough]];
    case ValueKind::view: {
      auto* view = as<ViewValue>(inner);
      t.dicts.load(view->dict);
      using What = ViewValue::What;
      PyTypeObject* const type = view->what == What::keys     ? &PyDictIterKey_Type
                                 : view->what == What::values ? &PyDictIterValue_Type
                                                              : &PyDictIterItem_Type;
      IteratorValue* it = make_iterator(t.heap, Over::dict_view, type, {view});
      it->stop = static_cast<int64_t>(view->dict->entries.size());
      it->removals = view->dict->removals;
      return it;
    }
    case ValueKind::set: return iterate_set(t.shadows, as<SetValue>(inner));
    case ValueKind::iterator:
    case ValueKind::generator: return inner;
    case ValueKind::object: {
      if (!inner->object) break;
      PyObject* object = inner->object.get();
      if (PyRange_Check(object)) return iterate_range(t.shadows, inner);
      if (PyUnicode_CheckExact(object) || PyBytes_CheckExact(object)) {
        PyRef items = PyRef::steal(PySequence_Tuple(constant_of(t.shadows, inner)));
        return make_iterator(t.heap, Over::text, type_of_iterator(object), {t.heap.constant_value(items.get()), inner});
      }
      if (real_type(inner)) {
        PyTypeObject* meta = Py_TYPE(object);
        const Found iter = look_up(t.shadows, meta, t.facts.type_source(inner), interned("__iter__"));
        if (iter.object) return t.call(bind(t, iter, inner, meta, nullptr), {});
        break;
      }
      if (Py_TYPE(object)->tp_iternext) graph_break(Reason::real_iterator, Py_TYPE(object)->tp_name);
      break;
    }
    default: break;
  }
  if (inner->type && inner->type->tp_iter && inner->kind != ValueKind::function)
    graph_break(Reason::unsupported_operand,
                std::string("iteration over an object of type ") + inner->type->tp_name);
  const PySequenceMethods* sequence = builtin_base(v->type)->tp_as_sequence;
  raise_unless_in_c(t.errors, v, sequence && sequence->sq_item,
                    std::string("'") + v->type->tp_name + "' object is not iterable");
}

Value* Tracer::iterate(Value* v) {
  static PyObject* const iter = PyDict_GetItemString(PyEval_GetBuiltins(), "iter");
  return with_cpython_errors(
      numbers, [&] { return CCall{iter, Arguments{{v}, {}}}; }, [&] { return iterate_with_own_errors(v); });
}

Value* Tracer::iterate_with_own_errors(Value* v) {
  if (v->kind == ValueKind::tensor) return call(lookup_special(v, "__iter__"), {});
  if (v->kind == ValueKind::array && length(v)) return make_iterator(heap, Over::get_item, &PySeqIter_Type, {v});
  if (v->kind == ValueKind::instance) {
    if (Value* method = python_special(*this, v, "__iter__")) {
      Value* iterator = call(method, {});
      PyTypeObject* type = facts.type_of(iterator);
      if (!type->tp_iternext || !_PyType_Lookup(type, interned("__next__")))
        errors.raise_new(PyExc_TypeError, std::string("iter() returned non-iterator of type '") + type->tp_name + "'");
      return iterator;
    }
    if (!v->type->tp_iter)
      if (python_special(*this, v, "__getitem__")) return make_iterator(heap, Over::get_item, &PySeqIter_Type, {v});
  }
  return raw_iterate(*this, v);
}

Value* Tracer::next_item(Value* iterator, Value** stop) {
  if (iterator->kind == ValueKind::iterator) {
    auto* it = as<IteratorValue>(iterator);
    if (it->exhausted) return nullptr;
    if (it->object && !it->value_guarded) guard_parts(facts, it);
    Unresumable guard(stack);
    Value* next = advance(*this, it);
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
  if (v->kind == ValueKind::iterator && as<IteratorValue>(v)->over == Over::get_item)
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
