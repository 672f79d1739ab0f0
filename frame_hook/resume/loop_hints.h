// frame_hook/resume/loop_hints.h — which numbers will vary, before they have.
//
// A segment that begins inside a loop, after a break, runs again in the next iteration. By then the numbers that the
// loop writes (its index, a count) have other values.
#pragma once

#include <string>
#include <vector>

#include "frame_hook/bytecode/code.h"

namespace framejit::frame_hook {

// Adds the counters of the loops around the instruction at this code unit, and the items of their ranges, as texts of
// sources.
void add_loop_hints(const Code& code, int index, std::vector<std::string>& dynamic_sources);

}  // namespace framejit::frame_hook
