// guards/cpython/names.h — the text of a Python name, for messages.
#pragma once

#include <Python.h>

#include <string>

namespace framejit {

// "?" if it has none in UTF-8.
std::string name_text(PyObject* name);

}  // namespace framejit
