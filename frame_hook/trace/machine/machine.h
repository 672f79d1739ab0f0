// frame_hook/trace/machine/machine.h — runs frames: binds the arguments of a call, hands each instruction to its
// handler, enters exception handlers, resumes generators.
//
// What an instruction means is not known here: handlers_*.cpp ask the protocol.
#pragma once

#include <unordered_map>

#include "frame_hook/trace/machine/errors.h"
#include "frame_hook/trace/machine/frame_trace.h"
#include "frame_hook/trace/values/arguments.h"
#include "guards/cpython/frame_access.h"

namespace framejit::frame_hook {

class Tracer;

class Machine {
 public:
  Machine(Tracer& tracer, Errors& of_program, FrameTrace& trace, const TraceOptions& options)
      : errors(of_program), t_(tracer), trace_(trace), options_(options) {}
  void reset();                                            // a new attempt begins

  Errors& errors;

  // The frame of the program in which the trace begins, at instruction `start`.
  std::shared_ptr<SymbolicFrame> root_frame(const guards::FrameAccess& live, std::shared_ptr<const Code> code,
                                            size_t start);
  Value* run_frame(std::shared_ptr<SymbolicFrame> frame);  // to its return; a generator's yield returns too
  Value* call_function(FunctionValue* function, const Arguments& args);
  Value* resume_generator(GeneratorValue* generator, Value* sent, Value* thrown);  // null when finished
  // Generators of the trace, each with the step to stop before if it cannot be rebuilt.
  const std::unordered_map<const GeneratorValue*, uint64_t>& generators() const { return generators_; }

 private:
  Tracer& t_;
  FrameTrace& trace_;
  const TraceOptions& options_;
  std::unordered_map<PyCodeObject*, std::shared_ptr<const Code>> codes_;  // kept across attempts
  std::unordered_map<PyCodeObject*, CodeCache> code_caches_;
  std::unordered_map<const GeneratorValue*, uint64_t> generators_;
  PyObject* live_builtins_ = nullptr;                      // of the live frame; borrowed

  std::shared_ptr<const Code> decoded(PyCodeObject* code);
  std::shared_ptr<SymbolicFrame> new_frame(FunctionValue* function);
  void prepare_frame(SymbolicFrame& frame, std::shared_ptr<const Code> code);
  Value* builtins_of(FunctionValue* function);
  void bind_arguments(FunctionValue* function, const Arguments& args, SymbolicFrame& frame);
  void run_instructions(SymbolicFrame& frame);
  void enter_handler(SymbolicFrame& frame, Value* exception);  // re-raises if there is no handler
};

}  // namespace framejit::frame_hook
