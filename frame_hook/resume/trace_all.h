// frame_hook/resume/trace_all.h — FRAMEJIT_TRACE_ALL=1: every Python frame is traced, with or without tensors. Its
// effects are applied, and its guards are checked at the next call. It tests tracer, recipes and guards with programs
// of any kind, whose own assertions are the oracle.
//
// Code that no segment covers runs natively, so that Stats::segment_instructions and HookStats::instructions together
// are all that traced frames execute. Generators and the bodies of classes and modules are left alone, as by compile().
#pragma once

namespace framejit::frame_hook {

// Installs the standing hook; false if the hook is not usable. Needs the tensor frontend: until it is set, frames run
// plainly.
bool start_trace_all();
// Reads FRAMEJIT_TRACE_ALL; false if it is unset or the hook is not usable.
bool start_trace_all_from_environment();

}  // namespace framejit::frame_hook
