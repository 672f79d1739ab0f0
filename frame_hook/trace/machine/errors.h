// frame_hook/trace/machine/errors.h — exceptions of the traced program: made, raised and matched.
//
// They are instance values whose payload is the tuple of arguments; __context__, __cause__ and the like are attributes.
// To raise is to throw SymbolicRaise. Nothing here runs code of the program.
#pragma once

#include <functional>
#include <unordered_set>

#include "frame_hook/trace/values/heap.h"

namespace framejit::frame_hook {

class Errors {
 public:
  Errors(Heap& of_values, const CallStack& stack) : heap(of_values), stack_(stack) {}
  void reset() { own_errors_.clear(), c_call_frames_ = 0; }  // a new attempt begins

  Heap& heap;

  [[noreturn]] void raise(Value* exception);
  [[noreturn]] void raise_new(PyObject* type, const std::string& message);
  [[noreturn]] void raise_pending();  // a Python error set by a concrete call becomes symbolic
  [[noreturn]] void raise_of_pure_call();  // the same where the only Python code is a signal handler's
  Value* constant_steal(PyObject* object);  // new reference; null with an error set raises it symbolically
  bool exception_matches(Value* exception, PyObject* type);
  InstanceValue* new_exception(PyObject* type, std::vector<Value*> args);  // one that C code makes
  InstanceValue* error_of_generator(Value* stop);  // of one that let a StopIteration out
  InstanceValue* exception_of(PyObject* real);  // the same of a real one, which a concrete call raised
  bool forget_own_error(Value* exception) { return own_errors_.erase(exception) > 0; }  // true: new_exception() made it
  size_t& c_call_frames() { return c_call_frames_; }  // of CBoundary

 private:
  const CallStack& stack_;
  std::unordered_set<Value*> own_errors_;  // in the tracer's words still: stand_ins.h
  size_t c_call_frames_ = 0;  // depth of the innermost frame whose C call is under way
  void cut_context(Value* handled, Value* raised);
  [[noreturn]] void raise_set_error(bool own);
};

void write_attribute(InstanceValue* v, const char* name, Value* to);  // of what the trace made
// What an exception holds beside its arguments. value: of a real object, null for one that has none (then false).
bool copy_error_members(PyObject* real, InstanceValue* to, const std::function<Value*(PyObject*)>& value);

}  // namespace framejit::frame_hook
