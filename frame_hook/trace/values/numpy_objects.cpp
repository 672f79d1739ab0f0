#include "frame_hook/trace/values/numpy_objects.h"

#include <algorithm>

#include "frame_hook/trace/values/c_packages.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

bool is_of_numpy(PyObject* callable) {
  if (is_of(Py_TYPE(callable), CPackage::numpy)) return true;
  if (PyType_Check(callable)) return is_numpy_scalar_type(reinterpret_cast<PyTypeObject*>(callable));
  if (Py_IS_TYPE(callable, &PyMethodDescr_Type))
    return is_of(reinterpret_cast<PyDescrObject*>(callable)->d_type, CPackage::numpy);
  return is_function_of(callable, CPackage::numpy);
}

bool calls_numpy(PyObject* callable, const std::vector<PyObject*>& args) {
  return is_of_numpy(callable) ||
         std::any_of(args.begin(), args.end(), [](PyObject* o) { return o && is_numpy_scalar(o); });
}

NumpyWarnings::NumpyWarnings(bool active) {
  PyObject* const make = active ? find_original("numpy", "errstate") : nullptr;
  const PyRef nothing = PyRef::steal(PyTuple_New(0)), all = PyRef::steal(Py_BuildValue("{s:s}", "all", "raise"));
  PyRef state = PyRef::steal(make ? PyObject_Call(make, nothing.get(), all.get()) : nullptr);
  const PyRef entered = PyRef::steal(state ? PyObject_CallMethod(state.get(), "__enter__", nullptr) : nullptr);
  if (entered) state_ = std::move(state);
  drop_error();
}

NumpyWarnings::~NumpyWarnings() {
  if (!state_) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyRef::steal(PyObject_CallMethod(state_.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
  drop_error();
  PyErr_Restore(type, value, traceback);
}

PyRef attribute_of(PyObject* object, const char* name) {
  PyRef found = PyRef::steal(PyObject_GetAttrString(object, name));
  if (!found) drop_error();
  return found;
}

bool is_true(PyObject* object, const char* name) { return object && attribute_of(object, name).get() == Py_True; }

bool lies_in_order(PyObject* array) { return is_true(attribute_of(array, "flags").get(), "c_contiguous"); }

}  // namespace framejit::frame_hook
