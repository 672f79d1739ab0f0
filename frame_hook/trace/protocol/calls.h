// frame_hook/trace/protocol/calls.h — C functions that only compute.
//
// Which function goes where: Tracer::call.
#pragma once

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

Value* run_plain(Tracer& t, PyObject* callable, const Arguments& args);  // on constants; other arguments break

}  // namespace framejit::frame_hook
