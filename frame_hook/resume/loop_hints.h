// frame_hook/resume/loop_hints.h — what is known to differ the next time before there has been a next time.
//
// A segment that begins inside a loop, behind a break, runs again for the next round: the numbers that the loop writes
// (its index, a count) are others then.
#pragma once

#include <string>
#include <vector>

#include "frame_hook/bytecode/code.h"

namespace framejit::frame_hook {

// Adds the locals in which loops around the instruction at this code unit count, and what their ranges give, as texts
// of sources.
void add_loop_hints(const Code& code, int index, std::vector<std::string>& dynamic_sources);

}  // namespace framejit::frame_hook
