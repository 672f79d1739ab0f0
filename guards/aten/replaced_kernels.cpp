// guards/aten/replaced_kernels.cpp — reads torch.library._impls, a set of texts: "aten/add.Tensor/CPU".
//
// The set shows that it has changed: torch only adds and removes elements, a slot of the table is not used again, and a
// larger table lies elsewhere (set_add_entry and set_table_resize of Objects/setobject.c, CPython 3.11 to 3.14).
#include "guards/aten/replaced_kernels.h"

#include <Python.h>

#include <set>
#include <string_view>

#include "graph/aten/python_kernels.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/names.h"
#include "guards/cpython/py_ref.h"

namespace framejit::guards {
namespace {

// The list as it was when it was read.
struct ListState {
  const setentry* table = nullptr;
  Py_ssize_t filled = -1, used = -1;
  bool operator==(const ListState&) const = default;
};

struct Watch {
  PySetObject* list = nullptr;  // of torch.library, which lives as long as the process
  std::string folder;  // of the package torch, with a slash at its end
  ListState state;
  std::set<std::string> rows;  // that have counted
  std::string replaced;

  ListState now() const { return {list->table, list->fill, list->used}; }
};
Watch watch;

// If two kernels were given to an op and one is removed, the row is gone, but the other kernel stays. So rows that have
// counted once are asked again.
void read_list() {
  const bool has_changed = watch.now() != watch.state;
  watch.state = watch.now();
  const PyRef rows = PyRef::steal(has_changed ? PyObject_GetIter(reinterpret_cast<PyObject*>(watch.list)) : nullptr);
  while (const PyRef row = PyRef::steal(rows ? PyIter_Next(rows.get()) : nullptr)) {
    const char* const text = find_text(row.get());
    if (text && !graph::replaced_by(text, watch.folder).empty()) watch.rows.insert(text);
  }
  drop_error();
  watch.replaced.clear();
  for (const std::string& row : watch.rows)
    if (watch.replaced.empty()) watch.replaced = graph::replaced_by(row, watch.folder);
}

}  // namespace

bool watch_kernels() {
  const PyRef library = PyRef::steal(PyImport_ImportModule("torch.library"));
  if (!library) return false;
  PyRef list = PyRef::steal(PyObject_GetAttrString(library.get(), "_impls"));
  const PyRef file = PyRef::steal(PyModule_GetFilenameObject(library.get()));
  if (!list || !file) return false;
  if (!PySet_CheckExact(list.get()))
    return PyErr_SetString(PyExc_ImportError, "framejit: torch.library._impls is not a set"), false;
  const char* const text = find_text(file.get());
  const std::string_view path = text ? text : "";
  watch.folder = path.substr(0, path.rfind('/') + 1);
  watch.list = reinterpret_cast<PySetObject*>(list.release());
  return true;
}

bool has_replaced_kernels() {
  if (watch.list == nullptr) return false;
  if (watch.now() != watch.state || !watch.replaced.empty()) [[unlikely]]
    read_list();
  return !watch.replaced.empty();
}

const std::string& replaced_kernel() {
  has_replaced_kernels();
  return watch.replaced;
}

}  // namespace framejit::guards
