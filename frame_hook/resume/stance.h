// frame_hook/resume/stance.h — what torch.compiler.set_stance asks for, read where torch keeps it.
//
// set_stance loads torch's compiler; a program that never called it pays one look-up of a module a call.
#pragma once

#include <cstdint>
#include <string>

namespace framejit::frame_hook {

enum class Stance : uint8_t { compile, plain, keep, fail, second_call };
Stance stance_now();

// Says on the channel `warnings`, once until reset(), that something which was asked for is done otherwise or not at all.
void say_once(const std::string& asked, const std::string& instead);
void forget_what_was_said();

}  // namespace framejit::frame_hook
