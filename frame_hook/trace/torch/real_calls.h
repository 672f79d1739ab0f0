// frame_hook/trace/torch/real_calls.h — C functions called for real: on traced tensors under the recorder, or on
// constants.
//
// The callee gets no object of the user's program that it could write to. Looking up the keys of a dict that is passed
// may run code of the program; nothing else here does.
#pragma once

#include <string>
#include <unordered_map>

#include "frame_hook/trace/machine/attempts.h"
#include "frame_hook/trace/torch/traced_tensors.h"
#include "frame_hook/trace/types/dicts.h"

namespace framejit::frame_hook {

// Of functions that ran while tracing because the user says that they always return the same
// (torch.compiler.assume_constant_result), by the identity of function and arguments. One for all attempts.
struct AssumedConstants {
  std::unordered_map<std::string, PyRef> results;
};

class RealCalls {
 public:
  RealCalls(Dicts& of_keys, TracedTensors& of_tensors, Attempts& of_steps)
      : dicts(of_keys), tensors(of_tensors), attempts(of_steps) {}

  Dicts& dicts;
  TracedTensors& tensors;
  Attempts& attempts;
  AssumedConstants assumed;

  Recording& recording() { return dicts.heap.recording(); }
  // The object that a callee gets: a constant (guarded deeply), a traced tensor, a symbolic int of torch, or a fresh
  // container of such objects.
  PyRef materialise(Value* v);
  Value* recorded(PyObject* callable, const Arguments& args);  // with traced tensors inside args
  Value* pure(PyObject* callable, const Arguments& args);      // every argument is constant
  Value* plain(PyObject* callable, const Arguments& args);     // the same; breaks if one is not

 private:
  PyRef materialise_items(Value* v, const std::vector<Value*>& items);
};

}  // namespace framejit::frame_hook
