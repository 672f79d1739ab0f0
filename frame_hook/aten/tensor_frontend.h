// frame_hook/aten/tensor_frontend.h — the one implementation of trace/tensor_frontend.h over libtorch.
//
// install_tensor_frontend() is called once, when the extension is imported after torch. Backends are registered by name by whoever
// owns them: this folder knows no emitter.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "frame_hook/trace/tensor_frontend.h"
#include "graph/backend.h"

namespace framejit::frame_hook {

// False with a Python error set when torch is missing or not the one that this extension was built for.
bool install_tensor_frontend();

using BackendFactory = std::function<std::unique_ptr<graph::Backend>()>;
void register_backend(const std::string& name, BackendFactory factory);
// The backend of that name: one for the process, so that it compiles identical kernels once; null: no such name.
graph::Backend* find_backend(const std::string& name);
std::vector<std::string> backend_names();

}  // namespace framejit::frame_hook
