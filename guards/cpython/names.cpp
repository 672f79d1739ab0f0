#include "guards/cpython/names.h"

#include <array>
#include <string>
#include <unordered_set>

#include "guards/cpython/interrupts.h"

namespace framejit {

const char* text_of(PyObject* name) {
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text) drop_error();
  return text ? text : "?";
}

PyObject* interned(std::string_view text) {
  // Indexed by the address of the text, nearly always a literal; two texts that share a slot take turns. The GIL is
  // held.
  struct Known {
    std::string text;
    PyObject* object = nullptr;
  };
  static std::array<Known, 512> table;
  Known& known = table[(reinterpret_cast<size_t>(text.data()) * 0x9E3779B97F4A7C15ull) >> 55];
  if (known.text != text || !known.object) {
    known.text = text;
    known.object = PyUnicode_InternFromString(known.text.c_str());
    static std::unordered_set<PyObject*> kept;  // holds a reference to each, for ever
    if (!kept.insert(known.object).second) Py_DECREF(known.object);
  }
  return known.object;
}

}  // namespace framejit
