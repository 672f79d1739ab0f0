#include "frame_hook/trace/values/known_types.h"

#include "frame_hook/trace/values/originals.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

namespace {

struct Row {
  const char *module, *name;
  PyTypeObject* type = nullptr;  // once it is known
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

PyTypeObject* known_type(KnownType which) {
  Row& row = g_rows[static_cast<size_t>(which)];
  if (row.type) return row.type;
  PyTypeObject* const found = find_original_type(row.module, row.name);
  return row.type = found && is_made_by_c(found) ? found : nullptr;
}

PyTypeObject* builtin_base(PyTypeObject* type) {
  while (!is_made_by_c(type)) type = type->tp_base;
  return type;
}

}  // namespace framejit::frame_hook
