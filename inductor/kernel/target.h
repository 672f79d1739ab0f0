// inductor/kernel/target.h — turns kernel IR into code: the interface between assembling a plan and the emitters.
//
// In: kernels.  Out: code as data (runtime/kernel_code.h), which the target also loads into this process. Identical
// kernels (equal text) are compiled once. If a target cannot compile a kernel, that is an Error. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "inductor/kernel/kernel_ir.h"
#include "inductor/target/target_info.h"
#include "runtime/kernel_code.h"

namespace framejit::inductor {

struct CompiledKernel {
  std::shared_ptr<const runtime::KernelCode> code;
  SymExpr extent = 1;  // of the range for which the function is called
  int64_t grain = 0;   // least part of it per thread; 0 or less: called once, for all of it
};

struct TargetStatistics {
  int64_t kernels = 0, reused = 0;
  double seconds = 0;  // for emission and code generation, not counting reused kernels
};

// A kernel in one of the target's languages, for people.
struct KernelText {
  std::string form;     // "llvm", "assembly", "hip"
  std::string comment;  // how a comment begins in that language
  std::string text;
};

class KernelTarget : public runtime::KernelLoader {
 public:
  virtual const TargetInfo& info() const = 0;
  virtual Result<CompiledKernel> compile(const Kernel& kernel) = 0;
  virtual Result<std::vector<KernelText>> texts(const Kernel& kernel, bool with_assembly) = 0;
  virtual TargetStatistics statistics() const = 0;
  // How many threads, at most, should call compile() at a time. 1: compile() depends on the calling thread.
  virtual int64_t most_compiling_threads() const { return 1; }
};

}  // namespace framejit::inductor
