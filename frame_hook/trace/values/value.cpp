// frame_hook/trace/values/value.cpp — small facts about traced values that the whole object protocol uses. None of them
// runs Python code.
#include "frame_hook/trace/values/value.h"

#include <array>
#include <unordered_set>

#include "frame_hook/trace/protocol/protocol.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

ValueArena& ValueArena::operator=(ValueArena&& other) {
  clear();
  chunks_ = std::move(other.chunks_);
  values_ = std::move(other.values_);
  return *this;
}

void ValueArena::clear() {
  for (Value* v : values_) v->~Value();
  values_.clear();
  chunks_.clear();
}

void* ValueArena::allocate(size_t size) {
  constexpr size_t kAlign = alignof(std::max_align_t);
  size = (size + kAlign - 1) / kAlign * kAlign;
  if (chunks_.empty() || chunks_.back().used + size > kChunk)
    chunks_.push_back({std::make_unique_for_overwrite<std::byte[]>(kChunk), 0});
  Chunk& chunk = chunks_.back();
  return chunk.data.get() + std::exchange(chunk.used, chunk.used + size);
}

Value* InstanceValue::find_attr(PyObject* name, bool* known) const {
  for (const auto& [n, v] : attrs)
    if (n.get() == name) {
      *known = true;
      return v;
    }
  *known = false;
  return nullptr;
}

PyObject* interned(std::string_view text) {
  // Indexed by the address of the text, nearly always a literal; two texts that share a slot take turns. The GIL is
  // held.
  struct Known { std::string text; PyObject* object = nullptr; };
  static std::array<Known, 512> table;
  Known& known = table[(reinterpret_cast<size_t>(text.data()) * 0x9E3779B97F4A7C15ull) >> 55];
  if (known.text != text || !known.object) {
    known.text = text;
    known.object = PyUnicode_InternFromString(known.text.c_str());
    static std::unordered_set<PyObject*> kept;  // holds a reference to each, for ever
    if (!kept.insert(known.object).second) Py_DECREF(known.object);
  }
  return known.object;
}

PyObject* operator_function(const char* name) {
  static PyObject* const module = PyImport_ImportModule("operator");
  static auto* known = new std::unordered_map<std::string_view, PyObject*>;
  auto it = known->find(name);
  if (it == known->end()) it = known->emplace(name, PyObject_GetAttrString(module, name)).first;
  return it->second;
}

const char* text_of(PyObject* str) {
  const char* text = PyUnicode_Check(str) ? PyUnicode_AsUTF8(str) : nullptr;
  if (!text) drop_error();
  return text ? text : "?";
}

std::string describe(Value* v) {
  if (!v) return "nothing";
  if (v->object && PyType_Check(v->object.get()))
    return std::string("class ") + reinterpret_cast<PyTypeObject*>(v->object.get())->tp_name;
  if (v->kind == ValueKind::function) {
    PyCodeObject* code = as<FunctionValue>(v)->code;
    return std::string("function ") + (code ? text_of(code->co_qualname) : "?");
  }
  return std::string("an object of type ") + (v->type ? v->type->tp_name : "?");
}

Value* payload_of(Value* v) {
  while (v->kind == ValueKind::instance && as<InstanceValue>(v)->payload &&
         !PyType_HasFeature(v->type, Py_TPFLAGS_BASE_EXC_SUBCLASS))  // an exception's payload is its arguments, not its
                                                                     // value
    v = as<InstanceValue>(v)->payload;
  return v;
}

namespace {

int keep_first(PyObject* object, void* first) {
  auto** to = static_cast<PyObject**>(first);
  if (!*to) *to = object;
  return 0;
}

}  // namespace

// Which mapping a real mappingproxy shows never changes, and its tp_traverse names it.
Value* contents_of(Heap& heap, Value* v) {
  v = payload_of(v);
  if (v->kind != ValueKind::object || !v->object || Py_TYPE(v->object.get()) != &PyDictProxy_Type) return v;
  PyObject* mapping = nullptr;
  PyDictProxy_Type.tp_traverse(v->object.get(), keep_first, &mapping);
  if (!mapping || !(PyDict_CheckExact(mapping) || PyODict_CheckExact(mapping)))
    graph_break(Reason::unsupported_operand,
                std::string("a mappingproxy of ") + (mapping ? Py_TYPE(mapping)->tp_name : "nothing"));
  heap.facts.guard_identity(v);
  return payload_of(
      heap.wrap(mapping, heap.facts.sources().add(guards::SourceKind::constant, guards::kNoSource, 0, mapping)));
}

bool shows_ordered_dict(Value* v) {
  if (v->kind != ValueKind::instance && v->kind != ValueKind::object) return false;
  if (v->kind == ValueKind::instance && builtin_base(v->type) == &PyODict_Type) return true;
  if (v->type != &PyDictProxy_Type) return false;
  if (v->kind == ValueKind::instance) return shows_ordered_dict(as<InstanceValue>(v)->payload);
  PyObject* mapping = nullptr;
  PyDictProxy_Type.tp_traverse(v->object.get(), keep_first, &mapping);
  return mapping && PyODict_Check(mapping);
}

std::vector<PyRef> set_items(PyObject* set) {
  std::vector<PyRef> items;
  PyRef iterator = PyRef::steal(PySet_Type.tp_iter(set));
  while (PyObject* item = iterator ? PyIter_Next(iterator.get()) : nullptr) items.push_back(PyRef::steal(item));
  drop_error();
  return items;
}

