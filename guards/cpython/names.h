// guards/cpython/names.h — names as Python objects, and their texts.
#pragma once

#include <Python.h>

#include <string_view>

namespace framejit {

// The name keeps the text. "?" if it has none in UTF-8, or is not a str.
const char* text_of(PyObject* name);
PyObject* interned(std::string_view text);  // borrowed, immortal

}  // namespace framejit
