#include "guards/cpython/names.h"

#include <array>
#include <cstring>
#include <new>
#include <string>
#include <unordered_set>

#include "guards/cpython/interrupts.h"
#include "guards/cpython/py_ref.h"

namespace framejit {

const char* find_text(PyObject* object) {
  Py_ssize_t size = 0;
  const char* text = object && PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
  if (!text) drop_error();
  return text && std::strlen(text) == static_cast<size_t>(size) ? text : nullptr;
}

const char* text_of(PyObject* name) {
  const char* text = find_text(name);
  return text ? text : "?";
}

std::string exact_text(PyObject* str) {
  Py_ssize_t size = 0;
  if (const char* text = PyUnicode_AsUTF8AndSize(str, &size)) return {text, static_cast<size_t>(size)};
  drop_error();
  const PyRef bytes = PyRef::steal(PyUnicode_AsEncodedString(str, "utf-8", "surrogatepass"));
  if (!bytes) throw std::bad_alloc();
  return {PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.get()))};
}

PyObject* object_of_text(std::string_view exact) {
  PyObject* made = PyUnicode_DecodeUTF8(exact.data(), static_cast<Py_ssize_t>(exact.size()), "surrogatepass");
  if (!made) throw std::bad_alloc();
  return made;
}

PyObject* interned(std::string_view exact) {
  // Indexed by the address of the text, nearly always a literal; two texts that share a slot take turns. The GIL is
  // held.
  struct Known {
    std::string text;
    PyObject* object = nullptr;
  };
  static std::array<Known, 512> table;
  Known& known = table[(reinterpret_cast<size_t>(exact.data()) * 0x9E3779B97F4A7C15ull) >> 55];
  if (known.text != exact || !known.object) {
    known.text = exact;
    known.object = object_of_text(exact);
    PyUnicode_InternInPlace(&known.object);
    static std::unordered_set<PyObject*> kept;  // holds a reference to each, for ever
    if (!kept.insert(known.object).second) Py_DECREF(known.object);
  }
  return known.object;
}

}  // namespace framejit
