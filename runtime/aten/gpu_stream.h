// runtime/aten/gpu_stream.h — torch's current stream of a GPU as the driver knows it.
#pragma once

#include <c10/core/Device.h>

namespace framejit::runtime {

void* current_stream_handle(c10::Device device);

}  // namespace framejit::runtime
