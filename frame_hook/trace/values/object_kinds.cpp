// frame_hook/trace/values/object_kinds.cpp — classification of real objects by exact type; answers are cached per type.
#include "frame_hook/trace/values/object_kinds.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "frame_hook/bytecode/code.h"
#include "frame_hook/trace/values/c_packages.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/loaded_modules.h"
#include "frame_hook/trace/values/originals.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/names.h"
#include "guards/guard_functions.h"

namespace framejit::frame_hook {

namespace {

// The type of an abstract class's registry, which only C code reads.
PyTypeObject* abc_data_type() {
  static PyTypeObject* known = nullptr;  // never freed
  PyObject* const sized = known ? nullptr : find_original("_collections_abc", "Sized");
  const PyRef data = PyRef::steal(sized ? PyObject_GetAttrString(sized, "_abc_impl") : nullptr);
  if (data && is_made_by_c(Py_TYPE(data.get())))
    known = reinterpret_cast<PyTypeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(data.get()))));
  drop_error();
  return known;
}

// Classes of C extensions whose instances are immutable and, for all practical purposes, unique.
bool is_identity_class(PyTypeObject* type) {
  for (const KnownType known : {KnownType::torch_dtype, KnownType::torch_layout, KnownType::torch_memory_format,
                                KnownType::torch_qscheme, KnownType::union_type})
    if (is_known(type, known)) return true;
  return type == abc_data_type() || type == &Py_GenericAliasType || type == &PyCFunction_Type ||
         type == &PyCMethod_Type || type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type ||
         type == &PyGetSetDescr_Type || type == &PyMemberDescr_Type || type == &PyClassMethodDescr_Type ||
         type == &PyCode_Type || type == &PyProperty_Type || type == &PyStaticMethod_Type ||
         type == &PyClassMethod_Type;
}

// Classes of C extensions whose instances are immutable, with a new object for each request.
bool is_value_class(PyTypeObject* type) {
  for (const KnownType known : {KnownType::torch_device, KnownType::torch_finfo, KnownType::torch_iinfo})
    if (is_known(type, known)) return guards::compare_by_value(type), true;
  if (is_numpy_scalar_type(type)) return guards::compare_by_value(type), true;
  return type == &PyRange_Type;
}

// Answers per type; type objects of C extensions are never freed, so their addresses are good keys.
bool remembered(bool (*is)(PyTypeObject*), PyTypeObject* type) {
  static auto* known = new std::map<std::pair<bool (*)(PyTypeObject*), PyTypeObject*>, bool>;
  auto [it, fresh] = known->try_emplace({is, type}, false);
  if (fresh) it->second = is(type);
  return it->second;
}

}  // namespace

bool is_singleton(PyObject* object) {
  return object == Py_None || object == Py_True || object == Py_False || object == Py_Ellipsis ||
         object == Py_NotImplemented;
}

bool is_exact_scalar(PyTypeObject* type) {
  return type == &PyLong_Type || type == &PyUnicode_Type || type == Py_TYPE(Py_None) || type == &PyBool_Type ||
         type == &PyFloat_Type || type == &PyBytes_Type || type == &PyComplex_Type || type == &PyEllipsis_Type ||
         type == Py_TYPE(Py_NotImplemented);
}

bool is_numpy_scalar_type(PyTypeObject* type) {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) || !is_of(type, CPackage::numpy)) return false;
  const auto member = [&](const char* name) { return find_original_type("numpy", name); };
  if (type == member("longdouble") || type == member("clongdouble")) return false;  // their bits have gaps
  PyTypeObject* const number = member("number");
  return type == member("bool_") || (number && PyType_IsSubtype(type, number));
}

bool is_numpy_scalar(PyObject* object) {
  return !(Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) && remembered(is_numpy_scalar_type, Py_TYPE(object));
}

