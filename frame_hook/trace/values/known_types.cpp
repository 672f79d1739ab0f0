#include "frame_hook/trace/values/known_types.h"

#include <iterator>

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

PyObject* dict_of_module(const char* name) {
  PyObject* const modules = PyImport_GetModuleDict();
  PyObject* const module = modules ? PyDict_GetItemString(modules, name) : nullptr;
  return module && PyModule_Check(module) ? PyModule_GetDict(module) : nullptr;
}

// All classes made by class statements have the same deallocator. C extensions make heap types too.
bool is_made_by_c(PyTypeObject* type) {
  static const destructor of_class_statements = [] {
    PyRef sample = PyRef::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "sample"));
    return reinterpret_cast<PyTypeObject*>(sample.get())->tp_dealloc;
  }();
  return type->tp_dealloc != of_class_statements;
}

PyTypeObject* known_type(KnownType which) {
  Row& row = g_rows[static_cast<size_t>(which)];
  if (row.type) return row.type;
  PyObject* const members = dict_of_module(row.module);
  PyObject* const found = members ? PyDict_GetItemString(members, row.name) : nullptr;
  if (!found || !PyType_Check(found) || !is_made_by_c(reinterpret_cast<PyTypeObject*>(found))) return nullptr;
  return row.type = reinterpret_cast<PyTypeObject*>(Py_NewRef(found));
}

}  // namespace framejit::frame_hook
