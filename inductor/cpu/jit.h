// inductor/cpu/jit.h — kernel IR becomes machine code of this CPU, in this process, through LLVM ORC.
//
// If LLVM refuses something, that is an Error. This header hides LLVM.
#pragma once

#include <cstdint>
#include <memory>

#include "inductor/kernel/target.h"

namespace framejit::inductor {

class CpuJit : public KernelTarget {
 public:
  static Result<std::unique_ptr<CpuJit>> create(VectorLevel level = VectorLevel::kHost);
  virtual int lanes() const = 0;  // of float32
  // Generates and drops a function that returns a number, with these target features. Tests what code generation
  // refuses.
  virtual Result<void> try_features(const std::string& features) = 0;
};

// Whether this CPU can run code of that level.
bool is_available(VectorLevel level);

}  // namespace framejit::inductor
