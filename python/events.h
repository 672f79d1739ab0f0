// python/events.h — log events as Python objects: listeners and the list of channels.
#pragma once

#include <Python.h>

namespace framejit::python {

PyObject* channels(PyObject* module, PyObject* unused);            // [(name, description)]
PyObject* add_listener(PyObject* module, PyObject* callable);      // token
PyObject* remove_listener(PyObject* module, PyObject* token);

}  // namespace framejit::python
