// frame_hook/trace/types/type_expressions.cpp — Callable[..., int], Optional[Tensor], collections.abc.Sequence[T]:
// subscripts of types by types.
//
// Module typing's own code makes them, natively: it only reads types, and its results are immutable. The operands are
// guarded.
#include "frame_hook/trace/machine/nested.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/values/loaded_modules.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

namespace {

bool is_type_expression(Tracer& t, Value* v) {
  if (v->kind == ValueKind::instance && v->object && is_typing_form(v->object.get())) return true;
  if (v->kind != ValueKind::tuple && v->kind != ValueKind::list)
    return v->kind == ValueKind::object && t.heap.is_constant(v);
  for (Value* item : t.unpack(v))
    if (!is_type_expression(t, item)) return false;
  return true;
}

PyRef real_expression(Tracer& t, Value* v) {
  if (v->kind == ValueKind::instance) return t.facts.guard_identity(v), v->object;
  if (v->kind == ValueKind::object) return PyRef::borrow(constant_of(t.shadows, v));
  const std::vector<Value*> items = t.unpack(v);
  const auto n = static_cast<Py_ssize_t>(items.size());
  PyRef made = PyRef::steal(v->kind == ValueKind::list ? PyList_New(n) : PyTuple_New(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = real_expression(t, items[static_cast<size_t>(i)]).release();
    if (v->kind == ValueKind::list) PyList_SET_ITEM(made.get(), i, item);
    else PyTuple_SET_ITEM(made.get(), i, item);
  }
  return made;
}

// A class whose subscript types.GenericAlias makes, or the code of module typing (Generic, Protocol).
bool has_known_subscript(Shadows& shadows, Value* v) {
  auto* type = reinterpret_cast<PyTypeObject*>(v->object.get());
  if (_PyType_Lookup(Py_TYPE(type), interned("__getitem__"))) return false;  // of its metaclass, as for enumerations
  const Found getter = look_up(shadows, type, shadows.facts.source_of(v), interned("__class_getitem__"));
  PyTypeObject* const generic = find_original_type("typing", "Generic");  // in C since 3.12
  const bool is_generics = generic && _PyType_Lookup(generic, interned("__class_getitem__")) == getter.object;
  if (is_generics) return getter.object != nullptr;
  if (!getter.object || Py_TYPE(getter.object) != &PyClassMethod_Type) return false;
  const PyRef maker = PyRef::steal(PyObject_GetAttr(getter.object, interned("__func__")));
  if (!maker) return drop_error(), false;
  if (PyFunction_Check(maker.get())) { return PyFunction_GET_GLOBALS(maker.get()) == dict_of_module("typing"); }
  return maker.get() == reinterpret_cast<PyObject*>(&Py_GenericAliasType) ||
         maker.get() == find_original("_collections_abc", "_CallableGenericAlias");
}

}  // namespace

bool type_compares_in_c(PyObject* type) {
  if (PyType_Check(type)) return Py_TYPE(type)->tp_richcompare == PyType_Type.tp_richcompare;
  static PyTypeObject* const union_type =
      Py_TYPE(PyNumber_Or(reinterpret_cast<PyObject*>(&PyLong_Type), reinterpret_cast<PyObject*>(&PyUnicode_Type)));
  if (Py_TYPE(type) != &Py_GenericAliasType && Py_TYPE(type) != union_type) return true;
  const PyRef args = PyRef::steal(PyObject_GetAttr(type, interned("__args__")));
  if (!args) return drop_error(), false;
  const Nested nested("a type expression");
  for (Py_ssize_t i = 0; PyTuple_Check(args.get()) && i < PyTuple_GET_SIZE(args.get()); ++i)
    if (!type_compares_in_c(PyTuple_GET_ITEM(args.get(), i))) return false;
  return true;
}

Value* type_subscript(Tracer& t, Value* v, Value* key) {
  const bool is_form = v->kind == ValueKind::instance && v->object && is_typing_form(v->object.get());
  if (!is_form && !real_type(v)) return nullptr;
  if (!is_type_expression(t, key)) return nullptr;
  if (!is_form && !(t.facts.known_type(v) && has_known_subscript(t.shadows, v))) return nullptr;
  const PyRef form = is_form ? real_expression(t, v) : v->object, operand = real_expression(t, key);
  PyRef made = PyRef::steal(PyObject_GetItem(form.get(), operand.get()));
  if (made) return t.heap.constant_value(made.get());
  drop_error();  // the same error is raised when the code of typing is traced
  return nullptr;
}

}  // namespace framejit::frame_hook
