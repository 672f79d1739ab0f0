#include "frame_hook/trace/values/key_hashes.h"

#include <string_view>

#include "frame_hook/trace/values/originals.h"
#include "guards/cpython/names.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

namespace {

struct KnownMethod {
  const char *special, *module, *path;
};

constexpr KnownMethod kKnown[] = {
    {"__hash__", "enum", "Enum.__hash__"},
    {"__hash__", "framejit.compiled_module", "_hash_of_original"},
    {"__eq__", "framejit.compiled_module", "_is_same_module"},
};

bool is_of_program(PyTypeObject* type, const char* special) {
  if (!defined_in_python(type, special)) return false;
  PyObject* const method = _PyType_Lookup(type, interned(special));
  for (const KnownMethod& known : kKnown)
    if (std::string_view(special) == known.special && is_original(method, known.module, known.path)) return false;
  return true;
}

}  // namespace

bool defined_in_python(PyTypeObject* type, const char* special) {
  PyObject* found = _PyType_Lookup(type, interned(special));
  return found && PyFunction_Check(found);
}

bool hashes_in_program(PyObject* key) {
  static PyTypeObject* const tensor = find_original_type("torch", "Tensor");
  PyTypeObject* const type = Py_TYPE(key);
  if (tensor && PyType_IsSubtype(type, tensor)) return false;
  if (is_of_program(type, "__hash__") || is_of_program(type, "__eq__")) return true;
  for (Py_ssize_t i = 0; PyTuple_Check(key) && i < PyTuple_GET_SIZE(key); ++i)
    if (hashes_in_program(PyTuple_GET_ITEM(key, i))) return true;
  const PyRef items = PyRef::steal(PyFrozenSet_CheckExact(key) ? PyObject_GetIter(key) : nullptr);
  while (const PyRef item = PyRef::steal(items ? PyIter_Next(items.get()) : nullptr))
    if (hashes_in_program(item.get())) return true;
  return false;
}

}  // namespace framejit::frame_hook
