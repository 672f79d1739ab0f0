// frame_hook/resume/global_mode.h — FRAMEJIT=1: the standing hook's choice of what to compile.
//
// After min_calls calls are compiled: what an nn.Module's __call__ calls, unless a compiled module's call is going on
// in the thread, and functions that have a tensor among their arguments, directly or one container deep. A function is
// compiled to its return or not at all: a program's loops and its bookkeeping break, and the modules and functions that
// they call have entries of their own. Never: the standard library, framejit, torch's own Python but the forwards of
// its modules, generators, and what the FRAMEJIT_FILTER and FRAMEJIT_SKIP expressions on module:qualname leave out; a
// module that is left out is as if it were not there.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace framejit::frame_hook {

struct GlobalModeSettings {
  int64_t min_calls = 2;
  std::string filter, skip;                   // ECMAScript regular expressions; "": none
  std::string standard_folder;                // of the standard library; packages installed below it are not part of it
  std::vector<std::string> library_folders;   // files below these are never compiled
  std::string module_folder;                  // forwards below this one are (torch/nn/modules)
};

// While one exists, the thread runs plain Python: the modules that it calls are outermost ones.
class OutsideOfModules {
 public:
  OutsideOfModules();
  OutsideOfModules(const OutsideOfModules&) = delete;
  OutsideOfModules& operator=(const OutsideOfModules&) = delete;
  ~OutsideOfModules();

 private:
  int before_;
};

// An error when an expression does not parse or the hook is not usable.
Result<void> enable_global_mode(GlobalModeSettings settings);

}  // namespace framejit::frame_hook
