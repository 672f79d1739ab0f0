// frame_hook/trace/values/describe.h — values and callables in the details of breaks, and in error messages.
#pragma once

#include <string>

#include "frame_hook/trace/values/value.h"

namespace framejit::frame_hook {

std::string describe(Value* v);  // "an object of type list", "function f"
std::string name_of_callable(PyObject* callable);
// The same with the class of `first`, the first argument or null, if pybind11 made the callable as a method of it.
std::string name_of_call(PyObject* callable, Value* first);

}  // namespace framejit::frame_hook
