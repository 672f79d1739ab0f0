// guards/cpython/names.cpp — the text of a Python name.
#include "guards/cpython/names.h"

#include "guards/cpython/interrupts.h"

namespace framejit {

std::string name_text(PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) drop_error();
  return text ? text : "?";
}

}  // namespace framejit
