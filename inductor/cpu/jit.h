// inductor/cpu/jit.h — kernel IR becomes machine code of this CPU, in this process, through LLVM ORC.
//
// In: kernels.  Out: functions of the one kernel ABI and what keeps their code alive. Identical kernels (equal text) are compiled
// once. What LLVM refuses is an Error. Thread-safe; LLVM stays behind this header.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "inductor/kernel/kernel_ir.h"
#include "runtime/abi.h"

namespace framejit::inductor {

// Vector registers that code may use. kHost: the widest that this CPU has.
enum class VectorLevel : uint8_t { kHost, kAvx512, kAvx2, k128 };

struct CompiledKernel {
  FjKernelFn function = nullptr;
  std::shared_ptr<void> code;
};

struct CpuJitStatistics {
  int64_t kernels = 0, reused = 0;
  double seconds = 0;  // emission and code generation, without reused kernels
};

class CpuJit {
 public:
  static Result<std::unique_ptr<CpuJit>> create(VectorLevel level = VectorLevel::kHost);
  virtual ~CpuJit() = default;
  virtual Result<CompiledKernel> compile(const Kernel& kernel) = 0;
  // LLVM IR of a kernel as it goes into code generation.
  virtual Result<std::string> llvm_text(const Kernel& kernel) = 0;
  virtual CpuJitStatistics statistics() const = 0;
  virtual int lanes() const = 0;  // of float32
};

// Whether this CPU can run code of that level.
bool is_available(VectorLevel level);

}  // namespace framejit::inductor
