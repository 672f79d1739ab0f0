// frame_hook/trace/types/iterators.cpp — iter, zip, map, sorted, any, itertools: lazy ones make iterators of the trace.
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook {

using Over = IteratorValue::Over;

namespace {

PyTypeObject* itertools_type(const char* name) { return original_type("itertools", name); }

std::vector<Value*> iterators_of(Tracer& t, const std::vector<Value*>& iterables, size_t from = 0) {
  std::vector<Value*> iterators;
  for (size_t i = from; i < iterables.size(); ++i) iterators.push_back(t.iterate(iterables[i]));
  return iterators;
}

Value* given(Facts& facts, Value* v) { return is_none(facts, v) ? nullptr : v; }

Value* rows_of(Heap& heap, const char* type, std::vector<Value*> items) {
  return make_iterator(heap, Over::snapshot, itertools_type(type), {heap.tuple(std::move(items))});
}

// Whether reversed() handles it in C, by its own method or item by item.
bool is_sequence_in_c(Value* v) {
  const PyTypeObject* type = builtin_base(v->type);
  return _PyType_Lookup(v->type, interned("__reversed__")) || (type->tp_as_sequence && type->tp_as_sequence->sq_item) ||
         (type->tp_as_mapping && type->tp_as_mapping->mp_subscript);
}

}  // namespace

namespace rows {

Value* builtin_iter(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "iter", 1, 2);
  if (args.positional.size() == 1) return t.iterate(args.positional[0]);
  if (!unchanged_type_of(t.facts, args.positional[0])->tp_call)
    t.errors.raise_new(PyExc_TypeError, "iter(v, w): v must be callable");
  return make_iterator(t.heap, Over::callable, &PyCallIter_Type, args.positional);
}

Value* builtin_next(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "next", 1, 2);
  if (Value* next = t.next_item(args.positional[0])) return next;
  if (args.positional.size() == 2) return args.positional[1];
  Value* v = args.positional[0];
  if (v->kind == ValueKind::generator && as<GeneratorValue>(v)->return_value &&
      !is_none(t.facts, as<GeneratorValue>(v)->return_value))
    raise_with(t.errors, PyExc_StopIteration, {as<GeneratorValue>(v)->return_value});
  raise_with(t.errors, PyExc_StopIteration, {});
}

Value* builtin_zip(Tracer& t, const Arguments& args) {
  Value* strict = parse(t.errors, Arguments{{}, args.keywords}, "zip", {"$strict"}, 0)[0];
  IteratorValue* it = make_iterator(t.heap, Over::zip, &PyZip_Type, iterators_of(t, args.positional));
  it->stop = strict && t.truth(strict) ? 1 : 0;
  return it;
}

Value* builtin_enumerate(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "enumerate", {"iterable", "start"}, 1);
  IteratorValue* it = make_iterator(t.heap, Over::enumerate, &PyEnum_Type, {t.iterate(a[0])});
  it->position = a[1] ? t.as_index(a[1]) : 0;
  return it;
}

Value* builtin_map(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "map", 2, SIZE_MAX);
  std::vector<Value*> operands = iterators_of(t, args.positional, 1);
  operands.insert(operands.begin(), args.positional[0]);
  return make_iterator(t.heap, Over::map, &PyMap_Type, std::move(operands));
}

Value* builtin_filter(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "filter", 2, 2);
  return make_iterator(t.heap, Over::filter, &PyFilter_Type, {args.positional[0], t.iterate(args.positional[1])});
}

