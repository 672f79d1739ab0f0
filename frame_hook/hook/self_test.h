// frame_hook/hook/self_test.h — is this CPython the one that the version layer describes?
#pragma once

#include <string>

namespace framejit::frame_hook {

// Empty: yes. Otherwise what does not fit. Patch releases may move private structs: a probe frame is read and compared field by field
// before anything is written, then run natively, stopped and handed over at each instruction, and compared with plain Python.
std::string run_self_test();

}  // namespace framejit::frame_hook
