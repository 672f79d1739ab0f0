// frame_hook/trace/values/heap.cpp — values for the objects that a trace meets, and for those that it makes.
//
// wrap() looks at the exact type of a real object without adding a guard: a trace relies on a fact only after asking
// for it (facts.h). One real object of a kind with identity has one Value; reaching it by a second source adds a `same`
// guard. Scalars have one Value per source, since their guards are per source.
#include "frame_hook/trace/values/heap.h"

#include <new>

#include "frame_hook/trace/values/object_kinds.h"
#include "graph/int64_range.h"
#include "guards/class_state.h"
#include "guards/cpython/interrupts.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::kNoSource;
using guards::SourceId;
using guards::SourceKind;

void Heap::reset() {
  known_ = {};
  has_half_way_ = false;
  null_ = none_ = true_ = false_ = nullptr;
}

// ---- what the trace makes

Value* Heap::made(PyObject* object) {
  if (!object) throw(drop_error(), std::bad_alloc());
  const PyRef owned = PyRef::steal(object);
  return constant_value(object);
}

Value* Heap::null_value() {
  if (!null_) null_ = make<Value>(ValueKind::null, nullptr);
  return null_;
}

Value* Heap::none() { return none_ ? none_ : none_ = object_value(Py_None, kNoSource); }

Value* Heap::boolean(bool b) {
  Value*& cached = b ? true_ : false_;
  return cached ? cached : cached = object_value(b ? Py_True : Py_False, kNoSource);
}

Value* Heap::integer(int64_t i) { return made(PyLong_FromLongLong(i)); }

Value* Heap::string(std::string_view exact) { return made(object_of_text(exact)); }

Value* Heap::size_value(const graph::SymExpr& e) {
  if (auto constant = e.as_constant()) return integer(*constant);
  if (!graph::keep_exact(recording().shapes(), e, facts.stack.here())) throw graph::NoInt64();
  auto* v = make<SymIntValue>(ValueKind::sym_int, &PyLong_Type);
  v->expr = e;
  return v;
}

TupleValue* Heap::tuple(std::vector<Value*> items) {
  auto* v = make<TupleValue>(ValueKind::tuple, &PyTuple_Type);
  v->items = std::move(items);
  v->length_guarded = true;
  return v;
}

ListValue* Heap::list(std::vector<Value*> items) {
  auto* v = make<ListValue>(ValueKind::list, &PyList_Type);
  v->items = std::move(items);
  v->loaded = true;
  return v;
}

DictValue* Heap::dict() {
  auto* v = make<DictValue>(ValueKind::dict, &PyDict_Type);
  v->loaded = true;
  return v;
}

Value* Heap::object_value(PyObject* object, SourceId source) {
  auto* v = make<Value>(ValueKind::object, Py_TYPE(object));
  v->object = PyRef::borrow(object);
  v->source = source;
  v->type_guarded = v->value_guarded = v->identity_guarded = source == kNoSource;
  return v;
}

Value* Heap::constant_value(PyObject* object) {
  if (object == Py_None) return none();
  if (PyBool_Check(object)) return boolean(object == Py_True);
  if (PyTuple_CheckExact(object)) {
    std::vector<Value*> items;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      items.push_back(constant_value(PyTuple_GET_ITEM(object, i)));
    TupleValue* v = tuple(std::move(items));
    if (is_constant(v)) v->object = PyRef::borrow(object);
    return v;
  }
  if (PyFrozenSet_CheckExact(object)) {
    auto* v = make<SetValue>(ValueKind::set, &PyFrozenSet_Type);
    v->loaded = true;
    v->object = PyRef::borrow(object);
    for (PyObject* item : items_of_set(object)) v->items.push_back(constant_value(item));
    return v;
  }
  if (is_exact_scalar(Py_TYPE(object)) || has_identity_constant(object)) return object_value(object, kNoSource);
  return wrap(object, facts.sources().add(SourceKind::constant, kNoSource, 0, object));
}

// ---- what is constant

bool Heap::is_constant_object(PyObject* object) {
  if (is_exact_scalar(Py_TYPE(object)) || has_identity_constant(object)) return true;
  if (PyTuple_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (!is_constant_object(PyTuple_GET_ITEM(object, i))) return false;
    return true;
  }
  if (!PyFrozenSet_CheckExact(object)) return false;
  for (PyObject* item : items_of_set(object))
    if (!is_constant_object(item)) return false;
  return true;
}

