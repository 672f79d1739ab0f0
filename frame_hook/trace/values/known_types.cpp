#include "frame_hook/trace/values/known_types.h"

#include <iterator>

#include "frame_hook/trace/values/loaded_modules.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

namespace {

struct Row {
  const char *module, *name;
  PyTypeObject* type = nullptr;  // owned, once it is known
};
Row g_rows[] = {
#define KNOWN_TYPE(id, module, name, why) {module, name},
#include "frame_hook/trace/values/known_types.def"
#undef KNOWN_TYPE
};

}  // namespace

// All classes made by class statements have the same deallocator. C extensions make heap types too.
bool is_made_by_c(PyTypeObject* type) {
  static const destructor of_class_statements = [] {
    PyRef sample = PyRef::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "sample"));
    return reinterpret_cast<PyTypeObject*>(sample.get())->tp_dealloc;
  }();
  return type->tp_dealloc != of_class_statements;
}

bool is_of_package(PyObject* object, std::string_view package) {
  if (PyFunction_Check(object)) return are_globals_of(PyFunction_GET_GLOBALS(object), package);
  if (!PyType_Check(object)) return is_made_by_c(Py_TYPE(object));
  auto* const type = reinterpret_cast<PyTypeObject*>(object);
  if (is_made_by_c(type)) return true;
  PyObject* const module = PyDict_GetItemString(type->tp_dict, "__module__");
  const char* const name = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
  if (!name) drop_error();
  return name && is_within(name, package);
}

PyTypeObject* known_type(KnownType which) {
  Row& row = g_rows[static_cast<size_t>(which)];
  if (row.type) return row.type;
  PyObject* const found = member_of_module(row.module, row.name);
  if (!found || !PyType_Check(found) || !is_made_by_c(reinterpret_cast<PyTypeObject*>(found))) return nullptr;
  return row.type = reinterpret_cast<PyTypeObject*>(Py_NewRef(found));
}

PyTypeObject* builtin_base(PyTypeObject* type) {
  while (!is_made_by_c(type)) type = type->tp_base;
  return type;
}

}  // namespace framejit::frame_hook
