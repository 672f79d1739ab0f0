// frame_hook/trace/torch/tensor_frontend.cpp — the frontend of this process.
#include "frame_hook/trace/torch/tensor_frontend.h"

namespace framejit::frame_hook {

namespace {
TensorFrontend* the_frontend = nullptr;
}

TensorFrontend* tensor_frontend() { return the_frontend; }
void set_tensor_frontend(TensorFrontend* frontend) { the_frontend = frontend; }

}  // namespace framejit::frame_hook
