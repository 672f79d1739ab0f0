// frame_hook/trace/torch/outside_state.h — which state of the program is read or written by code that eager runs later.
//
// While an OutsideState lives, it watches the values that existed before, and those that the trace meets from then on.
// Functions, classes and modules do not count, nor do constants of libraries.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "frame_hook/trace/values/float_tensors.h"
#include "frame_hook/trace/values/heap.h"

namespace framejit::frame_hook {

class OutsideState {
 public:
  // passed: values that the code holds already, with what their tuples hold.
  OutsideState(Heap& heap, std::vector<Value*> passed, const FloatTensors& floats);
  ~OutsideState();
  OutsideState(const OutsideState&) = delete;

  bool is_written() const;          // something that existed before
  std::string what_is_read() const;  // the path of a number, text or flag; "": none

 private:
  struct Flags {
    bool value, identity, mutated;
  };
  using Known = std::unordered_set<const Value*>;
  Known known() const;
  bool is_state(const Value* v, const Known& known) const;
  void add_operands(guards::SourceId source, std::unordered_set<guards::SourceId>& to) const;
  bool is_library(guards::SourceId source) const;
  std::string text_of(guards::SourceId source) const;

  Heap& heap_;
  std::vector<Value*> passed_;
  const FloatTensors& floats_;
  const size_t uses_before_;
  std::vector<Flags> before_;  // per value
};

}  // namespace framejit::frame_hook
