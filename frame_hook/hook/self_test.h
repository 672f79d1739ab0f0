// frame_hook/hook/self_test.h — is this CPython the one that the version layer describes?
#pragma once

#include <cstdint>
#include <string>

namespace framejit::frame_hook {

// What a test makes wrong on purpose: a place that is read one word further on, or the evaluator's result.
enum class SelfTestFault : uint8_t { none, function, code, globals, locals, stack, slot, result };

// Empty: yes. Otherwise what does not fit. Patch releases may move private structs: a probe frame is read and compared
// field by field before anything is written, then run natively, stopped and handed over at each instruction, and
// compared with plain Python.
std::string run_self_test(SelfTestFault fault = SelfTestFault::none);

}  // namespace framejit::frame_hook
