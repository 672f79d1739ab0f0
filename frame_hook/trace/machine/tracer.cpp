// frame_hook/trace/machine/tracer.cpp — makes the parts of the tracer, and resets them for each attempt.
#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

Tracer::Tracer(FrameTrace& trace, const TraceOptions& options, TensorFrontend& frontend)
    : trace_(trace),
      frontend_(frontend),
      dynamic(options.hints, trace.guards.sources),
      heap(trace, facts, dynamic, frontend),
      tensors(trace, frontend, dynamic, numbers),
      attempts(trace, stack, options),
      machine(*this, errors, trace, options) {}

void Tracer::reset(PyCodeObject* code) {
  stack.clear();
  facts.reset();
  trace_.exit.clear();
  trace_.values.clear();  // before the recording that made their tensors
  trace_ = FrameTrace{};
  trace_.recording = frontend_.begin();
  if (auto modes = frontend_.current_modes()) trace_.guards.modes.push_back(std::move(modes));
  machine.reset();
  errors.reset();
  drops.reset();
  heap.reset();
  dynamic.reset(code);
  numbers.reset();
  tensors.reset();
  attempts.reset();
}

}  // namespace framejit::frame_hook
