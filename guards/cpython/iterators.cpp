// guards/cpython/iterators.cpp — mirrors of the structs in CPython's Objects/*object.c and Python/bltinmodule.c, 3.11
// to 3.13.
#include "guards/cpython/iterators.h"

#include <vector>

#include "guards/cpython/interrupts.h"
#include "guards/cpython/py_ref.h"

namespace framejit::guards {
namespace {

struct SequenceIterator {
  PyObject_HEAD Py_ssize_t index;
  PyObject* sequence;
};  // of lists and tuples, reversed ones too
struct DictIterator { PyObject_HEAD PyDictObject* dict; Py_ssize_t used, position; PyObject* result; Py_ssize_t left; };
struct SetIterator { PyObject_HEAD PySetObject* set; Py_ssize_t used, position, left; };
struct Enumerate { PyObject_HEAD Py_ssize_t index; PyObject *iterator, *result, *long_index; };
struct Zip { PyObject_HEAD Py_ssize_t size; PyObject *iterators, *result; int strict; };
struct Map { PyObject_HEAD PyObject *iterators, *function; };
struct Filter { PyObject_HEAD PyObject *function, *iterator; };
#if PY_VERSION_HEX >= 0x030C0000
struct RangeIterator {
  PyObject_HEAD long start, step, left_;
  long left() const { return left_; }
  long at(int64_t k) const { return start + k * step; }
};
#else
struct RangeIterator {
  PyObject_HEAD long index, start, step, length;
  long left() const { return index < length ? length - index : 0; }
  long at(int64_t k) const { return start + (index + k) * step; }
};
#endif

template <class T> T* as(PyObject* object) { return reinterpret_cast<T*>(object); }

bool is_forward(PyTypeObject* type) { return type == &PyListIter_Type || type == &PyTupleIter_Type; }
bool is_backward(PyTypeObject* type) { return type == &PyListRevIter_Type || type == &PyReversed_Type; }
bool is_over_dict(PyTypeObject* type) {
  return type == &PyDictIterKey_Type || type == &PyDictIterValue_Type || type == &PyDictIterItem_Type;
}

constexpr int64_t kLeastInt = -1024, kInts = 65536;

PyObject* kept_int(int64_t value) {
  static auto* const ints = new std::vector<PyObject*>;
  if (value < kLeastInt || value >= kLeastInt + kInts) return nullptr;
  const auto at = static_cast<size_t>(value - kLeastInt);
  if (at >= ints->size()) ints->resize(at + 1, nullptr);
  PyObject*& kept = (*ints)[at];
  if (!kept) kept = PyLong_FromLongLong(value);
  if (!kept) drop_error();
  return kept;
}

PyObject* item_of_sequence(PyObject* sequence, Py_ssize_t i) {
  if (!sequence || i < 0) return nullptr;
  if (PyList_CheckExact(sequence)) return i < PyList_GET_SIZE(sequence) ? PyList_GET_ITEM(sequence, i) : nullptr;
  return PyTuple_CheckExact(sequence) && i < PyTuple_GET_SIZE(sequence) ? PyTuple_GET_ITEM(sequence, i) : nullptr;
}

// If keys were removed and others added, fewer items may be left than the iterator counts. If more are left, its last
// step raises.
int64_t left_of_dict(const DictIterator& it) {
  Py_ssize_t position = it.position;
  PyObject *key, *value;
  for (int64_t n = 0; n <= it.left; ++n)
    if (!PyDict_Next(reinterpret_cast<PyObject*>(it.dict), &position, &key, &value)) return n;
  return -1;
}

PyObject* item_of_dict(const DictIterator& it, int64_t k, bool wants_key) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t position = it.position;
  for (; k >= 0; --k)
    if (!PyDict_Next(reinterpret_cast<PyObject*>(it.dict), &position, &key, &value)) return nullptr;
  return wants_key ? key : value;
}

PyObject* item_of_set(const SetIterator& it, int64_t k) {
  for (Py_ssize_t at = it.position; at <= it.set->mask; ++at) {  // a removed entry keeps a dummy key with hash -1
    const setentry& entry = it.set->table[at];
    if (entry.key && entry.hash != -1 && k-- == 0) return entry.key;
  }
  return nullptr;
}

int64_t left_of_sequence(PyObject* iterator, bool backward) {
  const auto* it = as<SequenceIterator>(iterator);
  if (!it->sequence) return 0;
  if (!PyList_CheckExact(it->sequence) && !PyTuple_CheckExact(it->sequence)) return -1;
  const Py_ssize_t length = Py_SIZE(it->sequence);
  if (backward) return it->index < length ? it->index + 1 : 0;
  return it->index < length ? length - it->index : 0;
}

// ---- checking the mirrors

PyRef made(PyTypeObject& type, std::initializer_list<PyObject*> arguments) {
  PyRef tuple = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(arguments.size())));
  Py_ssize_t i = 0;
  for (PyObject* argument : arguments) PyTuple_SET_ITEM(tuple.get(), i++, Py_NewRef(argument));
  return PyRef::steal(PyObject_CallObject(reinterpret_cast<PyObject*>(&type), tuple.get()));
}

