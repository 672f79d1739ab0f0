// frame_hook/trace/protocol/operands.cpp — what an operand is for C code: its payload, number, text, builtin base
// class. Nothing here runs Python code.
#include <string>
#include <unordered_map>

#include "frame_hook/trace/protocol/protocol.h"
#include "frame_hook/trace/values/known_types.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

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

namespace {

int keep_first(PyObject* object, void* first) {
  auto** to = static_cast<PyObject**>(first);
  if (!*to) *to = object;
  return 0;
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
    return text_of(constant_of(shadows, v));
  shadows.errors.raise_new(PyExc_TypeError, std::string(what) + " must be string");
}

PyTypeObject* builtin_base(PyTypeObject* type) {
  while (!is_made_by_c(type)) type = type->tp_base;
  return type;
}

}  // namespace framejit::frame_hook
