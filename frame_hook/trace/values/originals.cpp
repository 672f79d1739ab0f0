#include "frame_hook/trace/values/originals.h"

#include <string>
#include <string_view>
#include <unordered_map>

#include "frame_hook/trace/machine/graph_break.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/loaded_modules.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/names.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

namespace {

// Where and as what an object is defined. `owner`: the class, if it is a member of one; the class is an original.
struct Definition {
  std::string_view module, name;
  PyTypeObject* owner = nullptr;
  std::string_view found_in = {};  // another module, if a row of DEFINED_AS names two
  std::string_view wraps = {};     // what a decorated function wraps, if a row of DEFINED_AS names the wrapper

  std::string_view package() const { return module.substr(0, module.find('.')); }
};

// What the object says is read without running code of the program: from C structures, or by getters in C.
std::string_view text_in(PyObject* object) {
  const char* const found = find_text(object);
  return found ? found : "";
}

std::string text_of_member(PyObject* object, const char* name) {
  const PyRef found = PyRef::steal(PyObject_GetAttrString(object, name));
  if (!found) drop_error();
  return std::string(text_in(found.get()));
}

std::string_view last_word(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// The types of module _operator call themselves those of operator. Names without a dot are those of builtins.
bool is_type_of(PyTypeObject* type, std::string_view package) {
  if (!is_made_by_c(type)) return false;
  const std::string_view path = type->tp_name;
  std::string_view own = path.find('.') == std::string_view::npos ? "builtins" : path.substr(0, path.find('.'));
  const auto without_mark = [](std::string_view name) { return name.substr(name.starts_with('_') ? 1 : 0); };
  return without_mark(own) == without_mark(package);
}

// NumPy's C code gives its modules names without the package.
bool is_module_of(PyObject* module, std::string_view package) {
  const PyModuleDef* const definition = PyModule_GetDef(module);
  if (!definition) return false;
  if (is_within(definition->m_name, package)) return true;
  const char* const name = PyModule_GetName(module);
  if (!name) drop_error();
  return name && is_within(name, package) && dict_of_module(name) == PyModule_GetDict(module);
}

bool is_c_function(PyObject* object, const Definition& wanted) {
  auto* const function = reinterpret_cast<PyCFunctionObject*>(object);
  PyObject* const self = function->m_self;  // of a static method: its type
  if (!self || wanted.name != function->m_ml->ml_name) return false;
  if (PyModule_Check(self)) return !wanted.owner && is_module_of(self, wanted.package());
  if (PyType_Check(self)) {
    auto* const type = reinterpret_cast<PyTypeObject*>(self);
    return wanted.owner ? PyType_IsSubtype(wanted.owner, type) : is_type_of(type, wanted.package());
  }
  // pybind11 binds a function to a record of its own, and keeps the module as text; a method has none.
  const bool is_pybinds =
      is_made_by_c(Py_TYPE(self)) && std::string_view(Py_TYPE(self)->tp_name).starts_with("pybind11");
  if (wanted.owner) return is_pybinds && std::string_view(Py_TYPE(wanted.owner)->tp_name).starts_with("pybind11");
  return is_pybinds && is_within(text_in(function->m_module), wanted.package());
}

bool is_function_within(PyObject* object, std::string_view package) {
  return PyFunction_Check(object) && are_globals_of(PyFunction_GET_GLOBALS(object), package);
}

PyCodeObject* code_of(PyObject* function) { return reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function)); }

// A function that the body of a class or of one of its bases defines says so in its code. A decorated one does not.
bool is_of_class(PyObject* function, PyTypeObject* owner) {
  const std::string_view path = text_in(code_of(function)->co_qualname);
  if (path.find("<locals>") != std::string_view::npos) return true;
  const std::string_view of = path.substr(0, path.rfind('.'));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(owner->tp_mro); ++i) {
    auto* const base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(owner->tp_mro, i));
    if (of == last_word(base->tp_name)) return true;
  }
  return false;
}

