// guards/class_state.cpp — a record for each class, compared with the class again when its version tag changes.
//
// Two values count as the same if they have the same address and the first one cannot have died since: a weak reference
// to it is alive, or the record keeps it alive, if that cannot keep the class alive in turn.
#include "guards/class_state.h"

#include <array>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "guards/cpython/interrupts.h"
#include "guards/cpython/py_ref.h"
#include "guards/cpython/weak_objects.h"
#include "guards/guard_functions.h"
#include "guards/step.h"

namespace framejit::guards {
namespace {

bool is_special(PyObject* name) {
  Py_ssize_t n = 0;
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &n) : nullptr;
  if (!text) drop_error();
  return !text || (n > 4 && std::strncmp(text, "__", 2) == 0 && std::strncmp(text + n - 2, "__", 2) == 0);
}

// True if `object` refers only to its own type, to classes that never change, and to objects that refer to nothing.
bool refers_to_nothing_made_by_users(PyObject* object) {
  const traverseproc traverse = Py_TYPE(object)->tp_traverse;
  const visitproc visit = [](PyObject* item, void* of) -> int {
    if (!PyObject_IS_GC(item) || item == reinterpret_cast<PyObject*>(Py_TYPE(static_cast<PyObject*>(of)))) return 0;
    return !(PyType_Check(item) && (reinterpret_cast<PyTypeObject*>(item)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE));
  };
  return !traverse || traverse(object, visit, object) == 0;
}

// One object of a class: an item of its dict, or a part of an item (parts_of).
class Part {
 public:
  void take(PyObject* object, PyTypeObject* owner) {
    object_ = object;
    keeps_ = PyRef();
    known_ = true;
    if (!object) return;
    if (PyDict_CheckExact(object)) {
      dict_version_ = dict_version(object);
      known_ = dict_version_ != 0;
    } else if (is_own_descriptor(object, owner)) {
      return;  // made with the class, for it alone
    } else if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) {
      keeps_ = PyRef::steal(PyWeakref_NewRef(object, nullptr));
      if (!keeps_) drop_error();
      known_ = is_weak_ = static_cast<bool>(keeps_);
    } else if (!PyObject_IS_GC(object) || PyTuple_CheckExact(object) ||
               refers_to_nothing_made_by_users(object)) {  // tuples: __orig_bases__ and so on
      keeps_ = PyRef::borrow(object);
    } else {
      known_ = false;
    }
  }
  bool is_still(PyObject* object, PyTypeObject* owner) const {
    if (object != object_ || !known_) return false;
    if (!object) return true;
    if (PyDict_CheckExact(object)) return dict_version(object) == dict_version_;
    return is_weak_ ? weak_target(keeps_.get()) == object : keeps_ || is_own_descriptor(object, owner);
  }

 private:
  static bool is_own_descriptor(PyObject* object, PyTypeObject* owner) {
    PyTypeObject* kind = Py_TYPE(object);
    const bool descriptor = kind == &PyMemberDescr_Type || kind == &PyGetSetDescr_Type || kind == &PyMethodDescr_Type ||
                            kind == &PyWrapperDescr_Type;
    return descriptor && PyDescr_TYPE(object) == owner;
  }

  PyObject* object_ = nullptr;
  PyRef keeps_;
  uint64_t dict_version_ = 0;
  bool known_ = false, is_weak_ = false;
};

using Parts = std::array<PyObject*, 3>;

// The parts of a value, for values that cannot have weak references and that hold functions of the class.
Parts parts_of(PyObject* value) {
  auto part = [&](const char* name) {
    const PyRef found = PyRef::steal(PyObject_GetAttrString(value, name));  // a member of an exact builtin type
    if (!found) drop_error();
    return found.get();  // the value keeps it alive
  };
  if (Py_TYPE(value) == &PyProperty_Type) return {part("fget"), part("fset"), part("fdel")};
  if (Py_TYPE(value) == &PyClassMethod_Type || Py_TYPE(value) == &PyStaticMethod_Type)
    return {part("__func__"), nullptr, nullptr};
  return {value, nullptr, nullptr};
}

struct Item {
  PyRef name;
  PyObject* value = nullptr;
  bool is_data = false;
  std::array<Part, 3> parts;
};

class OwnItems {
 public:
  // The number of the contents of the class's own dict.
  uint64_t number(PyTypeObject* type, uint64_t& last_number) {
    PyObject* dict = type->tp_dict;
    const uint64_t version = dict ? dict_version(dict) : 0;
    if (number_ != 0 && version != 0 && version == version_) return number_;
    if (number_ == 0 || !dict || !is_same(type, dict)) {
      take(type, dict);
      number_ = ++last_number;
    }
    version_ = version;
    return number_;
  }

