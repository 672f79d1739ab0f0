// frame_hook/trace/machine/errors.h — exceptions of the traced program: made, raised and matched.
//
// Exceptions are instance values whose payload is the tuple of arguments; __context__, __cause__ and so on are
// attributes; members of C classes are apart (exception_members.h). Raising throws SymbolicRaise. Nothing here runs
// code of the program.
#pragma once

#include <functional>
#include <unordered_set>

#include "frame_hook/trace/values/heap.h"

namespace framejit::frame_hook {

class Errors {
 public:
  explicit Errors(Heap& of_values) : heap(of_values) {}
  void reset() { own_errors_.clear(), c_call_frames_ = 0; }  // a new attempt begins

  Heap& heap;

  [[noreturn]] void raise(Value* exception);
  [[noreturn]] void raise_new(PyObject* type, const std::string& message);
  [[noreturn]] void raise_pending();  // a Python error that a concrete call set becomes symbolic
  [[noreturn]] void raise_of_pure_call();  // the same, for a call in which only signal handlers run Python code
  Value* constant_steal(PyObject* object);  // new reference; if null, the error that is set is raised symbolically
  bool exception_matches(Value* exception, PyObject* type);
  InstanceValue* new_exception(PyObject* type, std::vector<Value*> args);  // one that C code makes
  InstanceValue* error_of_generator(Value* stop);  // the error of a generator that let a StopIteration out
  InstanceValue* exception_of(PyObject* real);  // the same for a real exception, which a concrete call raised
  bool forget_own_error(Value* exception) { return own_errors_.erase(exception) > 0; }  // true: new_exception() made it
  size_t& c_call_frames() { return c_call_frames_; }  // of CBoundary

 private:
  std::unordered_set<Value*> own_errors_;  // those whose text is ours, not yet CPython's: stand_ins.h
  size_t c_call_frames_ = 0;  // depth of the innermost frame that is in a C call
  void cut_context(Value* handled, Value* raised);
  [[noreturn]] void raise_set_error(bool own);
};

// With these arguments.
[[noreturn]] void raise_with(Errors& errors, PyObject* type, std::initializer_list<Value*> args);
void write_attribute(InstanceValue* v, std::string_view name, Value* to);  // of an exception that the trace made
// The members of an exception besides its arguments. value: makes the value of a real object, or null if there is none
// (then the result is false).
bool copy_error_members(PyObject* real, InstanceValue* to, const std::function<Value*(PyObject*)>& value);

}  // namespace framejit::frame_hook
