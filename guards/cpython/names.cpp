// guards/cpython/names.cpp — the text of a Python name.
#include "guards/cpython/names.h"

#include "guards/cpython/interrupts.h"

namespace framejit {

const char* text_of(PyObject* name) {
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text) drop_error();
  return text ? text : "?";
}

}  // namespace framejit
