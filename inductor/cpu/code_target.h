// inductor/cpu/code_target.h — kernels as modules and as assembly text, for CPUs that need not be this one.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "inductor/cpu/emitter.h"
#include "inductor/cpu/jit.h"

namespace llvm {
class DataLayout;
class LLVMContext;
class TargetMachine;
class Triple;
}  // namespace llvm

namespace framejit::inductor {

// The x86 CPU, in LLVM's words, that has what a level promises and nothing else.
const char* cpu_of(VectorLevel level);

// Before LLVM is used. Its fatal errors are explained (WorkName), and passes of code generation that take time and win
// nothing here are left out: addresses are emitted with what a loop changes in them apart (LSR), and instructions in
// the order in which they are emitted need fewer registers than in that of LLVM's scheduler.
void prepare_code_generation();

// What this thread compiles, while it lives: LLVM ends the process where it cannot select an instruction, and says then
// what it was and what to set.
class WorkName {
 public:
  explicit WorkName(std::string_view name);
  ~WorkName();
  WorkName(const WorkName&) = delete;
  WorkName& operator=(const WorkName&) = delete;

 private:
  const std::string name_;
};

// A module with the kernel as function `name`. It is verified: a defect of the emitter is an Error and not a crash
// inside LLVM.
Result<std::unique_ptr<llvm::Module>> make_module(const Kernel& kernel, const std::string& name,
                                                  llvm::LLVMContext& context, const llvm::Triple& triple,
                                                  const llvm::DataLayout& layout, const EmitOptions& options);

Result<std::string> assembly_of(llvm::Module& module, llvm::TargetMachine& machine);

// A CPU in LLVM's words, whose target the caller has initialised.
struct CodeTarget {
  std::string triple, cpu, features;
  EmitOptions options;
};
Result<std::string> assembly_of(const Kernel& kernel, const CodeTarget& target);

}  // namespace framejit::inductor
