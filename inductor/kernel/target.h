// inductor/kernel/target.h — what turns kernel IR into code: the seam between assembling a plan and the emitters.
//
// In: kernels.  Out: code as data (runtime/kernel_code.h), which the target also loads into this process. Identical
// kernels (equal text) are compiled once. What a target cannot compile is an Error. Thread-safe.
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
  SymExpr extent = 1;  // of the range that the function is called for
  int64_t grain = 0;   // least part of it for one thread; 0 or less: called once, for all of it
};

struct TargetStatistics {
  int64_t kernels = 0, reused = 0;
  double seconds = 0;  // emission and code generation, without reused kernels
};

// A kernel in one of the target's languages, for people.
struct KernelText {
  std::string form;     // "llvm", "assembly", "hip"
  std::string comment;  // how a comment begins there
  std::string text;
};

class KernelTarget : public runtime::KernelLoader {
 public:
  virtual const TargetInfo& info() const = 0;
  virtual Result<CompiledKernel> compile(const Kernel& kernel) = 0;
  virtual Result<std::vector<KernelText>> texts(const Kernel& kernel, bool with_assembly) = 0;
  virtual TargetStatistics statistics() const = 0;
  // Whether compile() needs nothing of the thread that calls it, so that it pays to call it from two.
  virtual bool compiles_on_any_thread() const { return false; }
};

}  // namespace framejit::inductor
