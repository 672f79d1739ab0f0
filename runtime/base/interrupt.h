// runtime/base/interrupt.h — whether the user wants to end a compile: asked between its stages, answered by the program
// that embeds us.
#pragma once

#include "runtime/base/result.h"

namespace framejit {

using InterruptedFn = bool (*)();
void set_interrupt_reader(InterruptedFn reader);
bool interrupted();            // on the thread that compiles; false if there is no reader
Result<void> stop_if_interrupted();  // an Error "interrupted" if so: the compile is given up, and nothing of it is kept

}  // namespace framejit
