// runtime/backward_plan.h — turns a compiled plan into a forward that saves values, or into a backward that reads them.
#pragma once

#include "runtime/executable.h"

namespace framejit::runtime {

// The outputs of the forward from number `first` on become its saved values.
void save_outputs(Executable& executable, size_t first);

// An executable with one backward plan and no forward: that of `from`, whose first `saved` inputs become saved values.
// Each is freed after the last step that reads it, unless a gradient shares its memory.
Executable as_backward(Executable from, uint32_t saved);

}  // namespace framejit::runtime
