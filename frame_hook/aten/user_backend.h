// frame_hook/aten/user_backend.h — backends that are Python callables: given our graph and example inputs, they return
// a callable.
//
// The graph object prints as our text form and can be called with the inputs; it returns a tuple of outputs. The
// callable that the backend returns is called with the inputs of each call and must return as many tensors as the
// graph. Its exceptions reach the caller.
#pragma once

#include <memory>
#include <vector>

#include "frame_hook/aten/compiled_call.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

// runner: runs `functional`. Returns null with the Python error of the backend set.
std::unique_ptr<CompiledCall> make_user_call(PyObject* backend, graph::Graph functional,
                                             std::unique_ptr<CompiledCall> runner,
                                             const std::vector<at::Tensor>& example_inputs);

}  // namespace framejit::frame_hook
