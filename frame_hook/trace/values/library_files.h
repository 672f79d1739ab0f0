// frame_hook/trace/values/library_files.h — whose code a file holds, by the folder that it lies in.
#pragma once

#include <Python.h>

#include <string>

namespace framejit::frame_hook {

bool is_torch_file(PyObject* filename);
bool is_file_of_torch_modules(PyObject* filename);  // below torch/nn/modules
// Of the standard library, framejit or any installed package: no line of it is the user's, so a message names another.
bool is_library_file(PyObject* filename);
// Of the standard library, torch or framejit: FRAMEJIT=1 compiles none of it. Other installed packages hold models.
bool is_never_the_program(PyObject* filename);
// "model.py:12 Net.forward, in ": the nearest running frame outside of libraries; "" if there is none.
std::string place_of_caller();

}  // namespace framejit::frame_hook
