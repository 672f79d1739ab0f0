// guards/cpython/lru_cache.cpp — finds members of the wrapper by value: the dict by its contents, the result by its
// identity.
#include "guards/cpython/lru_cache.h"

#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "guards/cpython/interrupts.h"
#include "guards/cpython/py_ref.h"

namespace framejit::guards {
namespace {

struct Layout {
  PyTypeObject *wrapper = nullptr, *link = nullptr;  // link: the entry of a bounded cache
  size_t typed = 0, cache = 0, function = 0, limit = 0, result = 0;  // offsets
  PyRef keyword_mark;                                // separates positional from keyword arguments in keys
};

PyObject* word(PyObject* object, size_t offset) {
  PyObject* value;
  std::memcpy(&value, reinterpret_cast<char*>(object) + offset, sizeof value);
  return value;
}

// The offset of a pointer in an object; 0: not there, or more than once.
size_t find_word(PyObject* object, PyObject* wanted) {
  size_t found = 0;
  for (size_t at = sizeof(PyObject); at + sizeof(PyObject*) <= static_cast<size_t>(Py_TYPE(object)->tp_basicsize);
       at += sizeof(PyObject*)) {
    if (word(object, at) != wanted) continue;
    if (found) return 0;
    found = at;
  }
  return found;
}

size_t find_number(PyObject* object, Py_ssize_t wanted) {
  return find_word(object, reinterpret_cast<PyObject*>(wanted));  // the same width, and only compared
}

struct Search { PyObject *key, *dict; };

int visit(PyObject* object, void* state) {
  auto* search = static_cast<Search*>(state);
  if (PyDict_CheckExact(object) && PyDict_GET_SIZE(object) == 1 && PyDict_GetItemWithError(object, search->key))
    search->dict = object;
  return 0;
}

// The module may hold something else in the place of its type.
PyRef sample(PyTypeObject& function, bool typed, int limit = 4) {
  const PyRef module = PyRef::steal(PyImport_ImportModule("_functools"));
  const PyRef type = PyRef::steal(module ? PyObject_GetAttrString(module.get(), "_lru_cache_wrapper") : nullptr);
  if (!type || !PyType_Check(type.get())) return {};
  const std::string_view name = reinterpret_cast<PyTypeObject*>(type.get())->tp_name;
  if (name != "functools._lru_cache_wrapper") return {};
  return PyRef::steal(PyObject_CallFunction(type.get(), "OiOO", &function, limit, typed ? Py_True : Py_False, Py_None));
}

bool find_members(Layout& layout) {
  PyRef wrapper = sample(PyFloat_Type, false), typed = sample(PyFloat_Type, true), named = sample(PyDict_Type, false),
        key = PyRef::steal(PyLong_FromLong(-123456789));
  if (!wrapper || !typed || !named || !Py_TYPE(wrapper.get())->tp_traverse) return false;
  const PyRef result = PyRef::steal(PyObject_CallOneArg(wrapper.get(), key.get()));
  Search search{key.get(), nullptr};
  Py_TYPE(wrapper.get())->tp_traverse(wrapper.get(), &visit, &search);
  layout.wrapper = Py_TYPE(wrapper.get());
  layout.cache = search.dict && result ? find_word(wrapper.get(), search.dict) : 0;
  if (layout.cache < sizeof(PyObject) + sizeof(PyObject*)) return false;
  PyObject* link = PyDict_GetItemWithError(search.dict, key.get());
  layout.link = Py_TYPE(link);
  layout.result = find_word(link, result.get());
  layout.typed = layout.cache - sizeof(PyObject*);
  layout.function = find_word(wrapper.get(), reinterpret_cast<PyObject*>(&PyFloat_Type));
  auto flag = [&](PyObject* object) {
    int value;
    std::memcpy(&value, reinterpret_cast<char*>(object) + layout.typed, sizeof value);
    return value;
  };
  constexpr int kLimit = 79190;
  const PyRef limited = sample(PyFloat_Type, false, kLimit);
  layout.limit = limited ? find_number(limited.get(), kLimit) : 0;
  if (!layout.limit) return false;
  if (!layout.result || !layout.function || flag(wrapper.get()) != 0 || flag(typed.get()) != 1) return false;
  PyRef keywords = PyRef::steal(Py_BuildValue("{s:i}", "a", 1)), nothing = PyRef::steal(PyTuple_New(0));
  const PyRef called = PyRef::steal(PyObject_Call(named.get(), nothing.get(), keywords.get()));
  PyObject* dict = called ? word(named.get(), layout.cache) : nullptr;
  PyObject *full_key = nullptr, *value;
  Py_ssize_t position = 0;
  if (!dict || !PyDict_CheckExact(dict) || !PyDict_Next(dict, &position, &full_key, &value)) return false;
  if (!PyTuple_CheckExact(full_key) || PyTuple_GET_SIZE(full_key) != 3 ||
      Py_TYPE(PyTuple_GET_ITEM(full_key, 0)) != &PyBaseObject_Type)
    return false;
  layout.keyword_mark = PyRef::borrow(PyTuple_GET_ITEM(full_key, 0));
  return true;
}

const Layout* layout() {  // null: an unknown interpreter
  static const Layout* const known = [] {
    auto* made = new Layout;
    const bool found = find_members(*made);
    drop_error();
    return found ? made : nullptr;
  }();
  return known;
}

}  // namespace

bool is_lru_cache(PyObject* object) { return layout() && Py_TYPE(object) == layout()->wrapper; }

PyObject* lru_cache_of(PyObject* wrapper) {
  PyObject* dict = is_lru_cache(wrapper) ? word(wrapper, layout()->cache) : nullptr;
  return dict && PyDict_CheckExact(dict) ? dict : nullptr;
}

PyObject* lru_function_of(PyObject* wrapper) {
  return is_lru_cache(wrapper) ? word(wrapper, layout()->function) : nullptr;
}

PyObject* lru_result_of(PyObject* entry) {
  return layout() && Py_TYPE(entry) == layout()->link ? word(entry, layout()->result) : entry;
}

PyObject* lru_key(PyObject* wrapper, PyObject* const* args, Py_ssize_t positional, PyObject* names) {
  if (!is_lru_cache(wrapper)) return nullptr;
  int typed;
  std::memcpy(&typed, reinterpret_cast<char*>(wrapper) + layout()->typed, sizeof typed);
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  if (!typed && !named && positional == 1 && (PyUnicode_CheckExact(args[0]) || PyLong_CheckExact(args[0])))
    return Py_NewRef(args[0]);
  PyRef key = PyRef::steal(PyTuple_New(positional + (named ? 2 * named + 1 : 0) + (typed ? positional + named : 0)));
  Py_ssize_t at = 0;
  auto add = [&](PyObject* object) { PyTuple_SET_ITEM(key.get(), at++, Py_NewRef(object)); };
  for (Py_ssize_t i = 0; i < positional; ++i) add(args[i]);
  if (named) add(layout()->keyword_mark.get());
  for (Py_ssize_t i = 0; i < named; ++i) {
    add(PyTuple_GET_ITEM(names, i));
    add(args[positional + i]);
  }
  for (Py_ssize_t i = 0; typed && i < positional + named; ++i) add(reinterpret_cast<PyObject*>(Py_TYPE(args[i])));
  return key.release();
}

Py_ssize_t lru_limit_of(PyObject* wrapper) {
  return is_lru_cache(wrapper) ? reinterpret_cast<Py_ssize_t>(word(wrapper, layout()->limit)) : 0;
}

namespace {

void set_function(PyObject* wrapper, PyObject* function) {
  std::memcpy(reinterpret_cast<char*>(wrapper) + layout()->function, &function, sizeof function);
}

// Replaces the wrapper's function for one call. While the wrapper makes its key, code of the program may run, and with
// it other threads: their calls get the result of the real function.
struct OneCall {
  PyRef wrapper, function, result;
  std::vector<PyRef> args;  // in order, those with names last
  PyRef names;              // of the last ones
  unsigned long thread;

