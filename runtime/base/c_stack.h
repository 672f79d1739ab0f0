// runtime/base/c_stack.h — how much of the calling thread's C stack is left.
#pragma once

namespace framejit {

bool c_stack_is_low();   // a quarter left, half of a small one: avoid work that needs much stack
bool c_stack_is_over();  // 128 KiB left: refuse calls that come back here

}  // namespace framejit
