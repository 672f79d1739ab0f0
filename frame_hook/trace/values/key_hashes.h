// frame_hook/trace/values/key_hashes.h — which keys of dicts and sets the program hashes and compares itself.
#pragma once

#include <Python.h>

namespace framejit::frame_hook {

bool defined_in_python(PyTypeObject* type, const char* special);
// Whether a __hash__ or __eq__ that is Python code of the program runs where it is a key. Python's own are known:
// members of an enum hash by their name, tensors by their address, compiled modules by that of the original.
bool hashes_in_program(PyObject* key);

}  // namespace framejit::frame_hook