int64_t read_left(PyObject* iterator);
PyObject* read_item(PyObject* iterator, int64_t k, bool key);
PyObject* read_part(PyObject* iterator, int64_t i);

// Whether each item is predicted and each count is right, at every position.
bool items_are_as_read(PyObject* iterable) {
  PyRef iterator = PyRef::steal(PyObject_GetIter(iterable)), items = PyRef::steal(PySequence_List(iterable));
  if (!iterator || !items) return false;
  const Py_ssize_t count = PyList_GET_SIZE(items.get());
  for (Py_ssize_t at = 0; at <= count; ++at) {
    if (read_left(iterator.get()) != count - at) return false;
    for (Py_ssize_t k = 0; at + k < count; ++k) {
      PyObject *item = PyList_GET_ITEM(items.get(), at + k),
               *read = read_item(iterator.get(), k, Py_TYPE(iterator.get()) == &PyDictIterKey_Type);
      if (!read ||
          PyObject_RichCompareBool(Py_TYPE(iterator.get()) == &PyDictIterItem_Type ? PyTuple_GET_ITEM(item, 1) : item,
                                   read, Py_EQ) != 1)
        return false;
    }
    PyRef next = PyRef::steal(PyIter_Next(iterator.get()));
  }
  return read_left(iterator.get()) == 0;
}

bool composites_are_as_read(PyObject* list) {
  PyRef a = PyRef::steal(PyObject_GetIter(list)), b = PyRef::steal(PyObject_GetIter(list)),
        seven = PyRef::steal(PyLong_FromLong(7));
  PyRef zip = made(PyZip_Type, {a.get(), b.get()}), map = made(PyMap_Type, {Py_None, a.get(), b.get()});
  PyRef filter = made(PyFilter_Type, {Py_None, a.get()}), enumerate = made(PyEnum_Type, {a.get(), seven.get()});
  if (!zip || !map || !filter || !enumerate) return false;
  const bool parts = read_part(zip.get(), 0) == a.get() && read_part(zip.get(), 1) == b.get() &&
                     !read_part(zip.get(), 2) && !is_strict_zip(zip.get()) && read_part(map.get(), -1) == Py_None &&
                     read_part(map.get(), 1) == b.get() && read_part(filter.get(), -1) == Py_None &&
                     read_part(filter.get(), 0) == a.get() && read_part(enumerate.get(), 0) == a.get() &&
                     part_count(zip.get()) == 2 && part_count(map.get()) == 2;
  if (!parts || as<Enumerate>(enumerate.get())->index != 7 || as<Enumerate>(enumerate.get())->long_index) return false;
  PyRef next = PyRef::steal(PyIter_Next(enumerate.get()));
  return next && as<Enumerate>(enumerate.get())->index == 8;
}

bool prove() {
  PyRef list = PyRef::steal(Py_BuildValue("[iii]", 3, 4, 5)), tuple = PyRef::steal(PyList_AsTuple(list.get()));
  PyRef set = PyRef::steal(PySet_New(list.get())),
        dict = PyRef::steal(Py_BuildValue("{sisisi}", "a", 1, "b", 2, "c", 3));
  PyRef range = PyRef::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "iii", 10, 0, -3));
  if (!list || !tuple || !set || !dict || !range || PyDict_DelItemString(dict.get(), "b") < 0) return false;
  auto view = [&](const char* name) { return PyRef::steal(PyObject_CallMethod(dict.get(), name, nullptr)); };
  auto reversed_of = [](PyObject* sequence) {  // a second iterator gives its items
    PyRef backward = PyRef::steal(PySequence_List(sequence));
    PyRef iterator = made(PyReversed_Type, {sequence});
    const Py_ssize_t n = backward && iterator ? PyList_GET_SIZE(backward.get()) : 0;
    for (Py_ssize_t k = 0; k < n; ++k)
      if (read_item(iterator.get(), k, false) != PyList_GET_ITEM(backward.get(), n - 1 - k) ||
          read_left(iterator.get()) != n)
        return false;
    return n > 0;
  };
  return items_are_as_read(list.get()) && items_are_as_read(tuple.get()) && items_are_as_read(set.get()) &&
         items_are_as_read(dict.get()) && items_are_as_read(view("values").get()) &&
         items_are_as_read(view("items").get()) && items_are_as_read(range.get()) && reversed_of(list.get()) &&
         reversed_of(tuple.get()) && composites_are_as_read(list.get());
}

