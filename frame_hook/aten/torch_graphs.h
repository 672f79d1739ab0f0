// frame_hook/aten/torch_graphs.h — torch's own CUDA graphs (HIP's, in a torch for AMD), found at run time.
//
// One capture runs at a time, and it records only this thread. It holds the GIL, except at its start and end, where
// torch releases it. Each of the program's streams has its own stream for captures and its own memory pool, because
// graphs that share memory must not run at the same time.
#pragma once

#include <Python.h>

#include <vector>

#include "runtime/aten/graph_machinery.h"

namespace framejit::frame_hook {

// Of this process; with the GIL. It accepts no device if there is no GPU.
runtime::GraphMachinery& torch_graphs();

// Per input, whether the program said that its address stays the same: framejit.mark_static_address, or torch's
// function of that name. Empty: none is marked.
std::vector<bool> inputs_marked_as_fixed(PyObject* const* inputs, size_t count);

}  // namespace framejit::frame_hook
