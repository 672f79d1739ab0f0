// python/events.h — log events as Python objects: listeners.
#pragma once

#include <Python.h>

namespace framejit::python {

PyObject* add_listener(PyObject* module, PyObject* callable);      // token
PyObject* remove_listener(PyObject* module, PyObject* token);

}  // namespace framejit::python
