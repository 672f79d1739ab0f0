// frame_hook/trace/values/open_numbers.h — numbers that differ from call to call, and what is computed from them.
//
// An open number has the value of this call in the trace, but only its type is guarded, until some code asks for the
// number (constant_of). Nothing here runs code of the program or records an op.
#pragma once

#include <initializer_list>

#include "frame_hook/trace/values/dynamic_sources.h"
#include "frame_hook/trace/values/shadows.h"

namespace framejit::frame_hook {

class OpenNumbers {
 public:
  OpenNumbers(FrameTrace& trace, const DynamicSources& dynamic, Shadows& of_values)
      : shadows(of_values), trace_(trace), dynamic_(dynamic) {}
  void reset() { computed_ = 0; }                          // a new attempt begins

  Shadows& shadows;

  bool is_open(Value* v);  // a size, an open float, or a value computed from them whose number nobody has asked for
  bool is_open_float(Value* v);
  bool is_same_open_float(Value* a, Value* b);             // both are open, and computed alike
  guards::SourceId source_of(Value* v);                    // how guards compute it
  // A pure C function of one or two numbers and texts, at least one of them open: called again in each call. Null: call
  // it on constants.
  Value* computed(PyObject* function, std::initializer_list<Value*> operands);
  Value* computed(PyObject* function, const Arguments& args);
  // A function of module operator; an open result, or null.
  Value* float_arithmetic(BinaryOp op, Value* a, Value* b);

 private:
  FrameTrace& trace_;
  const DynamicSources& dynamic_;
  size_t computed_ = 0;  // sources that computed() has made
};

}  // namespace framejit::frame_hook
