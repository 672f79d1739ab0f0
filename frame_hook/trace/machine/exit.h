// frame_hook/trace/machine/exit.h — whether the exit of a trace can be rebuilt.
#pragma once

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

// False: it cannot, and the next attempt stops earlier. True: effects are guarded to be on distinct objects.
bool accept_exit(Tracer& t, FrameTrace& trace);

}  // namespace framejit::frame_hook
