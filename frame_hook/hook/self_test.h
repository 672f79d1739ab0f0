// frame_hook/hook/self_test.h — does this CPython have the layout that the version layer describes?
#pragma once

#include <cstdint>
#include <string>

namespace framejit::frame_hook {

// What a test breaks on purpose: a field that is read one word too far, or the evaluator's result.
enum class SelfTestFault : uint8_t { none, function, code, globals, locals, stack, slot, result };

// Empty: yes; otherwise, what does not fit. Patch releases may move private structs. So a probe frame is read and
// compared field by field before anything is written. Then it is run natively, stopped and handed over at each
// instruction, and compared with plain Python.
std::string run_self_test(SelfTestFault fault = SelfTestFault::none);

}  // namespace framejit::frame_hook