bool Heap::is_constant(Value* v) {
  switch (v->kind) {
    case ValueKind::object: return is_constant_object(v->object.get());
    case ValueKind::tuple: {
      auto* t = as<TupleValue>(v);
      for (size_t i = 0; i < t->items.size(); ++i) {
        if (t->items[i] && !is_constant(t->items[i])) return false;
        PyObject* unread = t->items[i] ? nullptr : PyTuple_GET_ITEM(t->object.get(), i);
        if (unread && !is_constant_object(unread)) return false;
        const bool known = !unread || v->source == kNoSource || v->value_guarded;
        if (!known && dynamic_.holds_symbol(
                          unread, facts.sources().add(SourceKind::tuple_item, v->source, static_cast<int32_t>(i))))
          return false;
      }
      return true;
    }
    case ValueKind::set: {
      if (v->type != &PyFrozenSet_Type) return false;
      if (v->object) return is_constant_object(v->object.get());
      for (Value* item : as<SetValue>(v)->items)
        if (!is_constant(item)) return false;
      return true;
    }
    case ValueKind::slice: {
      auto* s = as<SliceValue>(v);
      return is_constant(s->start) && is_constant(s->stop) && is_constant(s->step);
    }
    case ValueKind::instance: return v->object && is_enum_member(v->object.get());
    case ValueKind::sym_int: return as<SymIntValue>(v)->expr.is_constant();  // since its number was read
    case ValueKind::null:
    case ValueKind::tensor:
    case ValueKind::list:
    case ValueKind::dict:
    case ValueKind::cell:
    case ValueKind::function:
    case ValueKind::method:
    case ValueKind::iterator:
    case ValueKind::generator:
    case ValueKind::super:
    case ValueKind::view:
    case ValueKind::identity:
    case ValueKind::array: return false;
  }
  return false;
}

// ---- what is real

Value* Heap::wrap(PyObject* object, SourceId source) {
  FJ_ASSERT(object && source != kNoSource, "a real object is wrapped without an object or a source");
  if (source < known_.by_source.size()) {
    if (Value* known = known_.by_source[source]) return known;
  } else {
    known_.by_source.resize(std::max<size_t>(source + 1, known_.by_source.size() * 2), nullptr);
  }
  if (is_exact_scalar(Py_TYPE(object)) || PyTuple_CheckExact(object))
    return known_.by_source[source] = wrap_fresh(object, source);
  if (Value** known = known_.by_object.find(object)) {
    if ((*known)->source != kNoSource) {
      guards::Guard guard;
      guard.kind = GuardKind::same;
      guard.source = source;
      guard.other = (*known)->source;
      facts.add_guard(std::move(guard));
    }
    return known_.by_source[source] = *known;
  }
  Value* v = wrap_fresh(object, source);
  known_.by_object[object] = v;
  return known_.by_source[source] = v;
}

namespace {

// A real dict may be the __dict__ of an instance, or its own __dict__.
void link_to_owner(Heap& heap, Value* v) {
  PyObject* real = v->object.get();
  auto* instance = v->kind == ValueKind::instance ? as<InstanceValue>(v) : nullptr;
  Value* holds = instance ? instance->payload : v;
  if (!holds || holds->kind != ValueKind::dict) return;
  InstanceValue*& owner = heap.dict_owner(real);
  if (!owner && instance) {
    PyObject** own = _PyObject_GetDictPtr(real);
    if (!own || *own != real || !has_only_names(real)) return;
    owner = instance->dict_owner = instance;
  }
  if (!owner) return;
  as<DictValue>(holds)->owner = owner;
  heap.guard_owner(v->source, owner);
}

}  // namespace

