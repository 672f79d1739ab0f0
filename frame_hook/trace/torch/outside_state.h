// frame_hook/trace/torch/outside_state.h — what code that runs later in eager reads and writes of the program's state.
//
// While an OutsideState lives, it watches the values that existed before, and those that the trace meets newly.
// Functions, classes and modules do not count, nor do constants of libraries.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frame_hook/trace/values/heap.h"

namespace framejit::frame_hook {

class OutsideState {
 public:
  using FloatTensors = std::unordered_map<Value*, Value*>;
  // passed: values that the code holds already, with what their tuples hold. tensors: as in TracedTensors.
  OutsideState(Heap& heap, std::vector<Value*> passed, FloatTensors& tensors);
  ~OutsideState();
  OutsideState(const OutsideState&) = delete;

  bool is_written() const;          // something that existed before
  // The path of a number, text or flag; "": none. sources: what the tensors of open floats hold.
  std::string what_is_read(const std::unordered_map<guards::SourceId, Value*>& sources) const;

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
  FloatTensors& tensors_;
  FloatTensors tensors_before_;
  std::vector<Flags> before_;  // per value
};

}  // namespace framejit::frame_hook
