// inductor/cpu/code_target.cpp — the vector levels in LLVM's terms; modules, target machines and text for each of them.
#include "inductor/cpu/code_target.h"

#include <mutex>
#include <utility>

#include <unistd.h>

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

namespace framejit::inductor {

const char* cpu_of(VectorLevel level) {
  if (level == VectorLevel::kAvx512) return "x86-64-v4";
  return level == VectorLevel::kAvx2 ? "x86-64-v3" : "x86-64-v2";
}

namespace {

thread_local const std::string* t_work = nullptr;

// After this returns, LLVM exits or aborts.
void say_last_words(void*, const char* reason, bool) {
  const std::string text = "framejit: LLVM cannot compile " + (t_work == nullptr ? "a kernel" : *t_work) +
                           ", which ends this process: " + reason +
                           "\nframejit: FRAMEJIT_CPU_FEATURES=generic (or avx2) uses other instructions; "
                           "backend=\"eager\" compiles no kernels. Please report this.\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

WorkName::WorkName(std::string_view name) : name_(name) { t_work = &name_; }
WorkName::~WorkName() { t_work = nullptr; }

void prepare_code_generation() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::install_fatal_error_handler(say_last_words);
    const auto& options = llvm::cl::getRegisteredOptions();
    for (const auto& [name, value] : {std::pair("disable-lsr", "true"), std::pair("enable-misched", "false")}) {
      const auto found = options.find(name);
      FJ_ASSERT(found != options.end() && !found->second->addOccurrence(0, name, value),
                std::string("LLVM has no option ") + name);
    }
  });
}

Result<std::unique_ptr<llvm::Module>> make_module(const Kernel& kernel, const std::string& name,
                                                  llvm::LLVMContext& context, const llvm::Triple& triple,
                                                  const llvm::DataLayout& layout, const EmitOptions& options) {
  auto module = std::make_unique<llvm::Module>(name, context);
  module->setDataLayout(layout);
  module->setTargetTriple(triple);
  emit_kernel(*module, kernel, name, options);
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(*module, &stream))
    return Error{Reason::code_generation, "emitted code does not verify: " + problem + "\n" + print(kernel)};
  return module;
}

Result<std::string> assembly_of(llvm::Module& module, llvm::TargetMachine& machine) {
  const WorkName work(module.getModuleIdentifier());
  llvm::SmallVector<char, 0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return Error{Reason::code_generation, "this target has no assembly printer"};
  passes.run(module);
  return std::string(text.begin(), text.end());
}

}  // namespace framejit::inductor
