// frame_hook/trace/types/make_iterators.cpp — iter() of the builtin types, and iterators from outside of the trace.
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/types/set_order.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/iterators.h"

namespace framejit::frame_hook {

using Over = IteratorValue::Over;

IteratorValue* make_iterator(Heap& heap, Over over, PyTypeObject* type, std::vector<Value*> operands) {
  auto* it = heap.make<IteratorValue>(ValueKind::iterator, type);
  it->over = over;
  it->operands = std::move(operands);
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

IteratorValue* iterate_set(Shadows& shadows, SetValue* set) {
  IteratorValue* it = make_iterator(shadows.heap, Over::snapshot, set_iterator_type(),
                                    {shadows.heap.tuple(ordered_items(shadows, set)), set});
  it->removals = set->removals;
  return it;
}

IteratorValue* iterate_deque(Heap& heap, Value* deque) {
  IteratorValue* it = make_iterator(heap, Over::deque, list_iterator_type(), {deque});
  it->removals = as<ListValue>(payload_of(deque))->changes;
  return it;
}

Value* iterate_range(Shadows& shadows, Value* v) {
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

}  // namespace

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
    graph_break(Reason::unsupported_operand, std::string("iteration over an object of type ") + inner->type->tp_name);
  const PySequenceMethods* sequence = builtin_base(v->type)->tp_as_sequence;
  raise_unless_in_c(t.errors, v, sequence && sequence->sq_item,
                    std::string("'") + v->type->tp_name + "' object is not iterable");
}

}  // namespace framejit::frame_hook
