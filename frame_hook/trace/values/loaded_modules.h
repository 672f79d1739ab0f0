// frame_hook/trace/values/loaded_modules.h — members of modules that the process has loaded. Nothing here imports one.
//
// A module is recognised by its dict, which is the globals of the functions that it defines, never by the name that
// they have there. What sys.modules has under a name may be no module: then it counts as not loaded.
#pragma once

#include <Python.h>

#include <string_view>

namespace framejit::frame_hook {

// The dict of a module that is loaded under this name, or null; borrowed.
PyObject* dict_of_module(const char* name);
// A member of such a module, or null; borrowed.
PyObject* member_of_module(const char* module, const char* name);

// Whether a name is that of the package, or of a module in it.
bool is_within(std::string_view name, std::string_view package);
// Whether the globals of a function are those of a module of the package.
bool are_globals_of(PyObject* globals, std::string_view package);

}  // namespace framejit::frame_hook