  bool is(PyObject* given, PyObject* named) const {
    const auto count = static_cast<size_t>(PyTuple_GET_SIZE(given)),
               by_name = named ? static_cast<size_t>(PyDict_GET_SIZE(named)) : 0;
    if (thread != PyThread_get_thread_ident() || count + by_name != args.size()) return false;
    for (size_t i = 0; i < count; ++i)
      if (PyTuple_GET_ITEM(given, static_cast<Py_ssize_t>(i)) != args[i].get()) return false;
    const size_t names_known = names ? static_cast<size_t>(PyTuple_GET_SIZE(names.get())) : 0;
    if (by_name != names_known) return false;
    for (size_t i = 0; i < by_name; ++i)
      if (PyDict_GetItemWithError(named, PyTuple_GET_ITEM(names.get(), static_cast<Py_ssize_t>(i))) !=
          args[count + i].get())
        return false;
    return true;
  }
};

PyObject* give_result(PyObject* capsule, PyObject* given, PyObject* named) {
  const PyRef kept = PyRef::borrow(capsule);  // the call that it is for may end meanwhile
  const auto& call = *static_cast<const OneCall*>(PyCapsule_GetPointer(capsule, nullptr));
  if (!call.is(given, named)) return PyObject_Call(call.function.get(), given, named);
  set_function(call.wrapper.get(), call.function.get());
  return Py_NewRef(call.result.get());
}

void drop_call(PyObject* capsule) { delete static_cast<OneCall*>(PyCapsule_GetPointer(capsule, nullptr)); }

PyObject* account(PyObject*, PyObject* const* args, Py_ssize_t given, PyObject* names) {
  static PyMethodDef gives{"give_result", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(give_result)),
                           METH_VARARGS | METH_KEYWORDS, nullptr};
  PyObject* const wrapper = args[0];
  const PyRef function = PyRef::borrow(lru_function_of(wrapper));
  auto call = std::make_unique<OneCall>(OneCall{PyRef::borrow(wrapper), PyRef::borrow(function.get()),
                                                PyRef::borrow(args[1]), {}, names ? PyRef::borrow(names) : PyRef(),
                                                PyThread_get_thread_ident()});
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t i = 2; i < given + named; ++i) call->args.push_back(PyRef::borrow(args[i]));
  const PyRef state = PyRef::steal(PyCapsule_New(call.get(), nullptr, drop_call));
  if (state) call.release();
  const PyRef in_its_place = PyRef::steal(state ? PyCFunction_New(&gives, state.get()) : nullptr);
  if (!in_its_place) return nullptr;
  set_function(wrapper, in_its_place.get());
  const PyRef returned = PyRef::steal(PyObject_Vectorcall(wrapper, args + 2, static_cast<size_t>(given) - 2, names));
  if (lru_function_of(wrapper) == in_its_place.get()) set_function(wrapper, function.get());
  return returned ? Py_NewRef(Py_None) : nullptr;
}

}  // namespace

PyObject* lru_account() {
  static PyMethodDef definition{"lru_account", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(account)),
                                METH_FASTCALL | METH_KEYWORDS, nullptr};
  static PyObject* const made = PyCFunction_New(&definition, nullptr);
  return made;
}

}  // namespace framejit::guards
