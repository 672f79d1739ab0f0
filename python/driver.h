// python/driver.h — the part of the extension that makes compiled callables, beside module.cpp, which only reports.
#pragma once

#include <Python.h>

#include <string>

namespace framejit::python {

// Probes the interpreter, installs the frame driver and adds arm, make_options, reset, ... to the module. False with an error set.
bool add_driver(PyObject* module);

// For a break known before any frame runs. False: no such row in break_reasons.def.
bool count_and_log_break(const std::string& reason, const std::string& detail, const std::string& where);

}  // namespace framejit::python
