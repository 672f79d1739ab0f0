// guards/cpython/names.h — names as Python objects, and their texts.
//
// An exact text holds every str: UTF-8, in which a lone surrogate has three bytes ("surrogatepass"), NULs included. The
// program gets such texts back. What is only compared with words of ours, or shown in a log, is plain UTF-8.
#pragma once

#include <Python.h>

#include <string>
#include <string_view>

namespace framejit {

// The object keeps the text. No error stays set.
const char* find_text(PyObject* object);  // null: no object, no str, or a str with lone surrogates or NULs
const char* text_of(PyObject* name);  // "?" in place of null

std::string exact_text(PyObject* str);
PyObject* object_of_text(std::string_view exact);  // new reference
PyObject* interned(std::string_view exact);  // borrowed, immortal

}  // namespace framejit
