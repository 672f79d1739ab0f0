// frame_hook/trace/values/size_marks.cpp — reads the attributes that the marking functions set.
#include "frame_hook/trace/values/size_marks.h"

#include <algorithm>

#include "frame_hook/trace/values/marks.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

namespace {

constexpr size_t kMostDims = 64;
constexpr const char* kDynamic[] = {"_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices",
                                    "_dynamo_unbacked_indices"};
constexpr const char* kFixed[] = {kStaticMark, kTorchStaticMark};

// Most tensors have no attributes, and then nothing is looked up by name.
PyObject* own_attributes(PyObject* tensor) {
  PyObject** dict = _PyObject_GetDictPtr(tensor);
  return dict && *dict && PyDict_GET_SIZE(*dict) > 0 ? *dict : nullptr;
}

std::vector<PyObject*> marks_of(PyObject* attributes, const char* name) {
  PyObject* marks = PyDict_GetItemString(attributes, name);
  return marks && (PySet_CheckExact(marks) || PyFrozenSet_CheckExact(marks)) ? items_of_set(marks)
                                                                             : std::vector<PyObject*>();
}

// A negative one marks nothing, as in torch.
bool read_dim(PyObject* object, size_t* dim) {
  const Py_ssize_t value = object && PyLong_Check(object) ? PyLong_AsSsize_t(object) : -1;
  if (value < 0 || value >= static_cast<Py_ssize_t>(kMostDims)) return drop_error(), false;
  return *dim = static_cast<size_t>(value), true;
}

PyRef bound(PyObject* object) { return object && PyLong_Check(object) ? PyRef::borrow(object) : PyRef(); }

SizeMarks::Dynamic& dynamic_mark(SizeMarks& marks, size_t dim) {
  const auto known =
      std::find_if(marks.dynamic.begin(), marks.dynamic.end(), [&](const auto& mark) { return mark.dim == dim; });
  return known != marks.dynamic.end() ? *known : marks.dynamic.emplace_back(dim, PyRef(), PyRef());
}

void add_range(SizeMarks& marks, PyObject* dim, PyObject* least, PyObject* most) {
  size_t number = 0;
  if (!read_dim(dim, &number)) return;
  SizeMarks::Dynamic& mark = dynamic_mark(marks, number);
  if (PyRef b = bound(least)) mark.least = std::move(b);
  if (PyRef b = bound(most)) mark.most = std::move(b);
}

// torch keeps bounds as objects with attributes, separate from its set of dims.
void add_torch_ranges(SizeMarks& marks, PyObject* attributes) {
  for (PyObject* range : marks_of(attributes, "_dynamo_dynamic_range")) {
    const PyRef dim = PyRef::steal(PyObject_GetAttrString(range, "dim")),
                least = PyRef::steal(PyObject_GetAttrString(range, "min")),
                most = PyRef::steal(PyObject_GetAttrString(range, "max"));
    drop_error();
    add_range(marks, dim.get(), least.get(), most.get());
  }
}

}  // namespace

SizeMarks size_marks(PyObject* tensor) {
  SizeMarks marks;
  PyObject* attributes = own_attributes(tensor);
  if (!attributes) return marks;
  size_t dim = 0;
  for (PyObject* mark : marks_of(attributes, kDynamicMark))
    if (PyTuple_CheckExact(mark) && PyTuple_GET_SIZE(mark) == 3)
      add_range(marks, PyTuple_GET_ITEM(mark, 0), PyTuple_GET_ITEM(mark, 1), PyTuple_GET_ITEM(mark, 2));
  for (const char* name : kDynamic)
    for (PyObject* mark : marks_of(attributes, name))
      if (read_dim(mark, &dim)) dynamic_mark(marks, dim);
  add_torch_ranges(marks, attributes);
  for (const char* name : kFixed)
    for (PyObject* mark : marks_of(attributes, name))
      if (read_dim(mark, &dim) &&
          std::none_of(marks.dynamic.begin(), marks.dynamic.end(), [&](const auto& m) { return m.dim == dim; }))
        marks.fixed.push_back(dim);
  return marks;
}

}  // namespace framejit::frame_hook
