// runtime/aten/gpu_stream.cpp — the handle behind a c10::Stream, without CUDA's headers.
//
// Not every torch that we build for answers Stream::native_handle() for CUDA. c10::cuda::CUDAStream is a Stream and nothing
// else (c10/cuda/CUDAStream.h), so its member stream(), where the process has it, takes a Stream as it is.
#include "runtime/aten/gpu_stream.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

namespace framejit::runtime {

void* current_stream_handle(c10::Device device) {
  using Handle = void*(const c10::Stream*);
  static Handle* const of_cuda_stream = [] {
    void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library == nullptr ? nullptr : reinterpret_cast<Handle*>(dlsym(library, "_ZNK3c104cuda10CUDAStream6streamEv"));
  }();
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  return of_cuda_stream != nullptr ? of_cuda_stream(&stream) : stream.native_handle();
}

}  // namespace framejit::runtime
