// frame_hook/resume/trace_all.h — FRAMEJIT_TRACE_ALL=1: every Python frame is traced, with tensors or without; its
// effects are replayed and its guards checked at the next call. Proves tracer, recipes and guards on programs of any
// kind: their own assertions are the oracle.
//
// What no segment covers runs natively, so that Stats::segment_instructions and HookStats::instructions together are
// all that traced frames execute. Generators and the bodies of classes and modules are left alone, as by compile().
#pragma once

namespace framejit::frame_hook {

// Installs the standing hook; false when the hook is not usable. Needs the tensor frontend: until it is set, frames run
// plainly.
bool start_trace_all();
void stop_trace_all();
// As FRAMEJIT_TRACE_ALL says; false when it is unset, or the hook is not usable.
bool start_trace_all_from_environment();

}  // namespace framejit::frame_hook
