// frame_hook/resume/call_settings.h — the settings object of a compile() call, in the form that the stages use.
#pragma once

#include "frame_hook/resume/entries.h"

namespace framejit::frame_hook {

// The options of a settings object (options.py: Options); null with a Python error set. The result is kept in the
// object's own dict and dies with it. So a user's backend lives no longer than the callables compiled with it.
const Options* options_of(PyObject* settings);

}  // namespace framejit::frame_hook
