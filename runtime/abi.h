// runtime/abi.h — the one C ABI of every compiled kernel.
//
// A kernel works on the half-open part [begin, end) of its parallel range. It touches only its buffers, never
// allocates, never throws. It returns 0; a positive number if a run-time check failed (an index out of range); or a
// negative number if the driver of its device refused to launch it: the driver's error, negated. A GPU kernel returns
// as soon as it is launched, on the stream that the thread has entered (PlanHost::enter). Later failures on the device
// are reported as for torch's own ops.
#pragma once

#include <cstdint>

extern "C" {

union FjScalar {
  int64_t i;
  double f;
};

// buffers: base pointers (storage offset applied), inputs and outputs in the kernel's own order.
// sizes: the symbolic extents and strides that the kernel asked for. scalars: run-time numbers.
typedef int64_t (*FjKernelFn)(void* const* buffers, const int64_t* sizes, const FjScalar* scalars, int64_t begin,
                              int64_t end);
}
