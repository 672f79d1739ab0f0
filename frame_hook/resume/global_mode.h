// frame_hook/resume/global_mode.h — FRAMEJIT=1: how the standing hook chooses what to compile.
//
// After min_calls calls, it compiles whatever an nn.Module's __call__ calls, unless the thread is inside the call of a
// compiled module. It also compiles functions with a tensor among their arguments, directly or one container deep. A
// function is compiled to its return or not at all: a program's main loop and its bookkeeping would break, but the
// modules and functions that they call have entries of their own. It never takes the standard library, framejit,
// torch's own Python except the forwards of its modules, generators, and whatever FRAMEJIT_FILTER and FRAMEJIT_SKIP
// (expressions on module:qualname) leave out. A module that is left out is treated as if it did not exist.
#pragma once

#include <string>

#include "runtime/base/result.h"

namespace framejit::frame_hook {

struct GlobalModeSettings {
  int64_t min_calls = 2;
  std::string filter, skip;                   // ECMAScript regular expressions; "": none
};

// While one exists, the thread runs plain Python, so the modules that it calls are outermost ones.
class OutsideOfModules {
 public:
  OutsideOfModules();
  OutsideOfModules(const OutsideOfModules&) = delete;
  OutsideOfModules& operator=(const OutsideOfModules&) = delete;
  ~OutsideOfModules();

 private:
  int before_;
};

// An error if an expression does not parse or the hook is not usable.
Result<void> enable_global_mode(GlobalModeSettings settings);
// At the end of the program: says so if the filter left out everything that could have been compiled.
void report_vain_filter();

}  // namespace framejit::frame_hook
