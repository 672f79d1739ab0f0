// frame_hook/resume/compiling_answers.h — what one call of a compiled callable was told when it asked whether it is
// being compiled.
//
// One object per call: its frame, the frames that segments inlined, and what runs after breaks share it. After the
// first answer "no", a call gets only "no". If an exception leaves the call, an earlier "yes" cannot be taken back, so
// later calls of that code get "no".
#pragma once

#include <vector>

#include "frame_hook/hook/code_state.h"
#include "frame_hook/resume/segment.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

class CompilingAnswers final {
 public:
  bool answers_yes(CodeState& state) const;                         // to what is traced now
  bool fits(const Segment& segment, CodeState& state) const;      // the segment got the answer that this call gets
  void runs(const Segment& segment, PyCodeObject* code);          // a segment that asked has run
  void enters_callee() { ++callees_; }
  void leaves_callee() { --callees_; }
  void only_no() { only_no_ = true; }
  PyObject* leaves(PyObject* result);  // the call is over; null: with a Python error set, or refused

 private:
  void learn_from_error();
  bool only_no_ = false;
  int callees_ = 0;  // frames that segments inlined, and that go on by themselves
  std::vector<PyRef> answered_yes_;  // code of segments that got "yes" and did not end the call
};

}  // namespace framejit::frame_hook
