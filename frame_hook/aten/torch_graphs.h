// frame_hook/aten/torch_graphs.h — torch's own CUDA graphs (HIP's, in a torch for AMD), found at run time.
//
// Captures are of this thread alone, and there is one at a time. It holds the GIL but where torch lets it go, at the
// beginning and at the end. Each of the program's streams has a stream for captures and a memory pool of its own, since
// graphs that share memory must not run at the same time.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "runtime/aten/graph_machinery.h"

namespace framejit::frame_hook {

// Of this process; with the GIL. It accepts no device if there is no GPU.
runtime::GraphMachinery& torch_graphs();

// Per input, whether the program said that its address stays the same: framejit.mark_static_address, or torch's
// function of that name. Empty: none is marked.
std::vector<bool> inputs_marked_as_fixed(PyObject* const* inputs, size_t count);

}  // namespace framejit::frame_hook