Value* Heap::wrap_fresh(PyObject* object, SourceId source) {
  PyTypeObject* type = Py_TYPE(object);
  Value* v = nullptr;
  if (type == &PyLong_Type) v = wrap_int(object, source);
  else if (is_exact_scalar(type)) v = object_value(object, source);
  else if ((v = wrap_container(object, source))) {}
  else if ((v = wrap_callable(object, source))) {}
  else if (type->tp_iternext && (v = wrap_iterator(*this, object, source))) {}
  else if (is_plain_object(object)) v = object_value(object, source);
  else if (std::string reason; frontend_.classify(object, &reason) != TensorClass::kNot)
    v = make<TensorValue>(ValueKind::tensor, type);
  else if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) || type->tp_dictoffset != 0 || is_builtin_subclass(type))
    v = wrap_instance(object, source);
  else v = object_value(object, source);
  v->object = PyRef::borrow(object);
  v->source = source;
  const bool guarded =
      v->kind == ValueKind::sym_int || (v->kind == ValueKind::instance && as<InstanceValue>(v)->payload &&
                                        as<InstanceValue>(v)->payload->kind == ValueKind::object);
  v->type_guarded = v->value_guarded = guarded;
  v->identity_guarded = false;
  has_half_way_ = has_half_way_ || may_be_half_way(type);
  if (PyDict_Check(object)) link_to_owner(*this, v);
  return v;
}

void Heap::guard_owner(SourceId dict, InstanceValue* owner) {
  facts.type_of(owner);
  guards::Guard guard;
  guard.kind = GuardKind::same;
  guard.source = dict;
  guard.other = facts.sources().add(SourceKind::instance_dict, facts.source_of(owner));
  if (guard.source != guard.other) facts.add_guard(std::move(guard));
}

Value* Heap::wrap_int(PyObject* object, SourceId source) {
  if (!dynamic_.becomes_symbol(object, source)) return object_value(object, source);
  const long long value = PyLong_AsLongLong(object);
  auto* v = make<SymIntValue>(ValueKind::sym_int, &PyLong_Type);
  const graph::SymbolId symbol = recording().shapes().add_symbol(value, INT64_MIN, INT64_MAX);
  v->expr = graph::SymExpr::symbol(symbol);
  facts.add_guard(GuardKind::int_range, source, nullptr, symbol);
  return v;
}

Value* Heap::wrap_container(PyObject* object, SourceId source) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyTuple_Type) {
    auto* v = make<TupleValue>(ValueKind::tuple, type);
    v->items.resize(PyTuple_GET_SIZE(object), nullptr);
    return v;
  }
  if (type == &PyList_Type) return make<ListValue>(ValueKind::list, type);
  if (type == &PyDict_Type) return make<DictValue>(ValueKind::dict, type);
  if (type == &PySet_Type || type == &PyFrozenSet_Type) return make<SetValue>(ValueKind::set, type);
  if (type == &PySlice_Type) {
    auto* v = make<SliceValue>(ValueKind::slice, type);
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    auto member = [&](const char* name, PyObject* part) {
      PyRef key = PyRef::steal(PyUnicode_InternFromString(name));
      return wrap(part, facts.sources().add(SourceKind::attribute, source, 0, key.get()));
    };
    v->start = member("start", slice->start);
    v->stop = member("stop", slice->stop);
    v->step = member("step", slice->step);
    return v;
  }
  if (type == &PyCell_Type) return make<CellValue>(ValueKind::cell, type);
  return nullptr;
}

Value* Heap::wrap_callable(PyObject* object, SourceId source) {
  PyTypeObject* type = Py_TYPE(object);
  guards::SourceTable& sources = facts.sources();
  if (type == &PyFunction_Type) {
    auto* v = make<FunctionValue>(ValueKind::function, type);
    v->code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(object));
    return v;
  }
  if (type == &PyMethod_Type) {
    auto* v = make<MethodValue>(ValueKind::method, type);
    v->function = wrap(PyMethod_GET_FUNCTION(object), sources.add(SourceKind::method_function, source));
    v->self = wrap(PyMethod_GET_SELF(object), sources.add(SourceKind::method_self, source));
    return v;
  }
  if (PyObject* descriptor = guards::descriptor_of_method(object)) {
    auto* v = make<MethodValue>(ValueKind::method, type);
    v->function = wrap(descriptor, sources.add(SourceKind::method_function, source));
    v->self = wrap(PyCFunction_GET_SELF(object), sources.add(SourceKind::method_self, source));
    return v;
  }
  return nullptr;
}