Value* builtin_reversed(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "reversed", 1, 1);
  Value* v = args.positional[0];
  if (Value* method =
          v->kind == ValueKind::tensor ? t.lookup_special(v, "__reversed__") : python_special(t, v, "__reversed__"))
    return t.call(method, {});
  if (v->kind == ValueKind::instance &&
      (look_up(t.shadows, v, interned("__reversed__")).object == Py_None ||
       (payload_of(v) == v && !look_up(t.shadows, v, interned("__getitem__")).object)))
    raise_unless_in_c(t.errors, v, is_sequence_in_c(v),
                      std::string("'") + v->type->tp_name + "' object is not reversible");
  Value* inner = contents_of(t.heap, v);
  const bool has_own_iterator = inner->kind == ValueKind::list || inner->kind == ValueKind::dict;
  if (inner != v && !has_own_iterator && has_any_special(t.shadows, v, {"__len__", "__getitem__"}))
    graph_break(Reason::unsupported_operand, "reversed() of " + describe(v));
  if (inner->kind == ValueKind::list || inner->kind == ValueKind::tuple) {
    const bool is_list = inner->kind == ValueKind::list && !is_deque(v);
    IteratorValue* it = make_iterator(t.heap, Over::reversed, is_list ? &PyListRevIter_Type : &PyReversed_Type,
                                      {is_deque(v) ? v : inner});
    it->position = *raw_length(t.dicts, inner) - 1;
    if (is_deque(v)) it->removals = as<ListValue>(inner)->changes;
    return it;
  }
  if (inner->kind == ValueKind::dict || inner->kind == ValueKind::view) {
    IteratorValue* it = as<IteratorValue>(raw_iterate(t, inner));
    it->step = -1;
    it->type = it->type == &PyDictIterKey_Type     ? &PyDictRevIterKey_Type
               : it->type == &PyDictIterValue_Type ? &PyDictRevIterValue_Type
                                                   : &PyDictRevIterItem_Type;
    return it;
  }
  if (inner->kind == ValueKind::object && inner->object && PyRange_Check(inner->object.get())) {
    const PyRef all = PyRef::steal(PySlice_New(nullptr, nullptr, PyRef::steal(PyLong_FromLong(-1)).get()));
    return raw_iterate(t, t.errors.constant_steal(PyObject_GetItem(constant_of(t.shadows, inner), all.get())));
  }
  if (inner->kind == ValueKind::set)
    t.errors.raise_new(PyExc_TypeError, std::string("'") + v->type->tp_name + "' object is not reversible");
  if (inner->kind == ValueKind::object && is_plain(t.shadows, inner)) {
    std::vector<Value*> items = t.unpack(inner);
    std::reverse(items.begin(), items.end());
    return make_iterator(t.heap, Over::snapshot, &PyReversed_Type, {t.heap.tuple(std::move(items))});
  }
  auto n = t.length(v);
  if (!n)
    raise_unless_in_c(t.errors, v, is_sequence_in_c(v),
                      std::string("'") + t.facts.type_of(v)->tp_name + "' object is not reversible");
  IteratorValue* it = make_iterator(t.heap, Over::get_item, &PyReversed_Type, {v});
  it->position = *n - 1;
  it->step = -1;
  return it;
}

Value* builtin_range(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "range", 1, 3);
  Arguments plain;
  for (Value* v : args.positional) plain.positional.push_back(t.heap.integer(t.as_index(v)));
  return t.calls.plain(reinterpret_cast<PyObject*>(&PyRange_Type), plain);
}

Value* builtin_slice(Errors& errors, const Arguments& args) {
  only_positional(errors, args, "slice", 1, 3);
  auto* s = errors.heap.make<SliceValue>(ValueKind::slice, &PySlice_Type);
  const auto& a = args.positional;
  s->start = a.size() == 1 ? errors.heap.none() : a[0];
  s->stop = a.size() == 1 ? a[0] : a[1];
  s->step = a.size() == 3 ? a[2] : errors.heap.none();
  return s;
}

Value* builtin_all(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "all", 1, 1);
  Value* iterator = t.iterate(args.positional[0]);
  while (Value* next = t.next_item(iterator))
    if (!t.truth(next)) return t.heap.boolean(false);
  return t.heap.boolean(true);
}

Value* builtin_any(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "any", 1, 1);
  Value* iterator = t.iterate(args.positional[0]);
  while (Value* next = t.next_item(iterator))
    if (t.truth(next)) return t.heap.boolean(true);
  return t.heap.boolean(false);
}

Value* builtin_sorted(Tracer& t, const Arguments& args) {
  if (args.positional.size() != 1)
    t.errors.raise_new(PyExc_TypeError, "sorted expected 1 argument, got " + std::to_string(args.positional.size()));
  std::vector<Value*> a = parse(t.errors, args, "sorted", {"iterable", "$key", "$reverse"}, 1);
  ListValue* sorted = t.heap.list(t.unpack(a[0]));
  sort_list(t, sorted, a[1], a[2]);
  return sorted;
}

