// frame_hook/hook/stress.h — FRAMEJIT_STRESS=<seed>: every Python frame runs natively for a random number of
// instructions and is then handed to the interpreter mid-frame; exceptions are unwound natively. Tests the hook and the
// evaluator with programs of any kind.
#pragma once

#include <cstdint>

namespace framejit::frame_hook {

// Installs the standing hook with the stress handler; false when the hook is not usable. `longest` bounds the number of
// instructions; one frame in eight has no bound.
bool start_stress(uint64_t seed, int longest = 40);
// Reads FRAMEJIT_STRESS; false if it is unset or the hook is not usable.
bool start_stress_from_environment();

}  // namespace framejit::frame_hook