// An instance of a subclass of a builtin container keeps the container's part as its payload, reached through the same
// source. The payload of an int, str, ... subclass is a copy of exact type. It is guarded at once: the instance holds
// the same value, or, for a member of an enumeration, is the same object.
Value* Heap::wrap_instance(PyObject* object, SourceId source) {
  auto* v = make<InstanceValue>(ValueKind::instance, Py_TYPE(object));
  Value* payload = nullptr;
  if (PyTuple_Check(object)) {
    auto* items = make<TupleValue>(ValueKind::tuple, &PyTuple_Type);
    items->items.resize(PyTuple_GET_SIZE(object), nullptr);
    payload = items;
  } else if (PyList_Check(object)) {
    payload = make<ListValue>(ValueKind::list, &PyList_Type);
  } else if (PyDict_Check(object)) {
    payload = make<DictValue>(ValueKind::dict, &PyDict_Type);
  } else if (PyAnySet_Check(object)) {
    payload = make<SetValue>(ValueKind::set, PyFrozenSet_Check(object) ? &PyFrozenSet_Type : &PySet_Type);
  } else if (PyRef copy = exact_copy_of_scalar(object)) {
    v->payload = object_value(copy.get(), kNoSource);
    if (is_enum_member(object)) return facts.add_guard(GuardKind::is, source, object), v;
    facts.add_guard(GuardKind::type_is, source, reinterpret_cast<PyObject*>(v->type));
    facts.add_guard(GuardKind::holds, source, copy.get());
    v->type_is_fixed = true;
    return v;
  }
  if (payload) {
    payload->object = PyRef::borrow(object);
    payload->source = source;
    // Read and guarded like a real container.
    payload->type_guarded = payload->value_guarded = payload->identity_guarded = false;
    payload->type_is_fixed = true;  // it has the builtin class, its object does not
  }
  v->payload = payload;
  return v;
}

// ---- results of recorded and concrete calls

Value* Heap::wrap_result(PyObject* object) {
  PyRef owned = PyRef::steal(object);
  PyTypeObject* type = Py_TYPE(object);
  if (is_exact_scalar(type)) return constant_value(object);
  if (Value** known = known_.by_traced.find(object)) return *known;
  if (recording().is_traced(object)) {
    auto* v = make<TensorValue>(ValueKind::tensor, type);
    v->traced = owned;
    known_.by_traced[object] = v;
    return v;
  }
  if (Value* v = wrap_result_container(object)) return v;
  if (auto size = recording().unwrap_size(object)) return size_value(*size);
  if (Value** known = known_.by_object.find(object)) return *known;
  std::string reason;
  if (frontend_.classify(object, &reason) != TensorClass::kNot)
    graph_break(Reason::unsupported_tensor, "a tensor that a C function made outside of the recording");
  if (is_numpy_scalar(object)) return constant_value(object);
  if (PyLong_Check(object) || PyFloat_Check(object)) {
    PyRef copy = exact_copy_of_scalar(object);
    if (copy && !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return constant_value(copy.get());
  }
  return constant_value(object);
}

Value* Heap::wrap_result_container(PyObject* object) {
  auto items_in = [&](PyObject* sequence) {
    std::vector<Value*> items;
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence);
    for (Py_ssize_t i = 0; i < n; ++i) items.push_back(wrap_result(Py_NewRef(PySequence_Fast_GET_ITEM(sequence, i))));
    return items;
  };
  if (PyTuple_CheckExact(object)) return tuple(items_in(object));
  if (PyList_CheckExact(object)) return list(items_in(object));
  if (PyDict_CheckExact(object)) {
    DictValue* v = dict();
    PyObject *key, *item;
    Py_ssize_t position = 0;
    while (PyDict_Next(object, &position, &key, &item))
      v->entries.push_back({wrap_result(Py_NewRef(key)), wrap_result(Py_NewRef(item))});
    return v;
  }
  if (PySet_CheckExact(object) || PyFrozenSet_CheckExact(object)) {
    auto* v = make<SetValue>(ValueKind::set, Py_TYPE(object));
    v->loaded = true;
    v->order = PyRef::borrow(object);  // nobody else has it
    for (PyObject* item : items_of_set(object)) v->items.push_back(wrap_result(Py_NewRef(item)));
    return v;
  }
  if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    auto* v = make<SliceValue>(ValueKind::slice, &PySlice_Type);
    v->start = wrap_result(Py_NewRef(slice->start));
    v->stop = wrap_result(Py_NewRef(slice->stop));
    v->step = wrap_result(Py_NewRef(slice->step));
    return v;
  }
  if (PyTuple_Check(object)) {  // torch.Size, torch's named results
    auto* v = make<InstanceValue>(ValueKind::instance, Py_TYPE(object));
    v->payload = tuple(items_in(object));
    return v;
  }
  return nullptr;
}

}  // namespace framejit::frame_hook
