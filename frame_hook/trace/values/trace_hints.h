// frame_hook/trace/values/trace_hints.h — what earlier traces of a code object found out.
#pragma once

#include <string>
#include <vector>

#include "guards/user_names.h"

namespace framejit::frame_hook {

struct TraceHints {  // kept per code object, grows with recompiles
  std::vector<std::string> dynamic_sources;  // "L['n']" (an int), "L['x'].size(0)": these are symbols from now on
  bool dynamic_all = false;                  // compile(dynamic=True)
  bool dynamic_never = false;                // compile(dynamic=False)
  const guards::UserNames* names = nullptr;  // of the traced frame
  bool answers_compiling = true;  // the answer of torch.compiler.is_compiling(), if it is known before the trace
};

}  // namespace framejit::frame_hook
