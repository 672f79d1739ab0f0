// inductor/cpu/orc_jit.cpp — CpuJit through LLVM ORC: features of this CPU, code generation without IR passes, code
// lifetime.
//
// CPU names are chosen by features, never by LLVM's guess from the model number (it mistakes a Sapphire Rapids for a
// Rocket Lake).
// Compiling makes an object file; loading links it into this process. The caches hold weak references, so both live
// only as long as an executable holds them.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <sys/mman.h>

#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectTransformLayer.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/DiagnosticHandler.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include "inductor/cpu/code_names.h"
#include "inductor/cpu/code_target.h"
#include "inductor/cpu/jit.h"
#include "inductor/cpu/plan/nest_plan.h"
#include "inductor/cpu/vector_math.h"
#include "inductor/kernel/kept_kernels.h"
#include "inductor/kernel/weak_cache.h"

namespace framejit::inductor {
namespace {

bool host_has(const char* feature) {
  static const auto features = llvm::sys::getHostCPUFeatures();
  const auto at = features.find(feature);
  return at != features.end() && at->second;
}

VectorLevel host_level() {
  if (host_has("avx512f") && host_has("avx512bw") && host_has("avx512dq") && host_has("avx512vl"))
    return VectorLevel::kAvx512;
  if (host_has("avx2") && host_has("fma") && host_has("f16c")) return VectorLevel::kAvx2;
  return VectorLevel::k128;
}

Error llvm_error(llvm::Error error) { return {Reason::code_generation, llvm::toString(std::move(error))}; }

// The settings of code generation that LLJIT's linker uses, set here so that the printed assembly is that of the code
// that runs.
llvm::orc::JITTargetMachineBuilder with_models(llvm::orc::JITTargetMachineBuilder target) {
  target.setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
  target.setRelocationModel(llvm::Reloc::PIC_);
  target.setCodeModel(llvm::CodeModel::Small);
  return target;
}

Result<llvm::orc::JITTargetMachineBuilder> make_target(VectorLevel level, bool is_host) {
  auto host = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (!host) return llvm_error(host.takeError());
  if (!host->getTargetTriple().isX86()) return with_models(std::move(*host));
  if (is_host && level == VectorLevel::kAvx512) {
    host->setCPU(host_has("amx-bf16") ? "sapphirerapids" : "icelake-server");
    // With the host's own feature list, so that the name promises nothing that the CPU lacks.
    return with_models(std::move(*host));
  }
  llvm::orc::JITTargetMachineBuilder plain(host->getTargetTriple());
  plain.setCPU(cpu_of(level));
  return with_models(std::move(plain));
}

// LLVM ends the process if an allocation fails, so code generation starts only if this much address space is left.
constexpr size_t kRoom = size_t{64} << 20;

Result<void> has_room() {
  void* const room = mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return Error{Reason::no_memory, "code generation"};
  munmap(room, kRoom);
  return {};
}

// Collects what LLVM reports while it generates the code of a module. Its default handler prints, and ends the process
// on an error.
class Reports final : public llvm::DiagnosticHandler {
 public:
  explicit Reports(std::string& errors) : errors_(errors) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error) return true;
    llvm::raw_string_ostream stream(errors_);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    if (!errors_.empty()) stream << "; ";
    info.print(printer);
    return true;
  }

 private:
  std::string& errors_;
};

thread_local std::string t_session_error;  // ORC's report: the error of a failed look-up names only the symbol

// Code generation for threads that compile at the same time: each takes a target machine while it compiles one module.
class PooledCompiler {
 public:
  explicit PooledCompiler(llvm::orc::JITTargetMachineBuilder builder) : builder_(std::move(builder)) {}

  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> operator()(llvm::Module& module) {
    auto machine = take();
    if (!machine) return machine.takeError();
    const WorkName work(module.getModuleIdentifier());
    std::string errors;
    module.getContext().setDiagnosticHandler(std::make_unique<Reports>(errors));
    auto object = llvm::orc::SimpleCompiler(**machine)(module);
    module.getContext().setDiagnosticHandler(std::make_unique<llvm::DiagnosticHandler>());
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(*machine));
    if (errors.empty() || !object) return object;
    return llvm::createStringError(errors);
  }

 private:
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return builder_.createTargetMachine();
    auto machine = std::move(idle_.back());
    idle_.pop_back();
    return machine;
  }

  std::mutex mutex_;
  llvm::orc::JITTargetMachineBuilder builder_;
  std::vector<std::unique_ptr<llvm::TargetMachine>> idle_;
};

