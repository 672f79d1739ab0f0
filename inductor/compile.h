// inductor/compile.h — the backend "framejit": a functional graph becomes an executable of fused kernels and extern
// calls.
//
// An op without a lowering is an extern call; if code generation refuses a kernel, the whole compile is an Error, and
// the driver runs the segment plainly. Several threads may use the backend; identical kernels are compiled once.
#pragma once

#include <memory>
#include <string_view>

#include "graph/backend.h"
#include "inductor/choices.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

enum class Target : uint8_t { kMachine, kInterp };  // machine code for the tensors' device; the interpreter

struct InductorOptions {
  bool fuse = true;                       // false: one kernel per op, for comparison and for tests
  int vector_level = 0;  // a VectorLevel; 0: this CPU's
  Target target = Target::kMachine;
  Choices choices = {};                   // for compile()
};

// Named "framejit", or "interp" if the interpreter runs the kernels.
std::unique_ptr<graph::Backend> make_inductor_backend(InductorOptions options = {});

// The target for CPU kernels here, with the settings applied.
Result<TargetInfo> target_of_this_machine();

// How the backend treats an op, by its table rows: "decomposed", "view" (index arithmetic), "lowered" (own kernels),
// "extern" (PyTorch's own op). A row may leave some arguments to PyTorch.
const char* treatment_of(std::string_view op);

}  // namespace framejit::inductor