bool is_typing_form(PyObject* object) {
  static std::vector<PyObject*>* classes = nullptr;  // never freed
  PyTypeObject* type = Py_TYPE(object);
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
  if (!classes) {
    PyObject *const typing = dict_of_module("typing"), *const abc = dict_of_module("_collections_abc");
    if (!typing || !abc || !PyDict_GetItemString(typing, "Callable")) return false;  // it is still being imported
    PyTypeObject* const final_class = find_original_type("typing", "_Final");
    PyObject *name, *item;
    classes = new std::vector<PyObject*>;
    for (Py_ssize_t position = 0; PyDict_Next(typing, &position, &name, &item);) {
      if (!PyType_Check(item)) continue;
      auto* made = reinterpret_cast<PyTypeObject*>(item);
      const bool is_final = final_class && PyType_IsSubtype(made, final_class);
      if (is_final || is_of(made, CPackage::typing)) classes->push_back(Py_NewRef(item));
    }
    if (PyObject* callable_alias = find_original("_collections_abc", "_CallableGenericAlias"))
      classes->push_back(Py_NewRef(callable_alias));
  }
  return std::find(classes->begin(), classes->end(), reinterpret_cast<PyObject*>(type)) != classes->end();
}

bool is_enum_class(PyObject* object) {
  PyTypeObject* meta = Py_TYPE(object);
  if (meta == &PyType_Type || !PyType_Check(object)) return false;
  static PyTypeObject* enum_type = nullptr;
  if (!enum_type) enum_type = find_original_type("enum", "EnumMeta");
  return enum_type && PyType_IsSubtype(meta, enum_type);
}

bool is_enum_member(PyObject* object) { return is_enum_class(reinterpret_cast<PyObject*>(Py_TYPE(object))); }

bool has_own_equality(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return !(type->tp_flags & Py_TPFLAGS_HEAPTYPE) && remembered(is_value_class, type);
}

bool has_identity_constant(PyObject* object) {
  if (PyType_Check(object) || PyModule_Check(object) || has_own_equality(object)) return true;
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) return is_identity_class(type) || is_enum_member(object);
  return remembered(is_identity_class, type);
}

bool is_plain_object(PyObject* object) { return has_identity_constant(object) && !is_enum_member(object); }

bool may_be_half_way(PyTypeObject* type) {
  return type == &PyGen_Type || (type->tp_iternext && is_of(type, CPackage::itertools));
}

bool holds_half_way(PyObject* object) {
  constexpr size_t kMostObjects = 200;
  std::vector<PyObject*> seen{object};
  auto add = [](PyObject* part, void* to) {
    auto& parts = *static_cast<std::vector<PyObject*>*>(to);
    const bool shared =
        PyType_Check(part) || PyModule_Check(part) || PyFunction_Check(part) || is_exact_scalar(Py_TYPE(part));
    if (!shared && parts.size() < kMostObjects && std::find(parts.begin(), parts.end(), part) == parts.end())
      parts.push_back(part);
    return 0;
  };
  for (size_t k = 0; k < seen.size(); ++k) {
    if (may_be_half_way(Py_TYPE(seen[k]))) return true;
    if (PyObject_IS_GC(seen[k]) && Py_TYPE(seen[k])->tp_traverse) Py_TYPE(seen[k])->tp_traverse(seen[k], add, &seen);
  }
  return false;
}

bool is_builtin_subclass(PyTypeObject* type) {
  const unsigned long containers = Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS |
                                   Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS | Py_TPFLAGS_BYTES_SUBCLASS;
  if (type->tp_flags & containers)
    return type != &PyTuple_Type && type != &PyList_Type && type != &PyDict_Type && type != &PyLong_Type &&
           type != &PyUnicode_Type && type != &PyBytes_Type;
  return (PyType_IsSubtype(type, &PySet_Type) && type != &PySet_Type) ||
         (PyType_IsSubtype(type, &PyFrozenSet_Type) && type != &PyFrozenSet_Type) ||
         (PyType_IsSubtype(type, &PyFloat_Type) && type != &PyFloat_Type);
}