// What a decorator wraps must be of the package too.
bool is_python_function(PyObject* object, const Definition& wanted) {
  auto* const function = reinterpret_cast<PyFunctionObject*>(object);
  if (text_in(code_of(object)->co_name) != wanted.name) return false;
  if (wanted.owner && !is_of_class(object, wanted.owner)) return false;
  const bool is_there = wanted.owner ? is_function_within(object, wanted.package())
                                     : function->func_globals == dict_of_module(std::string(wanted.module).c_str());
  PyObject* const inner =
      function->func_dict ? PyDict_GetItemWithError(function->func_dict, interned("__wrapped__")) : nullptr;
  if (!is_there || !inner) return is_there;
  return is_function_within(inner, wanted.package()) &&
         (wanted.wraps.empty() || text_in(code_of(inner)->co_name) == wanted.wraps);
}

bool is_python_class(PyTypeObject* type, const Definition& wanted) {
  const std::string_view module = text_in(PyDict_GetItemWithError(type->tp_dict, interned("__module__")));
  if (wanted.name != type->tp_name || !is_within(module, wanted.package())) return false;
  if (member_of_module(std::string(module).c_str(), type->tp_name) != reinterpret_cast<PyObject*>(type)) return false;
  PyObject* const found_in = wanted.found_in.empty() ? nullptr : dict_of_module(std::string(wanted.found_in).c_str());
  bool has_any = false, has_own = false;  // the program may have replaced some of its methods
  PyObject *name, *member;
  for (Py_ssize_t at = 0; PyDict_Next(type->tp_dict, &at, &name, &member);) {
    has_any = has_any || PyFunction_Check(member);
    has_own = has_own || is_function_within(member, wanted.package()) ||
              (PyFunction_Check(member) && PyFunction_GET_GLOBALS(member) == found_in);
  }
  return has_own || !has_any;
}

// torch changes how its classes of tensors are deallocated, so they look as if C code had made them.
bool is_the_class(PyTypeObject* type, const Definition& wanted) {
  if (wanted.name == last_word(type->tp_name) && is_type_of(type, wanted.package())) return true;
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && is_python_class(type, wanted);
}

bool is_descriptor(PyObject* object) {
  return Py_IS_TYPE(object, &PyMethodDescr_Type) || Py_IS_TYPE(object, &PyWrapperDescr_Type) ||
         Py_IS_TYPE(object, &PyClassMethodDescr_Type) || Py_IS_TYPE(object, &PyGetSetDescr_Type) ||
         Py_IS_TYPE(object, &PyMemberDescr_Type);
}

// Objects that are no functions: a ufunc has a name, a function of NumPy in C holds one in Python, and a dtype prints
// its path.
bool is_object_of_package(PyObject* object, const Definition& wanted) {
  if (!is_type_of(Py_TYPE(object), wanted.package()) || wanted.package() == "builtins") return false;
  if (const PyRef inner = PyRef::steal(PyObject_GetAttrString(object, "_implementation"))) {
    if (PyCFunction_Check(inner.get())) return is_c_function(inner.get(), wanted);
    return is_function_within(inner.get(), wanted.package()) &&
           text_in(code_of(inner.get())->co_name) == wanted.name;
  }
  drop_error();
  if (const std::string name = text_of_member(object, "__name__"); !name.empty()) return name == wanted.name;
  const PyRef printed = PyRef::steal(PyObject_Repr(object));
  if (!printed) drop_error();
  return text_in(printed.get()) == std::string(wanted.module) + "." + std::string(wanted.name);
}

bool is_defined_as(PyObject* object, const Definition& wanted) {
  if (PyCFunction_Check(object)) return is_c_function(object, wanted);
  if (PyFunction_Check(object)) return is_python_function(object, wanted);
  if (PyType_Check(object)) return is_the_class(reinterpret_cast<PyTypeObject*>(object), wanted);
  if (is_descriptor(object)) {
    auto* const descriptor = reinterpret_cast<PyDescrObject*>(object);
    PyTypeObject* const of = descriptor->d_type;
    if (!wanted.owner || text_in(descriptor->d_name) != wanted.name) return false;
    return of == wanted.owner || (PyType_IsSubtype(wanted.owner, of) && is_type_of(of, wanted.package()));
  }
  if (PyInstanceMethod_Check(object)) {  // a method that pybind11 made
    PyObject* const inner = PyInstanceMethod_GET_FUNCTION(object);
    return PyCFunction_Check(inner) && is_c_function(inner, wanted);
  }
  return !wanted.owner && is_object_of_package(object, wanted);
}

