// inductor/cpu/code_target.h — kernels as modules and as assembly text, for this CPU or any other.
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

// The x86 CPU, in LLVM's terms, that has exactly what a level promises.
const char* cpu_of(VectorLevel level);

// Call it before LLVM is used. It makes LLVM's fatal errors explain themselves (WorkName). It also turns off two
// passes of code generation that take time and gain nothing here. Loop strength reduction: addresses are already
// emitted with the parts that a loop changes kept separate. The scheduler: in the order in which instructions are
// emitted, they need fewer registers than in its order.
void prepare_code_generation();

// What this thread is compiling, as long as the object lives. LLVM ends the process if it cannot select an instruction;
// then this name, and the setting that helps, are printed.
class WorkName {
 public:
  explicit WorkName(std::string_view name);
  ~WorkName();
  WorkName(const WorkName&) = delete;
  WorkName& operator=(const WorkName&) = delete;

 private:
  const std::string name_;
};

// A module with the kernel as function `name`. It is verified: a defect of the emitter is an Error, not a crash inside
// LLVM.
Result<std::unique_ptr<llvm::Module>> make_module(const Kernel& kernel, const std::string& name,
                                                  llvm::LLVMContext& context, const llvm::Triple& triple,
                                                  const llvm::DataLayout& layout, const EmitOptions& options);

Result<std::string> assembly_of(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace framejit::inductor