// ---- itertools

Value* itertools_chain(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "chain", 0, SIZE_MAX);
  return make_iterator(t.heap, Over::chain, itertools_type("chain"), {t.iterate(t.heap.tuple(args.positional))});
}

Value* itertools_chain_from(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "chain.from_iterable", 2, 2);
  return make_iterator(t.heap, Over::chain, itertools_type("chain"), {t.iterate(args.positional.back())});
}

namespace {

// Whatever is wrong with an index, islice() raises a ValueError of its own.
int64_t index_of_islice(Tracer& t, Value* v) {
  const PyNumberMethods* const numbers = t.facts.type_of(v)->tp_as_number;
  if (!numbers || !numbers->nb_index) graph_break(Reason::exception_raised, "a ValueError of itertools.islice()");
  try {
    return t.as_index(v);
  } catch (const SymbolicRaise&) { graph_break(Reason::exception_raised, "a ValueError of itertools.islice()"); }
}

}  // namespace

Value* itertools_islice(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "islice", 2, 4);
  const auto& a = args.positional;
  Value* first = a.size() == 2 ? nullptr : a[1];
  Value* last = a.size() == 2 ? a[1] : a[2];
  IteratorValue* it = make_iterator(t.heap, Over::islice, itertools_type("islice"), {t.iterate(a[0])});
  it->position = is_none(t.facts, first) ? 0 : index_of_islice(t, first);
  it->stop = is_none(t.facts, last) ? -1 : index_of_islice(t, last);
  it->step = a.size() == 4 && !is_none(t.facts, a[3]) ? index_of_islice(t, a[3]) : 1;
  if (it->position < 0 || it->stop < -1 || it->step < 1 || (it->stop == -1 && !is_none(t.facts, last)))
    graph_break(Reason::exception_raised, "a ValueError of itertools.islice()");
  return it;
}

Value* itertools_repeat(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "repeat", {"object", "times"}, 1);
  IteratorValue* it = make_iterator(t.heap, Over::repeat, itertools_type("repeat"), {a[0]});
  it->stop = a[1] ? std::max<int64_t>(0, t.as_index(a[1])) : -1;
  return it;
}

namespace {

int64_t small_int(Shadows& shadows, Value* v, int* overflow) {
  return PyLong_AsLongLongAndOverflow(constant_of(shadows, exact_int(shadows, v)), overflow);
}

// A count by one is a C number. Any other count starts with the object itself.
Value* first_count(Shadows& shadows, Value* start, Value* step) {
  const auto is_int = [](Value* v) { return PyType_IsSubtype(v->type, &PyLong_Type); };
  if (start->type == &PyLong_Type || !is_int(start) || !is_int(step)) return start;
  int large = 0;
  if (small_int(shadows, step, &large) != 1) return start;
  small_int(shadows, start, &large);
  return large ? start : exact_int(shadows, start);
}

}  // namespace

Value* itertools_count(Shadows& shadows, const Arguments& args) {
  std::vector<Value*> a = parse(shadows.errors, args, "count", {"start", "step"}, 0);
  for (Value* v : a)
    if (v && !PyType_IsSubtype(shadows.facts.type_of(v), &PyLong_Type) && v->type != &PyFloat_Type)
      graph_break(Reason::unsupported_operand, "itertools.count() of " + describe(v));
  Value* start = a[0] ? a[0] : shadows.heap.integer(0);
  Value* step = a[1] ? a[1] : shadows.heap.integer(1);
  return make_iterator(shadows.heap, Over::count, itertools_type("count"), {first_count(shadows, start, step), step});
}

Value* itertools_product(Tracer& t, const Arguments& args) {
  Value* times = parse(t.errors, Arguments{{}, args.keywords}, "product", {"$repeat"}, 0)[0];
  const int64_t repeat = times ? t.as_index(times) : 1;
  std::vector<std::vector<Value*>> pools, rows{{}};
  for (Value* v : args.positional) pools.push_back(t.unpack(v));
  const size_t once = pools.size();
  for (int64_t k = 1; k < repeat; ++k)
    for (size_t i = 0; i < once; ++i) pools.push_back(pools[i]);
  if (repeat == 0) pools.clear();
  for (const auto& pool : pools) {
    std::vector<std::vector<Value*>> longer;
    for (const auto& row : rows)
      for (Value* v : pool) {
        longer.push_back(row);
        longer.back().push_back(v);
      }
    rows = std::move(longer);
  }
  std::vector<Value*> items;
  for (auto& row : rows) items.push_back(t.heap.tuple(std::move(row)));
  return rows_of(t.heap, "product", std::move(items));
}