constexpr struct {
  std::string_view module, name, place, own;
} kDefinedAs[] = {
#define ORIGINALS(module, why)
#define DEFINED_AS(module, name, place, own, why) {module, name, place, own},
#include "frame_hook/trace/values/originals.def"
#undef DEFINED_AS
#undef ORIGINALS
};

bool is_believed(PyObject* object, const Definition& wanted) {
  if (is_defined_as(object, wanted)) return true;
  for (const auto& row : kDefinedAs)
    if (!wanted.owner && row.module == wanted.module && row.name == wanted.name &&
        is_defined_as(object, {row.place, row.own, nullptr, row.module, row.name}))
      return true;
  return false;
}

Definition definition_of(const char* module, std::string_view path) {
  const size_t dot = path.find('.');
  if (dot == std::string_view::npos) return {module, path};
  return {module, path.substr(dot + 1), find_original_type(module, std::string(path.substr(0, dot)).c_str())};
}

// A module's dict, not getattr: torch's module-level __getattr__ would import what is asked for.
PyRef look_up_original(const char* module, const char* path) {
  const Definition wanted = definition_of(module, path);
  PyRef found;
  if (wanted.owner) found = PyRef::borrow(_PyType_Lookup(wanted.owner, interned(std::string(wanted.name))));
  else if (wanted.name == path) found = PyRef::borrow(member_of_module(module, path));
  if (found && Py_IS_TYPE(found.get(), &PyStaticMethod_Type))  // a call sees the function in it
    found = PyRef::steal(PyObject_GetAttrString(found.get(), "__func__"));
  drop_error();
  return found && is_believed(found.get(), wanted) ? std::move(found) : PyRef();
}

}  // namespace

PyObject* find_original(const char* module, const char* path) {
  static auto* const known = new std::unordered_map<std::string, PyObject*>;
  const std::string key = std::string(module) + ":" + path;
  if (const auto at = known->find(key); at != known->end()) return at->second;
  PyRef found = look_up_original(module, path);
  return found ? known->emplace(key, found.release()).first->second : nullptr;
}

bool is_original(PyObject* object, const char* module, const char* path) {
  return is_believed(object, definition_of(module, path));
}

PyTypeObject* find_original_type(const char* module, const char* path) {
  PyObject* const found = find_original(module, path);
  return found && PyType_Check(found) ? reinterpret_cast<PyTypeObject*>(found) : nullptr;
}

PyObject* original(const char* module, const char* path) {
  if (PyObject* const found = find_original(module, path)) return found;
  graph_break(Reason::unknown_callable, std::string(module) + "." + path + " as the program has replaced it");
}

PyObject* unreplaced(const char* module, const char* name) {
  PyObject* const found = original(module, name);
  if (member_of_module(module, name) == found) return found;
  graph_break(Reason::unknown_callable, std::string(module) + "." + name + " as the program has replaced it");
}

PyTypeObject* original_type(const char* module, const char* path) {
  if (PyTypeObject* const found = find_original_type(module, path)) return found;
  graph_break(Reason::unknown_callable, std::string(module) + "." + path + " as the program has replaced it");
}

void take_originals() {
  constexpr const char* kModules[] = {
#define ORIGINALS(module, why) module,
#define DEFINED_AS(module, name, place, own, why)
#include "frame_hook/trace/values/originals.def"
#undef DEFINED_AS
#undef ORIGINALS
  };
  for (const char* const module : kModules) {
    PyObject* const members = dict_of_module(module);
    const PyRef names = PyRef::steal(members ? PyDict_Keys(members) : nullptr);
    for (Py_ssize_t i = 0; names && i < PyList_GET_SIZE(names.get()); ++i)
      if (const std::string_view name = text_in(PyList_GET_ITEM(names.get(), i)); !name.empty())
        find_original(module, std::string(name).c_str());
  }
}

}  // namespace framejit::frame_hook
