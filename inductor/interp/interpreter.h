// inductor/interp/interpreter.h — executes loop programs on plain memory: the definition of what a nest means.
//
// Slow and simple on purpose. An emitter is right if it agrees with this.
#pragma once

#include <functional>
#include <span>

#include "inductor/loop/loop_program.h"

namespace framejit::inductor {

struct InterpreterMemory {
  std::vector<void*> buffers;         // base pointer per LoopBuffer
  std::vector<int64_t> symbols;       // values of the size symbols
};

// Runs one nest with its first dimensions fixed at `point`. Returns 0, or 1 + the position of the check instruction
// that failed.
int64_t run_nest(const LoopProgram& program, const Nest& nest, const InterpreterMemory& memory,
                 std::span<const int64_t> point = {});
// For tests: runs all items; extern calls go to `call`. A failed check is an Error.
Result<void> run_program(const LoopProgram& program, const InterpreterMemory& memory,
                         const std::function<void(const ExternCall&)>& call);

}  // namespace framejit::inductor