PyRef exact_copy_of_scalar(PyObject* object) {
  PyObject* copy = nullptr;
  if (PyLong_Check(object)) {
    PyRef zero = PyRef::steal(PyLong_FromLong(0));
    copy = PyLong_Type.tp_as_number->nb_add(object, zero.get());
  } else if (PyFloat_Check(object)) {
    copy = PyFloat_FromDouble(PyFloat_AS_DOUBLE(object));
  } else if (PyUnicode_Check(object)) {
    copy = PyUnicode_FromObject(object);
  } else if (PyBytes_Check(object)) {
    copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object));
  }
  if (!copy) drop_error();
  return PyRef::steal(copy);
}

PyRef real_set(PyTypeObject* type, PyObject* iterable) {
  return PyRef::steal(type == &PyFrozenSet_Type ? PyFrozenSet_New(iterable) : PySet_New(iterable));
}

std::vector<PyObject*> items_of_set(PyObject* set) {
  std::vector<PyObject*> items;
  PyRef iterator = PyRef::steal(PySet_Type.tp_iter(set));
  while (PyRef item = PyRef::steal(iterator ? PyIter_Next(iterator.get()) : nullptr)) items.push_back(item.get());
  drop_error();
  return items;
}

bool is_plain(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
      type == &PyBytes_Type || type == &PyComplex_Type || type == &PyRange_Type || o == Py_None || o == Py_Ellipsis ||
      o == Py_NotImplemented)
    return true;
  if (is_numpy_scalar(o)) return true;
  if (type == &PyTuple_Type) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
      if (!is_plain(PyTuple_GET_ITEM(o, i))) return false;
    return true;
  }
  if (type == &PySlice_Type) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    return is_plain(s->start) && is_plain(s->stop) && is_plain(s->step);
  }
  if (type == &PyFrozenSet_Type) {
    for (PyObject* item : items_of_set(o))
      if (!is_plain(item)) return false;
    return true;
  }
  return false;
}

bool is_size_type(const PyTypeObject* type) { return is_known(type, KnownType::torch_size); }

namespace {

PyTypeObject* module_class() {  // nn.Module; null before it is imported
  static PyTypeObject* known = nullptr;
  if (!known) known = find_original_type("torch.nn.modules.module", "Module");
  return known;
}

}  // namespace

bool is_torch_module(PyObject* object) {
  PyTypeObject* const module = module_class();
  return module && PyType_IsSubtype(Py_TYPE(object), module);
}

bool calls_forward(PyCodeObject* code) {
  PyTypeObject* const module = module_class();
  const auto is_code_of = [&](const char* name) {
    PyObject* found = PyDict_GetItemString(module->tp_dict, name);
    if (!found || !PyFunction_Check(found)) return false;
    const int is_equal = PyObject_RichCompareBool(reinterpret_cast<PyFunctionObject*>(found)->func_code,
                                                  reinterpret_cast<PyObject*>(code), Py_EQ);
    if (is_equal < 0) drop_error();
    return is_equal == 1;
  };
  return module && (is_code_of("_wrapped_call_impl") || is_code_of("_call_impl"));
}

bool is_exception_type(PyTypeObject* type) {
  return PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
}

bool holds_only_scalars(PyObject* object) {
  if (is_exact_scalar(Py_TYPE(object)) || has_own_equality(object)) return true;
  if (PyTuple_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (!holds_only_scalars(PyTuple_GET_ITEM(object, i))) return false;
    return true;
  }
  if (!PyFrozenSet_CheckExact(object)) return false;
  for (PyObject* item : items_of_set(object))
    if (!holds_only_scalars(item)) return false;
  return true;
}

bool has_only_names(PyObject* dict) {
  PyObject *key, *item;
  for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &key, &item);)
    if (!PyUnicode_CheckExact(key)) return false;
  return true;
}

}  // namespace framejit::frame_hook
