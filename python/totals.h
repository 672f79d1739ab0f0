// python/totals.h — framejit.stats(). Functions of the extension, which hold the GIL.
#pragma once

#include <Python.h>

namespace framejit::python {

PyObject* stats(PyObject*, PyObject*);   // a dict: rows of frame_hook/resume/totals.def
PyObject* totals(PyObject*, PyObject*);  // name and text of each row
void reset_totals();                     // resets those that the frame driver does not count

}  // namespace framejit::python
