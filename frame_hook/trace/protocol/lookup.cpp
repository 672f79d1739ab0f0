#include "frame_hook/trace/protocol/lookup.h"

#include <algorithm>

#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

using guards::SourceKind;

PyObject* own_class_attribute(PyTypeObject* type, PyObject* name) {
#if PY_VERSION_HEX >= 0x030C0000
  PyRef dict = PyRef::steal(PyType_GetDict(type));
  PyObject* found = dict ? PyDict_GetItemWithError(dict.get(), name) : nullptr;
#else
  PyObject* found = type->tp_dict ? PyDict_GetItemWithError(type->tp_dict, name) : nullptr;
#endif
  if (!found) drop_error();
  return found;
}

std::string class_of_missing(PyTypeObject* type, [[maybe_unused]] PyObject* name) {
#if PY_VERSION_HEX >= 0x030D0000
  if (PyObject* found = _PyType_Lookup(type, name); found && Py_IS_TYPE(found, &PyMemberDescr_Type))
    if (const PyRef full = PyRef::steal(PyType_GetFullyQualifiedName(type))) return text_of(full.get());
  drop_error();
#endif
  return type->tp_name;
}

namespace {

// The class along the MRO that has the attribute in its own dict.
PyTypeObject* owner_of_attribute(PyTypeObject* type, PyObject* name) {
  for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* of = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    if (own_class_attribute(of, name)) return of;
  }
  return nullptr;
}

}  // namespace

Found look_up(Shadows& shadows, PyTypeObject* type, guards::SourceId type_source, PyObject* name) {
  if (!(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) shadows.facts.guard_type_unchanged(type, type_source);
  Found found;
  found.object = _PyType_Lookup(type, name);
  if (!found.object) return found;
  found.source = shadows.facts.sources().add(SourceKind::type_lookup, type_source, 0, name);
  if (const WrittenClassData& written = shadows.tables().class_data; !written.values.empty())
    if (PyTypeObject* owner = owner_of_attribute(type, name)) found.written = written.find(owner, name);
  return found;
}

// If the class of the object is a Python class, it may become or stop being a descriptor class. So that class is
// guarded.
void guard_descriptor_class(Facts& facts, const Found& found) {
  PyTypeObject* kind = found.object ? Py_TYPE(found.object) : nullptr;
  if (!kind || !(kind->tp_flags & Py_TPFLAGS_HEAPTYPE) || (kind->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) ||
      PyType_Check(found.object))
    return;
  if (builtin_base(kind) == kind) return;  // a C class
  facts.guard_type_unchanged(
      kind, facts.sources().add(SourceKind::constant, guards::kNoSource, 0, reinterpret_cast<PyObject*>(kind)));
}

Found look_up(Shadows& shadows, Value* v, PyObject* name) {
  PyTypeObject* type = shadows.facts.type_of(v);
  return look_up(shadows, type, shadows.facts.type_source(v), name);
}

Value* found_value(Heap& heap, const Found& found) {
  if (found.written) return found.written;
  Value* v = heap.wrap(found.object, found.source);
  PyTypeObject* type = Py_TYPE(found.object);
  if (v->kind == ValueKind::object && type != &PyUnicode_Type) {
    // The identity holds as long as the type is unchanged.
    v->type_guarded = v->value_guarded = v->identity_guarded = true;
  }
  return v;
}

Found find_special(Shadows& shadows, Value* v, const char* name) {
  if (v->kind != ValueKind::instance && v->kind != ValueKind::object) return {};
  if (v->kind == ValueKind::object && !(shadows.heap.facts.type_of(v)->tp_flags & Py_TPFLAGS_HEAPTYPE)) return {};
  const Found d = look_up(shadows, v, interned(name));
  if (d.object == Py_None && std::string_view(name) != "__hash__")
    graph_break(Reason::exception_raised,
                std::string("a TypeError of ") + v->type->tp_name + "." + name + ", which is None,");
  if (!d.object || d.object == Py_None) return {};
  PyTypeObject* kind = Py_TYPE(d.object);
  const bool is_c = kind == &PyWrapperDescr_Type || kind == &PyMethodDescr_Type || kind == &PyClassMethodDescr_Type;
  return is_c ? Found{} : d;
}

bool has_any_special(Shadows& shadows, Value* v, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return find_special(shadows, v, name).object != nullptr; });
}

bool c_functions_may_ask(Shadows& shadows, Value* v) {
  Value* const payload = payload_of(v);
  if (payload->kind == ValueKind::tuple) return has_any_special(shadows, v, {"__iter__", "__len__", "__getitem__"});
  return is_subclassed_number(v) && (has_any_special(shadows, v, {"__getitem__"}) ||
                                     (is_int(payload) && has_any_special(shadows, v, {"__float__", "__complex__"})));
}

}  // namespace framejit::frame_hook