 private:
  bool is_same(PyTypeObject* type, PyObject* dict) const {
    size_t i = 0;
    PyObject *name, *value;
    for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &name, &value); ++i) {
      if (i >= items_.size() || items_[i].name.get() != name) return false;
      const Item& item = items_[i];
      if (item.is_data) {
        if (!is_class_data(name, value)) return false;
        continue;
      }
      if (item.value != value) return false;
      const Parts parts = parts_of(value);
      for (size_t k = 0; k < parts.size(); ++k)
        if (!item.parts[k].is_still(parts[k], type)) return false;
    }
    return i == items_.size();
  }

  void take(PyTypeObject* type, PyObject* dict) {
    items_.clear();
    items_.reserve(dict ? PyDict_GET_SIZE(dict) : 0);
    PyObject *name, *value;
    for (Py_ssize_t position = 0; dict && PyDict_Next(dict, &position, &name, &value);) {
      Item& item = items_.emplace_back();
      item.name = PyRef::borrow(name);
      item.value = value;
      item.is_data = is_class_data(name, value);
      if (item.is_data) continue;
      const Parts parts = parts_of(value);
      for (size_t k = 0; k < parts.size(); ++k) item.parts[k].take(parts[k], type);
    }
  }

  std::vector<Item> items_;
  uint64_t number_ = 0, version_ = 0;
};

struct Record {
  PyRef alive;  // a weak reference to the class
  OwnItems own;
  uint64_t number = 0, version = 0;
  std::vector<std::pair<PyTypeObject*, uint64_t>> mro;  // with the numbers of their own items
};

class Records {
 public:
  uint64_t number(PyTypeObject* type) {
    const uint64_t version = type_version_of(type);
    if (const auto at = records_.find(type); at != records_.end()) {
      const Record& record = *at->second;
      if (record.number != 0 && version != 0 && record.version == version && is_alive(record)) return record.number;
    }
    // Making the weak references below may start a collection, and a finaliser must not change a dict during the walk.
    const int collects = PyGC_Disable();
    std::vector<std::pair<PyTypeObject*, uint64_t>> mro;
    for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
      auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
      mro.emplace_back(base,
                       base->tp_flags & Py_TPFLAGS_IMMUTABLETYPE ? 0 : record_of(base).own.number(base, last_number_));
    }
    Record& record = record_of(type);
    if (record.number == 0 || record.mro != mro) {
      record.mro = std::move(mro);
      record.number = ++last_number_;
    }
    record.version = version;
    if (collects) PyGC_Enable();
    return record.number;
  }

 private:
  static bool is_alive(const Record& record) { return record.alive && weak_target(record.alive.get()); }

  Record& record_of(PyTypeObject* type) {
    std::unique_ptr<Record>& record = records_[type];
    if (record && is_alive(*record)) return *record;
    record = std::make_unique<Record>();
    record->alive = PyRef::steal(PyWeakref_NewRef(reinterpret_cast<PyObject*>(type), nullptr));
    if (!record->alive) drop_error();
    Record& fresh = *record;
    if (records_.size() > purge_above_) {
      std::erase_if(records_, [&](const auto& item) { return item.second.get() != &fresh && !is_alive(*item.second); });
      purge_above_ = 2 * records_.size() + 64;
    }
    return fresh;
  }

  std::unordered_map<PyTypeObject*, std::unique_ptr<Record>> records_;
  uint64_t last_number_ = 0;
  size_t purge_above_ = 256;
};

}  // namespace

PyObject* descriptor_of_method(PyObject* object) {
  if (!PyCFunction_CheckExact(object)) return nullptr;
  const auto* function = reinterpret_cast<PyCFunctionObject*>(object);
  PyObject* const self = function->m_self;
  if (!self || PyModule_Check(self) || PyType_Check(self)) return nullptr;
  const PyRef name = PyRef::steal(PyUnicode_InternFromString(function->m_ml->ml_name));
  PyObject* const found = name ? _PyType_Lookup(Py_TYPE(self), name.get()) : nullptr;
  const bool is_it = found && Py_IS_TYPE(found, &PyMethodDescr_Type) &&
                     reinterpret_cast<PyMethodDescrObject*>(found)->d_method == function->m_ml;
  return is_it ? found : nullptr;
}

bool is_class_data(PyObject* name, PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  const bool plain = value == Py_None || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
                     type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyList_Type || type == &PyDict_Type ||
                     type == &PyTuple_Type || type == &PySet_Type || type == &PyFrozenSet_Type;
  return plain && !is_special(name);
}

uint64_t class_state(PyTypeObject* type) {
  static auto* records = new Records;  // never freed: Python may end earlier
  return records->number(type);
}

}  // namespace framejit::guards
