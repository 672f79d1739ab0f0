// frame_hook/trace/torch/traced_tensors.h — the link to the recording: real tensors become inputs, calls are recorded,
// and an open number is a 0-dim tensor there.
//
// Nothing here runs code of the program. What a call is given has been made before (RealCalls::materialise).
#pragma once

#include "frame_hook/trace/values/open_numbers.h"

namespace framejit::frame_hook {

struct RecordingLine {  // that the recording was told, and the program's own line that led there
  PyCodeObject *code, *program;
  int number, program_number;
  bool operator==(const RecordingLine&) const = default;
};

class TracedTensors {
 public:
  TracedTensors(FrameTrace& trace, TensorFrontend& of_tensors, const DynamicSources& dynamic, OpenNumbers& open)
      : numbers(open), frontend(of_tensors), trace_(trace), dynamic_(dynamic) {}
  void reset();                                            // a new attempt begins

  OpenNumbers& numbers;
  TensorFrontend& frontend;

  PyObject* traced(TensorValue* v);                        // borrowed; makes it an input on first use
  Value* lifted(PyObject* real);                           // a traced tensor that has the contents of a real one
  // Records a call, with arguments in vectorcall form. Null: call break_of_recording().
  Value* call(PyObject* callable, PyObject* const* args, size_t positional, PyObject* names);
  [[noreturn]] void break_of_recording(const std::string& what);  // a recorded call or attribute returned nothing

  // ---- numbers
  FloatTensors& floats() { return trace_.floats; }
  Value* of_float(Value* number);                          // an open float as a 0-dim tensor
  Value* float_number(Value* number);  // an open float for an argument that must be a number; null: it is a constant
  // The number in a 0-dim tensor whose arithmetic is known, as a float; null: only the graph computes it.
  Value* number_in(Value* v);

 private:
  struct NumberInTensor {                                  // an open float that is read from a 0-dim tensor
    guards::SourceId tensor;
    Value* number;
  };

  FrameTrace& trace_;
  const DynamicSources& dynamic_;
  std::vector<NumberInTensor> read_numbers_;
  RecordingLine last_line_{};

  Recording& recording() { return *trace_.recording; }
  Heap& heap() { return numbers.shadows.heap; }
  FloatTensor& held(Value* number);
  Facts& facts() { return numbers.shadows.facts; }
  void set_user_line();
  [[noreturn]] void break_at_unsupported(TensorValue* v, std::string reason);
  Value* number_of_input(size_t input);
};

void guard_number_reads(FrameTrace& trace, Facts& facts);  // what C code has learned of open floats since the last call
bool contains_tensor(TensorFrontend& frontend, Value* v);  // itself, or an item; adds no guards

}  // namespace framejit::frame_hook