// The lengths of functions, read from the objects before they are linked.
class FunctionSizes {
 public:
  llvm::Error note(llvm::MemoryBufferRef buffer) {
    auto object = llvm::object::ObjectFile::createObjectFile(buffer);
    if (!object) return object.takeError();
    const auto* elf = llvm::dyn_cast<llvm::object::ELFObjectFileBase>(object->get());
    if (elf == nullptr) return llvm::createStringError("not an ELF object");
    const std::lock_guard lock(mutex_);
    for (const llvm::object::ELFSymbolRef symbol : elf->symbols()) {
      if (symbol.getELFType() != llvm::ELF::STT_FUNC) continue;
      auto name = symbol.getName();
      if (!name) return name.takeError();
      sizes_[name->str()] = symbol.getSize();
    }
    return llvm::Error::success();
  }
  size_t take(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.extract(name);
    return found.empty() ? 0 : found.mapped();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, size_t> sizes_;
};

struct Session {
  explicit Session(llvm::orc::JITTargetMachineBuilder builder)
      : target(std::move(builder)), compiler(std::make_unique<PooledCompiler>(target)) {}

  llvm::orc::JITTargetMachineBuilder target;
  std::unique_ptr<FunctionSizes> sizes;  // if names are wanted. Declared before the JIT, which writes to it
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::unique_ptr<PooledCompiler> compiler;
  std::mutex mutex;
  std::condition_variable removed;
  std::unordered_set<std::string> defined;  // symbols of kernels that are linked, or are about to be
};

// Frees the machine code when the last executable that uses it dies. Holds the session: code may outlive the backend.
struct CodeHolder {
  std::shared_ptr<Session> session;
  std::string symbol;
  std::shared_ptr<const runtime::KernelCode> code;
  llvm::orc::ResourceTrackerSP tracker;
  FjKernelFn function = nullptr;
  std::shared_ptr<void> announced;
  ~CodeHolder() {
    announced.reset();
    if (tracker) llvm::consumeError(tracker->remove());
    const std::lock_guard lock(session->mutex);
    session->defined.erase(symbol);
    session->removed.notify_all();
  }
};

std::string symbol_of(const runtime::KernelId& id) { return "fj_" + id.text(); }

// Everything that machine code depends on besides the kernel's text.
std::string description_of(const Session& session, const EmitOptions& options) {
  const llvm::orc::JITTargetMachineBuilder& target = session.target;
  return "cpu " + target.getTargetTriple().str() + " " + target.getCPU() + " " + target.getFeatures().getString() +
         " lanes " + std::to_string(options.target.registers.lanes) + " bits " +
         std::to_string(options.target.registers.width_bits) + " registers " +
         std::to_string(options.target.registers.count) + (options.keep_frame_pointer ? " frames" : "") + " " +
         text_of(options.target) + " LLVM " + LLVM_VERSION_STRING + " build " + inductor_build();
}

class OrcJit : public CpuJit {
 public:
  OrcJit(std::shared_ptr<Session> session, const TargetInfo& target) : session_(std::move(session)), options_(target) {
    options_.keep_frame_pointer = session_->sizes != nullptr;
    description_ = description_of(*session_, options_);
  }

  const TargetInfo& info() const override { return options_.target; }

