// frame_hook/trace/types/keys_of_program.h — keys whose classes have a __hash__ or __eq__ of the program.
//
// The trace runs such code once, where the program does. But guards, recipes and look-ups in real containers would run
// it again. A container that the trace makes is filled once more if it leaves the trace.
#pragma once

#include "frame_hook/trace/values/value.h"

namespace framejit::frame_hook {

void refuse_key_of_program(Value* key);  // breaks if it is one, or contains one

}  // namespace framejit::frame_hook