bool proven() {
  static const bool holds = [] {
    const bool result = prove();
    drop_error();
    return result;
  }();
  return holds;
}

int64_t read_left(PyObject* iterator) {
  PyTypeObject* type = Py_TYPE(iterator);
  if (is_forward(type) || is_backward(type)) return left_of_sequence(iterator, is_backward(type));
  if (type == &PyRangeIter_Type) return as<RangeIterator>(iterator)->left();
  if (is_over_dict(type)) {
    const auto* it = as<DictIterator>(iterator);
    return !it->dict ? 0 : it->used == it->dict->ma_used ? left_of_dict(*it) : -1;
  }
  const auto* it = as<SetIterator>(iterator);
  return !it->set ? 0 : it->used == it->set->used ? it->left : -1;
}

PyObject* read_item(PyObject* iterator, int64_t k, bool key) {
  PyTypeObject* type = Py_TYPE(iterator);
  const auto* sequence = as<SequenceIterator>(iterator);
  if (is_forward(type)) return item_of_sequence(sequence->sequence, sequence->index + k);
  if (is_backward(type)) return item_of_sequence(sequence->sequence, sequence->index - k);
  if (type == &PyRangeIter_Type)
    return k < as<RangeIterator>(iterator)->left() ? kept_int(as<RangeIterator>(iterator)->at(k)) : nullptr;
  if (is_over_dict(type))
    return as<DictIterator>(iterator)->dict ? item_of_dict(*as<DictIterator>(iterator), k, key) : nullptr;
  return as<SetIterator>(iterator)->set ? item_of_set(*as<SetIterator>(iterator), k) : nullptr;
}

PyObject* read_part(PyObject* iterator, int64_t i) {
  PyTypeObject* type = Py_TYPE(iterator);
  if (type == &PyEnum_Type) {
    if (i == 0) return as<Enumerate>(iterator)->iterator;
    return i == 1 && !as<Enumerate>(iterator)->long_index ? kept_int(as<Enumerate>(iterator)->index) : nullptr;
  }
  if (type == &PyFilter_Type)
    return i == 0 ? as<Filter>(iterator)->iterator : i == -1 ? as<Filter>(iterator)->function : nullptr;
  if (type == &PyMap_Type && i == -1) return as<Map>(iterator)->function;
  if (type == &PyZip_Type && i == -1) return as<Zip>(iterator)->strict ? Py_True : Py_False;
  PyObject* parts = type == &PyMap_Type ? as<Map>(iterator)->iterators : as<Zip>(iterator)->iterators;
  return parts && i >= 0 && i < PyTuple_GET_SIZE(parts) ? PyTuple_GET_ITEM(parts, i) : nullptr;
}

}  // namespace

bool has_items(PyTypeObject* type) {
  return (is_forward(type) || is_backward(type) || is_over_dict(type) || type == &PyRangeIter_Type ||
          type == &PySetIter_Type) &&
         proven();
}

bool has_parts(PyTypeObject* type) {
  return (type == &PyEnum_Type || type == &PyZip_Type || type == &PyMap_Type || type == &PyFilter_Type) && proven();
}

int64_t items_left(PyObject* iterator) { return has_items(Py_TYPE(iterator)) ? read_left(iterator) : -1; }
PyObject* peek_item(PyObject* iterator, int64_t k, bool key) {
  return k >= 0 && has_items(Py_TYPE(iterator)) ? read_item(iterator, k, key) : nullptr;
}
PyObject* iterator_part(PyObject* iterator, int64_t i) {
  return has_parts(Py_TYPE(iterator)) ? read_part(iterator, i) : nullptr;
}

int64_t part_count(PyObject* iterator) {
  PyTypeObject* type = Py_TYPE(iterator);
  if (type == &PyEnum_Type || type == &PyFilter_Type) return 1;
  PyObject* parts = type == &PyMap_Type ? as<Map>(iterator)->iterators : as<Zip>(iterator)->iterators;
  return parts ? PyTuple_GET_SIZE(parts) : 0;
}

bool is_strict_zip(PyObject* iterator) { return Py_TYPE(iterator) == &PyZip_Type && as<Zip>(iterator)->strict; }

PyObject* container_of(PyObject* iterator) {
  PyTypeObject* type = Py_TYPE(iterator);
  if (is_forward(type) || is_backward(type)) return as<SequenceIterator>(iterator)->sequence;
  if (is_over_dict(type)) return reinterpret_cast<PyObject*>(as<DictIterator>(iterator)->dict);
  return type == &PySetIter_Type ? reinterpret_cast<PyObject*>(as<SetIterator>(iterator)->set) : nullptr;
}

void skip_in_enumerate(PyObject* enumerate, int64_t count) { as<Enumerate>(enumerate)->index += count; }

}  // namespace framejit::guards