bool is_plain(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
      type == &PyBytes_Type || type == &PyComplex_Type || type == &PyRange_Type || o == Py_None || o == Py_Ellipsis ||
      o == Py_NotImplemented)
    return true;
  if (is_numpy_scalar(o)) return true;
  if (type == &PyTuple_Type) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
      if (!is_plain(PyTuple_GET_ITEM(o, i))) return false;
    return true;
  }
  if (type == &PySlice_Type) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    return is_plain(s->start) && is_plain(s->stop) && is_plain(s->step);
  }
  if (type == &PyFrozenSet_Type) {
    for (const PyRef& item : set_items(o))
      if (!is_plain(item.get())) return false;
    return true;
  }
  return false;
}

bool is_plain(Tracer& t, Value* v) {
  switch (v->kind) {
    case ValueKind::object: return v->object && is_plain(v->object.get());
    case ValueKind::tuple: {
      auto* tuple = as<TupleValue>(v);
      if (v->object && is_plain(v->object.get())) return t.heap.is_constant(v);  // not with symbols in it
      for (size_t i = 0; i < tuple->items.size(); ++i)
        if (!is_plain(t, t.item(tuple, i))) return false;
      return true;
    }
    case ValueKind::slice: {
      auto* s = as<SliceValue>(v);
      return is_plain(t, s->start) && is_plain(t, s->stop) && is_plain(t, s->step);
    }
    case ValueKind::set: {
      if (v->object) return v->type == &PyFrozenSet_Type && is_plain(v->object.get());
      if (v->type != &PyFrozenSet_Type) return false;
      for (Value* item : as<SetValue>(v)->items)
        if (!is_plain(t, item)) return false;
      return true;
    }
    default: return false;
  }
}

bool all_plain(Tracer& t, const Arguments& args) {
  for (Value* v : args.positional)
    if (!is_plain(t, v)) return false;
  for (const auto& [name, v] : args.keywords)
    if (!is_plain(t, v)) return false;
  return true;
}

Value* specialised(Tracer& t, Value* v) {
  if (v->kind == ValueKind::identity) graph_break(Reason::escaped_traced, "id(), used as a number,");
  return v->kind == ValueKind::sym_int ? t.heap.integer(t.as_index(v)) : v;
}

Value* without_symbols(Tracer& t, Value* v) {
  v = specialised(t, payload_of(v));
  if (v->kind != ValueKind::tuple || t.heap.is_constant(v)) return v;
  std::vector<Value*> items = t.unpack(v);
  for (Value*& item : items)
    if (item->kind == ValueKind::sym_int || item->kind == ValueKind::tuple) item = without_symbols(t, item);
  return t.heap.tuple(std::move(items));
}

void raise_unless_in_c(Errors& errors, Value* v, bool in_c, const std::string& message) {
  errors.heap.facts.type_of(v);
  if (in_c) graph_break(Reason::unsupported_operand, "C code of " + describe(v));
  errors.raise_new(PyExc_TypeError, message);
}

void refuse_unknown_arithmetic(Value* v, const char* what) {
  const Value* payload = payload_of(v);
  if (payload == v || payload->kind != ValueKind::object || builtin_base(v->type) == payload->type) return;
  graph_break(Reason::unsupported_operand, std::string(what) + " on " + describe(v));
}

PyObject* real_type(Value* v) { return v->object && PyType_Check(v->object.get()) ? v->object.get() : nullptr; }

std::string plain_text(Tracer& t, Value* v, const char* what) {
  v = payload_of(v);
  if (v->kind == ValueKind::object && v->object && PyUnicode_CheckExact(v->object.get())) return text_of(t.constant(v));
  t.errors.raise_new(PyExc_TypeError, std::string(what) + " must be string");
}

PyTypeObject* builtin_base(PyTypeObject* type) {
  while (!is_made_by_c(type)) type = type->tp_base;
  return type;
}

ProtocolState& Tracer::protocol() {
  if (!trace_.protocol) trace_.protocol = std::make_shared<ProtocolState>();
  return *trace_.protocol;
}

PyTypeObject* method_wrapper_type() {
  static PyTypeObject* const type = Py_TYPE(PyObject_GetAttrString(Py_None, "__str__"));
  return type;
}

MethodValue* make_method(Heap& heap, Value* function, Value* self) {
  PyTypeObject* const of =
      function->kind == ValueKind::object && function->object ? Py_TYPE(function->object.get()) : nullptr;
  const bool in_c = of == &PyMethodDescr_Type || of == &PyClassMethodDescr_Type;
  auto* m = heap.make<MethodValue>(ValueKind::method, of == &PyWrapperDescr_Type ? method_wrapper_type()
                                                      : in_c                     ? &PyCFunction_Type
                                                                                 : &PyMethod_Type);
  m->function = function;
  m->self = self;
  return m;
}

void load_method(Heap& heap, MethodValue* m) {
  if (m->function) return;
  heap.facts.type_of(m);
  auto& sources = heap.facts.sources();
  m->function =
      heap.wrap(PyMethod_GET_FUNCTION(m->object.get()), sources.add(guards::SourceKind::method_function, m->source));
  m->self = heap.wrap(PyMethod_GET_SELF(m->object.get()), sources.add(guards::SourceKind::method_self, m->source));
}

// A finaliser runs when the last reference is dropped, and a trace does not know when that is.
InstanceValue* make_instance(Heap& heap, PyTypeObject* type) {
  if (_PyType_Lookup(type, interned("__del__")))
    graph_break(Reason::made_in_trace,
                std::string("an object of class ") + type->tp_name + ", which has a __del__,");
  return heap.make<InstanceValue>(ValueKind::instance, type);
}

Value* mapping_proxy(Heap& heap, Value* mapping) {
  InstanceValue* v = make_instance(heap, &PyDictProxy_Type);
  v->payload = mapping;
  return v;
}

}  // namespace framejit::frame_hook