  Result<CompiledKernel> compile(const Kernel& kernel) override {
    std::string text = print(kernel);
    const runtime::KernelId id = runtime::content_id(description_, text);
    {
      const std::lock_guard lock(mutex_);
      if (auto known = cache_.find(id)) {
        ++statistics_.reused;
        return CompiledKernel{std::move(known), kernel.extent, kernel.grain};
      }
    }
    const auto start = std::chrono::steady_clock::now();
    FJ_TRY(auto code, kept_or_built(id, description_, text, [&]() -> Result<std::shared_ptr<runtime::KernelCode>> {
             auto built = std::make_shared<runtime::KernelCode>();
             FJ_TRY(built->object, build(kernel, symbol_of(id)));
             built->name = kernel.name;
             return built;
           }));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::lock_guard lock(mutex_);
    cache_.insert(id, code);
    ++statistics_.kernels;
    statistics_.seconds += seconds;
    return CompiledKernel{std::move(code), kernel.extent, kernel.grain};
  }

  Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>& code,
                                     runtime::DeviceId) override {
    if (code->object.empty() || code->target != description_)
      return Error{Reason::other_target,
                   "kernel " + code->id.text() + " is for " + code->target + ", not for " + description_};
    const std::string symbol = symbol_of(code->id);
    {
      std::unique_lock lock(session_->mutex);
      for (;;) {
        if (auto known = loaded_.find(code->id)) return runtime::LoadedKernel{known->function, {}, known};
        if (session_->defined.insert(symbol).second) break;
        session_->removed.wait(lock);  // another thread is linking or removing it
      }
    }
    FJ_TRY(std::shared_ptr<CodeHolder> holder, link(code, symbol));
    const std::lock_guard lock(session_->mutex);
    loaded_.insert(code->id, holder);
    session_->removed.notify_all();
    return runtime::LoadedKernel{holder->function, {}, holder};
  }

  // The plan, and the LLVM IR that goes into code generation.
  Result<std::vector<KernelText>> texts(const Kernel& kernel, bool with_assembly) override {
    llvm::LLVMContext context;
    FJ_TRY(auto module, emit(kernel, "kernel", context));
    std::vector<KernelText> texts{{"plan", "#", print(plan_kernel(kernel, info()), kernel, info())}, {"llvm", ";", ""}};
    llvm::raw_string_ostream stream(texts.back().text);
    module->print(stream, nullptr);
    if (with_assembly) {
      llvm::orc::JITTargetMachineBuilder builder = session_->target;
      auto machine = builder.createTargetMachine();
      if (!machine) return llvm_error(machine.takeError());
      FJ_TRY(std::string assembly, assembly_of(*module, **machine));
      texts.push_back({"assembly", "#", std::move(assembly)});
    }
    return texts;
  }

  Result<void> try_features(const std::string& features) override {
    const std::string name = "fj_number_" + std::to_string(next_number_.fetch_add(1));
    llvm::LLVMContext context;
    auto module = std::make_unique<llvm::Module>(name, context);
    module->setDataLayout(session_->jit->getDataLayout());
    module->setTargetTriple(session_->jit->getTargetTriple());
    auto* number = llvm::Type::getDoubleTy(context);
    auto* function =
        llvm::Function::Create(llvm::FunctionType::get(number, false), llvm::Function::ExternalLinkage, name, *module);
    function->addFnAttr("target-features", features);
    llvm::IRBuilder<>(llvm::BasicBlock::Create(context, "", function)).CreateRet(llvm::ConstantFP::get(number, 1));
    FJ_TRY(const std::string object, object_of(*module));
    return {};
  }

  TargetStatistics statistics() const override {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }
  int64_t most_compiling_threads() const override { return info().cores; }
  int lanes() const override { return static_cast<int>(options_.target.registers.lanes); }

 private:
  Result<std::unique_ptr<llvm::Module>> emit(const Kernel& kernel, const std::string& name,
                                             llvm::LLVMContext& context) const {
    return make_module(kernel, name, context, session_->jit->getTargetTriple(), session_->jit->getDataLayout(),
                       options_);
  }

  Result<std::string> build(const Kernel& kernel, const std::string& symbol) {
    FJ_TRY_VOID(has_room());
    llvm::LLVMContext context;
    FJ_TRY(auto module, emit(kernel, symbol, context));
    module->setModuleIdentifier(kernel.name.empty() ? symbol : kernel.name);
    return object_of(*module);
  }

