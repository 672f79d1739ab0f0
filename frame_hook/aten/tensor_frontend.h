// frame_hook/aten/tensor_frontend.h — the one implementation of trace/torch/tensor_frontend.h over libtorch.
//
// install_tensor_frontend() is called once, when the extension is imported after torch.
#pragma once

#include "frame_hook/trace/torch/tensor_frontend.h"

namespace framejit::frame_hook {

// False with a Python error set when torch is missing or not the one that this extension was built for.
bool install_tensor_frontend();

// From now on, values derived from the memory of these tensors, a sequence, count as outdated. False with an error set.
bool distrust_weights(PyObject* tensors);

}  // namespace framejit::frame_hook
