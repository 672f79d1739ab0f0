// graph/aten/bind_recorder.h — the recorder as a Python class, for tests: _framejit.Recorder.
#pragma once

typedef struct _object PyObject;

namespace framejit::graph {

// Adds class Recorder to the module. False with a Python error set when it cannot.
bool register_recorder_bindings(PyObject* module);

}  // namespace framejit::graph
