#include "frame_hook/trace/values/payloads.h"

#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

namespace {

int keep_first(PyObject* object, void* first) {
  auto** to = static_cast<PyObject**>(first);
  if (!*to) *to = object;
  return 0;
}

bool is_dict_of_class(const Value* v, const PyObject* dict) {
  PyObject* type = v->object && PyType_Check(v->object.get()) ? v->object.get() : nullptr;
  return type && reinterpret_cast<PyTypeObject*>(type)->tp_dict == dict;
}

}  // namespace

// A real mappingproxy always shows the same mapping, and its tp_traverse names it.
Value* contents_of(Heap& heap, Value* v) {
  v = payload_of(v);
  if (v->kind != ValueKind::object || !v->object || Py_TYPE(v->object.get()) != &PyDictProxy_Type) return v;
  PyObject* mapping = nullptr;
  PyDictProxy_Type.tp_traverse(v->object.get(), keep_first, &mapping);
  if (!mapping || !(PyDict_CheckExact(mapping) || PyODict_CheckExact(mapping)))
    graph_break(Reason::unsupported_operand,
                std::string("a mappingproxy of ") + (mapping ? Py_TYPE(mapping)->tp_name : "nothing"));
  heap.facts.guard_identity(v);
  for (Value* written : heap.all())
    if (written->mutated && is_dict_of_class(written, mapping))
      graph_break(Reason::outside_effect, "a mappingproxy of " + describe(written) + ", which was written");
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

Value* exact_int(Shadows& shadows, Value* v) {
  shadows.facts.type_of(v);
  Value* number = payload_of(v);
  if (number->kind == ValueKind::sym_int) return number;
  PyObject* object = constant_of(shadows, number);
  return PyLong_CheckExact(object) ? number : shadows.errors.constant_steal(PyLong_Type.tp_as_number->nb_int(object));
}

bool is_subclassed_number(Value* v) {
  return v->kind == ValueKind::instance &&
         (PyType_IsSubtype(v->type, &PyLong_Type) || PyType_IsSubtype(v->type, &PyFloat_Type) ||
          PyType_IsSubtype(v->type, &PyComplex_Type));
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

std::string plain_text(Shadows& shadows, Value* v, const char* what) {
  v = payload_of(v);
  if (v->kind == ValueKind::object && v->object && PyUnicode_CheckExact(v->object.get()))
    return exact_text(constant_of(shadows, v));
  shadows.errors.raise_new(PyExc_TypeError, std::string(what) + " must be string");
}

}  // namespace framejit::frame_hook
