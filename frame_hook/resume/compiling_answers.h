// frame_hook/resume/compiling_answers.h — what one call of a compiled callable was told when it asked whether it is
// being compiled.
//
// One object a call: its frame, the frames that segments inlined, and what runs after breaks share it. Once the call
// had to be told no it is told no to its end. When an exception leaves a call, what it was told yes before cannot be
// taken back; later calls are told no there.
#pragma once

#include <vector>

#include "frame_hook/hook/code_state.h"
#include "frame_hook/resume/segment.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

class CompilingAnswers final {
 public:
  bool answers_yes(CodeState& state) const;                         // to what is traced now
  bool fits(const Segment& segment, CodeState& state) const;      // the segment was told what this call is told
  void runs(const Segment& segment, PyCodeObject* code);          // a segment that asked has run
  void enters_callee() { ++callees_; }
  void leaves_callee() { --callees_; }
  void only_no() { only_no_ = true; }
  PyObject* leaves(PyObject* result);  // the call is over; null: with a Python error set, or refused

 private:
  void learn_from_error();
  bool only_no_ = false;
  int callees_ = 0;  // frames that segments inlined, and that go on by themselves
  std::vector<PyRef> answered_yes_;  // code objects whose segments were, and the call went on
};

}  // namespace framejit::frame_hook
