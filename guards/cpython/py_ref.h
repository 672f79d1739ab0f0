// guards/cpython/py_ref.h — an owning reference to a Python object. The GIL must be held wherever one is made, copied
// or dropped.
#pragma once

#include <Python.h>

#include <utility>

namespace framejit {

class PyRef {
 public:
  PyRef() = default;
  static PyRef steal(PyObject* object) { PyRef r; r.object_ = object; return r; }
  static PyRef borrow(PyObject* object) { Py_XINCREF(object); return steal(object); }
  PyRef(const PyRef& other) : object_(other.object_) { Py_XINCREF(object_); }
  PyRef(PyRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  PyRef& operator=(PyRef other) noexcept { std::swap(object_, other.object_); return *this; }
  ~PyRef() {
    if (object_ && Py_REFCNT(object_) == 1) drop_last(object_);
    else Py_XDECREF(object_);
  }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  static void drop_last(PyObject* object) noexcept;
  PyObject* object_ = nullptr;
};

}  // namespace framejit
