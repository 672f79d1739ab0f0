#include "frame_hook/trace/values/c_packages.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/loaded_modules.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/names.h"

namespace framejit::frame_hook {

namespace {

constexpr std::string_view kPackages[] = {
#define C_PACKAGE(id, name, why) name,
#define C_MODULE(name, uses, why)
#include "frame_hook/trace/values/c_packages.def"
#undef C_MODULE
#undef C_PACKAGE
};

struct ModuleRow {
  const char* name;
  unsigned uses;
  PyObject* module = nullptr;  // owned, once it is known
};
ModuleRow g_modules[] = {
#define C_PACKAGE(id, name, why)
#define C_MODULE(name, uses, why) {name, uses},
#include "frame_hook/trace/values/c_packages.def"
#undef C_MODULE
#undef C_PACKAGE
};

bool within(std::string_view name, CPackage package) {
  return is_within(name, kPackages[static_cast<size_t>(package)]);
}

// The object that C code bound the function to; a static method is bound to its type. Borrowed, or null.
PyObject* bound_to(PyObject* callable) {
  return PyCFunction_Check(callable) ? reinterpret_cast<PyCFunctionObject*>(callable)->m_self : nullptr;
}

bool is_c_module(PyObject* object) { return object && PyModule_Check(object) && PyModule_GetDef(object) != nullptr; }

// The module that pybind11 keeps as text: empty for a method, nullopt if something else made the function.
std::optional<std::string_view> pybind_module_of(PyObject* callable) {
  PyObject* const self = bound_to(callable);
  if (!self || !is_made_by_c(Py_TYPE(self))) return std::nullopt;
  if (std::string_view(Py_TYPE(self)->tp_name).find("pybind11") == std::string_view::npos) return std::nullopt;
  const char* const name = find_text(reinterpret_cast<PyCFunctionObject*>(callable)->m_module);
  return name ? name : "";
}

}  // namespace

bool is_of(PyTypeObject* type, CPackage package) { return is_made_by_c(type) && within(type->tp_name, package); }

bool has_no_package(PyTypeObject* type) {
  return is_made_by_c(type) && std::string_view(type->tp_name).find('.') == std::string_view::npos;
}

bool is_function_of(PyObject* callable, CPackage package) {
  PyObject* const self = bound_to(callable);
  if (self && PyType_Check(self)) return is_of(reinterpret_cast<PyTypeObject*>(self), package);
  const char* const name = is_c_module(self) ? PyModule_GetName(self) : nullptr;
  drop_error();
  return name && within(name, package);
}

bool is_function_for(PyObject* callable, ModuleUse use) {
  if (const std::optional<std::string_view> module = pybind_module_of(callable))
    return std::ranges::any_of(g_modules, [&](const ModuleRow& row) { return row.name == *module && row.uses & use; });
  PyObject* const self = bound_to(callable);
  if (!is_c_module(self)) return false;
  for (ModuleRow& row : g_modules) {
    if (!row.module) {
      PyObject* const found = PyDict_GetItemString(PyImport_GetModuleDict(), row.name);
      if (is_c_module(found)) row.module = Py_NewRef(found);
    }
    if (row.module == self) return (row.uses & use) != 0;
  }
  return false;
}

bool is_pybind_function_of(PyObject* callable, CPackage package) {
  const std::optional<std::string_view> module = pybind_module_of(callable);
  return module && (module->empty() || within(*module, package));
}

PyTypeObject* type_of_callable(PyObject* callable) {
  if (PyObject_TypeCheck(callable, &PyMethodDescr_Type) || Py_TYPE(callable) == &PyWrapperDescr_Type ||
      Py_TYPE(callable) == &PyClassMethodDescr_Type)
    return reinterpret_cast<PyDescrObject*>(callable)->d_type;
  return PyType_Check(callable) ? reinterpret_cast<PyTypeObject*>(callable) : Py_TYPE(callable);
}

bool is_torch_c_function(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return is_of(type_of_callable(callable), CPackage::torch);
  return is_function_of(callable, CPackage::torch) || is_pybind_function_of(callable, CPackage::torch);
}

}  // namespace framejit::frame_hook