Value* itertools_zip_longest(Tracer& t, const Arguments& args) {
  for (const auto& [name, v] : args.keywords)
    if (std::string_view(text_of(name)) != "fillvalue")
      t.errors.raise_new(PyExc_TypeError, "zip_longest() got an unexpected keyword argument");
  Value* fill = args.keywords.empty() ? t.heap.none() : args.keywords[0].second;
  std::vector<Value*> operands = iterators_of(t, args.positional);
  const size_t columns = operands.size();
  operands.push_back(fill);
  IteratorValue* it = make_iterator(t.heap, Over::zip_longest, itertools_type("zip_longest"), std::move(operands));
  it->stop = static_cast<int64_t>(columns);
  return it;
}

Value* itertools_accumulate(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "accumulate", {"iterable", "func", "$initial"}, 1);
  std::vector<Value*> operands{t.iterate(a[0]), given(t.facts, a[1]), given(t.facts, a[2])};
  IteratorValue* it = make_iterator(t.heap, Over::accumulate, itertools_type("accumulate"), std::move(operands));
  it->position = given(t.facts, a[2]) ? 1 : 0;
  return it;
}

Value* itertools_starmap(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "starmap", 2, 2);
  Value* iterator = t.iterate(args.positional[1]);
  return make_iterator(t.heap, Over::starmap, itertools_type("starmap"), {args.positional[0], iterator});
}

Value* itertools_takewhile(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "takewhile", 2, 2);
  Value* iterator = t.iterate(args.positional[1]);
  return make_iterator(t.heap, Over::takewhile, itertools_type("takewhile"), {args.positional[0], iterator});
}

Value* itertools_dropwhile(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "dropwhile", 2, 2);
  Value* iterator = t.iterate(args.positional[1]);
  return make_iterator(t.heap, Over::dropwhile, itertools_type("dropwhile"), {args.positional[0], iterator});
}

Value* itertools_filterfalse(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "filterfalse", 2, 2);
  IteratorValue* it = make_iterator(t.heap, Over::filter, itertools_type("filterfalse"),
                                    {args.positional[0], t.iterate(args.positional[1])});
  it->step = -1;
  return it;
}

Value* itertools_combinations(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "combinations", {"iterable", "r"}, 2);
  std::vector<Value*> pool = t.unpack(a[0]), items;
  const int64_t r = t.as_index(a[1]), n = static_cast<int64_t>(pool.size());
  if (r < 0) t.errors.raise_new(PyExc_ValueError, "r must be non-negative");
  std::vector<int64_t> at(static_cast<size_t>(std::max<int64_t>(r, 0)));
  for (int64_t i = 0; i < r; ++i) at[i] = i;
  while (r <= n) {
    std::vector<Value*> row;
    for (int64_t i : at) row.push_back(pool[i]);
    items.push_back(t.heap.tuple(std::move(row)));
    int64_t k = r - 1;
    while (k >= 0 && at[k] == n - r + k) --k;
    if (k < 0) break;
    ++at[k];
    for (int64_t j = k + 1; j < r; ++j) at[j] = at[j - 1] + 1;
  }
  return rows_of(t.heap, "combinations", std::move(items));
}

Value* itertools_pairwise(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "pairwise", 1, 1);
  return make_iterator(t.heap, Over::pairwise, itertools_type("pairwise"), {t.iterate(args.positional[0]), nullptr});
}

Value* functools_reduce(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "reduce", 2, 3);
  Value* iterator = t.iterate(args.positional[1]);
  Value* total = args.positional.size() == 3 ? args.positional[2] : t.next_item(iterator);
  if (!total) t.errors.raise_new(PyExc_TypeError, "reduce() of empty iterable with no initial value");
  while (Value* v = t.next_item(iterator)) total = t.call(args.positional[0], {total, v});
  return total;
}

}  // namespace rows

}  // namespace framejit::frame_hook
