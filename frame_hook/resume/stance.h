// frame_hook/resume/stance.h — what torch.compiler.set_stance asks for, read where torch keeps it.
//
// set_stance loads torch's compiler. If that is not loaded, there is no stance, and a call costs only a look at the
// version of sys.modules.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

namespace framejit::frame_hook {

enum class Stance : uint8_t { compile, plain, keep, fail, second_call };
Stance stance_now();
void look_for_stance_in(PyObject* modules);  // sys.modules, once, before the first stance is asked for

// Says on the channel `warnings`, once until reset(), that something that was asked for is done differently or not at
// all.
void warn_once(const std::string& asked, const std::string& instead);

}  // namespace framejit::frame_hook
