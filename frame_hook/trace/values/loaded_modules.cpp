#include "frame_hook/trace/values/loaded_modules.h"

#include <string>

#include "guards/cpython/names.h"

namespace framejit::frame_hook {

PyObject* dict_of_module(const char* name) {
  PyObject* const modules = PyImport_GetModuleDict();
  PyObject* const module = modules ? PyDict_GetItemString(modules, name) : nullptr;
  return module && PyModule_Check(module) ? PyModule_GetDict(module) : nullptr;
}

PyObject* member_of_module(const char* module, const char* name) {
  PyObject* const members = dict_of_module(module);
  return members ? PyDict_GetItemString(members, name) : nullptr;
}

bool is_within(std::string_view name, std::string_view package) {
  return name.starts_with(package) && (name.size() == package.size() || name[package.size()] == '.');
}

// The name alone is not enough: any module may claim it.
bool are_globals_of(PyObject* globals, std::string_view package) {
  const char* const text = find_text(PyDict_GetItemString(globals, "__name__"));
  return text && is_within(text, package) && globals == dict_of_module(text);
}

}  // namespace framejit::frame_hook
