// guards/describe.h — objects as short text for logs. Runs no Python code, shows no address, leaves no exception set.
#pragma once

#include <Python.h>

#include <string>

namespace framejit::guards {

// Literals as Python writes them, types, modules and functions by name, others as "<T object>". A weak reference shows
// its object. At most about 80 characters.
std::string describe(PyObject* object);
std::string type_name(PyTypeObject* type);
std::string text_of_str(PyObject* str);  // an exact str without quotes

}  // namespace framejit::guards
