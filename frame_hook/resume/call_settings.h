// frame_hook/resume/call_settings.h — the settings object of a compile() call as the stages want it.
#pragma once

#include "frame_hook/resume/entries.h"

namespace framejit::frame_hook {

// The settings object (options.py: Options); null with a Python error set. What is made of it is kept in the object's
// own dict and dies with it: what a user gave as backend lives no longer than the callables compiled with it.
const Options* options_of(PyObject* settings);

}  // namespace framejit::frame_hook
