// frame_hook/trace/values/c_packages.h — types and functions of C code that the tracer knows by where they come from:
// rows of c_packages.def. The only place in which the text of a name decides, and only about what C code made.
#pragma once

#include <Python.h>

#include <cstdint>

namespace framejit::frame_hook {

enum class CPackage : uint8_t {
#define C_PACKAGE(id, name, why) id,
#define C_MODULE(name, uses, why)
#include "frame_hook/trace/values/c_packages.def"
#undef C_MODULE
#undef C_PACKAGE
};
bool is_of(PyTypeObject* type, CPackage package);
// A C function that is bound to a type of the package, static methods included, or to a module of it.
bool is_function_of(PyObject* callable, CPackage package);
bool has_no_package(PyTypeObject* type);  // a type of C code whose name has no dot: one of CPython's own

enum ModuleUse : uint8_t { kPure = 1, kAsked = 2, kRecorded = 4, kByRow = 8 };
bool is_function_for(PyObject* callable, ModuleUse use);  // of a module whose row has this use

PyTypeObject* type_of_callable(PyObject* callable);  // whose method it is; a class itself; otherwise its own type
bool is_torch_c_function(PyObject* callable);

// A function that pybind11 made. It keeps its module only as text: "" for a method.
bool is_pybind_function_of(PyObject* callable, CPackage package);

}  // namespace framejit::frame_hook