  Result<std::string> object_of(llvm::Module& module) {
    auto object = (*session_->compiler)(module);
    if (!object) return llvm_error(object.takeError());
    return (*object)->getBuffer().str();
  }

  // The caller has added `symbol` to the set of defined symbols; the holder removes it.
  Result<std::shared_ptr<CodeHolder>> link(const std::shared_ptr<const runtime::KernelCode>& code,
                                           const std::string& symbol) {
    auto holder = std::make_shared<CodeHolder>();
    holder->session = session_;
    holder->symbol = symbol;
    holder->code = code;
    FJ_TRY_VOID(has_room());
    holder->tracker = session_->jit->getMainJITDylib().createResourceTracker();
    auto object = llvm::MemoryBuffer::getMemBuffer(code->object, symbol, /*RequiresNullTerminator=*/false);
    if (auto error = session_->jit->addObjectFile(holder->tracker, std::move(object)))
      return llvm_error(std::move(error));
    t_session_error.clear();
    auto address = session_->jit->lookup(symbol);
    if (!address) {
      const Error error = llvm_error(address.takeError());
      return t_session_error.empty() ? error : Error{Reason::code_generation, t_session_error};
    }
    holder->function = address->toPtr<FjKernelFn>();
    if (!session_->sizes) return holder;
    const std::string name =
        "fj_kernel_" + std::to_string(next_number_.fetch_add(1)) + (code->name.empty() ? "" : "_") + code->name;
    holder->announced = announce({name, address->toPtr<const void*>(), session_->sizes->take(symbol)});
    return holder;
  }

  std::shared_ptr<Session> session_;
  EmitOptions options_;
  std::string description_;
  mutable std::mutex mutex_;
  WeakCache<const runtime::KernelCode> cache_;
  WeakCache<CodeHolder> loaded_;  // guarded by the session's mutex
  TargetStatistics statistics_;
  std::atomic<uint64_t> next_number_{0};
};

void note_sizes(Session& session) {
  session.sizes = std::make_unique<FunctionSizes>();
  session.jit->getObjTransformLayer().setTransform([&sizes = *session.sizes](std::unique_ptr<llvm::MemoryBuffer> object)
                                                       -> llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> {
    if (auto error = sizes.note(*object)) return error;
    return object;
  });
}

llvm::Error define_math(llvm::orc::LLJIT& jit) {
  llvm::orc::SymbolMap symbols;
  for (const MathSymbol& s : math_symbols())
    symbols[jit.mangleAndIntern(s.name)] = {llvm::orc::ExecutorAddr::fromPtr(s.address),
                                            llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  return jit.getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols)));
}

}  // namespace

bool is_available(VectorLevel level) {
  return level == VectorLevel::kHost || level == VectorLevel::k128 ||
         static_cast<int>(level) >= static_cast<int>(host_level());
}

Result<std::unique_ptr<CpuJit>> CpuJit::create(VectorLevel level) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    prepare_code_generation();
  });
  FJ_TRY_VOID(has_room());
  if (!is_available(level))
    return Error{Reason::no_target,
        "this CPU lacks the requested vector registers; FRAMEJIT_CPU_FEATURES=auto uses the ones that it has"};
  const bool is_host = level == VectorLevel::kHost;
  if (is_host) level = host_level();
  FJ_TRY(auto target, make_target(level, is_host));
  auto jit = llvm::orc::LLJITBuilder()
                 .setJITTargetMachineBuilder(target)
                 .create();
  if (!jit) return llvm_error(jit.takeError());
  auto session = std::make_shared<Session>(std::move(target));
  session->jit = std::move(*jit);
  session->jit->getExecutionSession().setErrorReporter(
      [](llvm::Error error) { t_session_error = llvm::toString(std::move(error)); });
  if (code_names_are_wanted()) note_sizes(*session);
  if (auto error = define_math(*session->jit)) return llvm_error(std::move(error));
  return std::unique_ptr<CpuJit>(std::make_unique<OrcJit>(std::move(session), cpu_target(this_machine(), level)));
}

}  // namespace framejit::inductor
