// frame_hook/trace/values/dynamic_sources.h — which numbers and sizes of real objects stand for symbols: those that
// differed between calls, or that the user marked.
#pragma once

#include "frame_hook/trace/values/trace_hints.h"
#include "graph/dynamic_extents.h"
#include "guards/source.h"

namespace framejit::frame_hook {

class DynamicSources {
 public:
  DynamicSources(const TraceHints& hints, guards::SourceTable& sources) : hints_(hints), sources_(sources) {}
  void reset(PyCodeObject* code) { code_ = code; }         // the sources name its locals

  std::string text(guards::SourceId source) const { return sources_.text(source, code_); }
  std::string name(guards::SourceId source) const;         // what the program calls it; "" if it has no name
  bool is_dynamic(guards::SourceId source) const;
  bool becomes_symbol(PyObject* integer, guards::SourceId source) const;  // when it is read
  bool holds_symbol(PyObject* object, guards::SourceId source) const;     // the same for an int, or for an int in a
                                                                          // tuple
  graph::DynamicExtents extents(guards::SourceId source, PyObject* tensor, bool is_parameter) const;

 private:
  const TraceHints& hints_;
  guards::SourceTable& sources_;
  PyCodeObject* code_ = nullptr;
};

}  // namespace framejit::frame_hook
