// runtime/base/c_stack.h — how much of the calling thread's C stack is left.
#pragma once

namespace framejit {

bool c_stack_is_low();   // a quarter of it, half of a small one: time to do without what costs stack
bool c_stack_is_over();  // 128 KiB: calls that come back here must be refused

}  // namespace framejit
