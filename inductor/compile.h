// inductor/compile.h — the backend "framejit": a functional graph becomes an executable of fused kernels and extern
// calls.
//
// An op without a lowering is an extern call; a kernel that code generation refuses is an Error of the whole compile,
// upon which the driver runs the segment eagerly. The backend may be used from several threads; identical kernels are
// compiled once.
#pragma once

#include <memory>
#include <string_view>

#include "graph/backend.h"
#include "inductor/choices.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

enum class Target : uint8_t { kMachine, kInterp };  // machine code of the tensors' device; the interpreter

struct InductorOptions {
  bool fuse = true;                       // false: one kernel per op, as the yardstick and for tests
  int vector_level = 0;                   // as VectorLevel; 0: this CPU's
  Target target = Target::kMachine;
  Choices choices = {};                   // of compile()
};

// Named "framejit", or "interp" where the interpreter runs the kernels.
std::unique_ptr<graph::Backend> make_inductor_backend(InductorOptions options = {});

// What kernels of the CPU are made for here, as the settings say.
Result<TargetInfo> target_of_this_machine();

// What the backend makes of an op, by its table rows: "decomposed", "view" (index arithmetic), "lowered" (own kernels),
// "extern" (PyTorch's own op). A row may leave some arguments to PyTorch.
const char* treatment_of(std::string_view op);

}  // namespace framejit::inductor
