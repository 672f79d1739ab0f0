// guards/cpython/names.h — the text of a Python name, for messages.
#pragma once

#include <Python.h>

namespace framejit {

// The name keeps the text. "?" if it has none in UTF-8, or is not a str.
const char* text_of(PyObject* name);

}  // namespace framejit
