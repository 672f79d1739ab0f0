// frame_hook/aten/training.h — the backward of a compiled recording: its plans, compiled when they are first asked for.
#pragma once

#include <memory>

#include "frame_hook/aten/compiled_call.h"
#include "runtime/aten/backward.h"

namespace framejit::frame_hook {

// Null where the recording has no backward.
std::shared_ptr<runtime::BackwardPlans> backward_plans(const graph::CompiledGraph& compiled,
                                                       const RecordedValues& values, const OutputSet& outputs);

}  // namespace framejit::frame_hook
