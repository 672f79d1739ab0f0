// inductor/cpu/code_names.cpp — perf's jitdump format, version 1, and gdb's JIT interface, version 1.
//
// Both are small enough to write here. LLVM's own writers need debug information (jitdump), take the folder from their
// own variable, and never tell gdb that code is gone.
#include "inductor/cpu/code_names.h"

#include <elf.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include <llvm/ExecutionEngine/Orc/TargetProcess/JITLoaderGDB.h>

#include "runtime/base/config.h"
#include "runtime/base/log.h"
#include "runtime/base/own_file.h"

// The two symbols that gdb looks up by name. Protected: gdb sees them, and no other copy in the process replaces them.
// LLVM has its own two in an archive member, which would hide these. That member is linked for the third symbol, so the
// third symbol is defined here too. Only LLVM's plugin for gdb would call it, and nobody installs that.
extern "C" {
__attribute__((visibility("protected"), used)) jit_descriptor __jit_debug_descriptor = {1, JIT_NOACTION, nullptr,
                                                                                        nullptr};
__attribute__((visibility("protected"), used, noinline)) void __jit_debug_register_code() {
  asm volatile("" ::: "memory");
}
llvm::orc::shared::CWrapperFunctionBuffer llvm_orc_registerJITLoaderGDBAllocAction(const char*, size_t) {
  return llvm::orc::shared::WrapperFunctionBuffer::createOutOfBandError("framejit registers its code with gdb itself")
      .release();
}
}

namespace framejit::inductor {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_NONE;
#endif

template <class T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// --- perf ---

struct DumpHeader {
  uint32_t magic = 0x4A695444, version = 1, header_bytes = 40, machine = kMachine, padding = 0, pid = 0;
  uint64_t time = 0, flags = 0;
};
static_assert(sizeof(DumpHeader) == 40);

struct CodeLoadRecord {
  uint32_t id = 0, total_bytes = 0;
  uint64_t time = 0;
  uint32_t pid = 0, tid = 0;
  uint64_t address = 0, code_address = 0, code_bytes = 0, index = 0;
};
static_assert(sizeof(CodeLoadRecord) == 56);

uint64_t monotonic_nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class JitDump {
 public:
  void add(const NamedCode& code) {
    const std::lock_guard lock(mutex_);
    if (pid_ != getpid()) open_file();
    if (file_ < 0) return;
    CodeLoadRecord record;
    record.total_bytes = static_cast<uint32_t>(sizeof record + code.name.size() + 1 + code.bytes);
    record.time = monotonic_nanoseconds();
    record.pid = static_cast<uint32_t>(pid_);
    record.tid = static_cast<uint32_t>(syscall(SYS_gettid));
    record.address = record.code_address = reinterpret_cast<uint64_t>(code.begin);
    record.code_bytes = code.bytes;
    record.index = next_index_++;
    std::string bytes;
    append(bytes, record);
    bytes.append(code.name.c_str(), code.name.size() + 1);
    bytes.append(static_cast<const char*>(code.begin), code.bytes);
    write_all(bytes);
  }

 private:
  void open_file() {
    if (file_ >= 0) close(file_);  // the parent's file
    pid_ = getpid();
    next_index_ = 0;
    path_ = (config().dump_dir.empty() ? "." : config().dump_dir) + "/jit-" + std::to_string(pid_) + ".dump";
    file_ = open_own_file(path_);
    if (file_ < 0) return give_up();
    DumpHeader header;
    header.pid = static_cast<uint32_t>(pid_);
    header.time = monotonic_nanoseconds();
    std::string bytes;
    append(bytes, header);
    if (!write_all(bytes)) return;
    // perf finds the file through this mapping, because it records executable mappings. Never unmapped.
    if (mmap(nullptr, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_EXEC, MAP_PRIVATE, file_, 0) ==
        MAP_FAILED)
      give_up();
  }

  bool write_all(const std::string& bytes) {
    if (write_whole(file_, bytes)) return true;
    give_up();
    return false;
  }

  // For the rest of this process.
  void give_up() {
    const std::string reason = error_text(errno);
    if (file_ >= 0) close(file_);
    file_ = -1;
    log::emit(log::Kind::NotWritten, "", {{"path", path_}, {"reason", reason}, {"setting", "FRAMEJIT_DUMP_DIR"}});
  }

  std::mutex mutex_;
  int file_ = -1;
  pid_t pid_ = 0;
  uint64_t next_index_ = 0;
  std::string path_;
};

// --- gdb ---

// An object that says only where one function is: gdb reads the code from memory, and finds the caller by the frame
// pointer.
std::string elf_object(const NamedCode& code) {
  enum Section : uint16_t { kNone, kText, kSymbols, kStrings, kCount };
  static constexpr char kSectionNames[] = "\0.text\0.symtab\0.strtab";
  std::string strings(kSectionNames, sizeof kSectionNames);
  const auto name_at = static_cast<Elf64_Word>(strings.size());
  strings += code.name + '\0';
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_machine = kMachine;
  header.e_version = EV_CURRENT;
  header.e_shoff = sizeof header;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = kCount;
  header.e_shstrndx = kStrings;
  const size_t symbols_at = sizeof header + kCount * sizeof(Elf64_Shdr);
  Elf64_Sym symbols[2]{};
  symbols[1].st_name = name_at;
  symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
  symbols[1].st_shndx = kText;
  symbols[1].st_size = code.bytes;
  Elf64_Shdr sections[kCount]{};
  sections[kText] = {
      1, SHT_NOBITS, SHF_ALLOC | SHF_EXECINSTR, reinterpret_cast<uint64_t>(code.begin), symbols_at, code.bytes, 0, 0,
      1, 0};
  sections[kSymbols] = {7, SHT_SYMTAB, 0, 0, symbols_at, sizeof symbols, kStrings, 1, 8, sizeof(Elf64_Sym)};
  sections[kStrings] = {15, SHT_STRTAB, 0, 0, symbols_at + sizeof symbols, strings.size(), 0, 0, 1, 0};
  std::string object;
  append(object, header);
  append(object, sections);
  append(object, symbols);
  return object + strings;
}

// An entry of gdb's list. gdb stops in __jit_debug_register_code and reads the descriptor.
class DebugObject {
 public:
  explicit DebugObject(const NamedCode& code) : object_(elf_object(code)) {
    entry_.symfile_addr = object_.data();
    entry_.symfile_size = object_.size();
    const std::lock_guard lock(list_mutex());
    entry_.next_entry = __jit_debug_descriptor.first_entry;
    if (entry_.next_entry != nullptr) entry_.next_entry->prev_entry = &entry_;
    __jit_debug_descriptor.first_entry = &entry_;
    tell(JIT_REGISTER_FN);
  }
  ~DebugObject() {
    const std::lock_guard lock(list_mutex());
    (entry_.prev_entry != nullptr ? entry_.prev_entry->next_entry : __jit_debug_descriptor.first_entry) =
        entry_.next_entry;
    if (entry_.next_entry != nullptr) entry_.next_entry->prev_entry = entry_.prev_entry;
    tell(JIT_UNREGISTER_FN);
  }
  DebugObject(const DebugObject&) = delete;
  DebugObject& operator=(const DebugObject&) = delete;

 private:
  static std::mutex& list_mutex() {
    static auto* mutex = new std::mutex;  // never destroyed: code may outlive static objects
    return *mutex;
  }
  void tell(jit_actions_t action) {
    __jit_debug_descriptor.relevant_entry = &entry_;
    __jit_debug_descriptor.action_flag = action;
    __jit_debug_register_code();
    __jit_debug_descriptor.action_flag = JIT_NOACTION;
    __jit_debug_descriptor.relevant_entry = nullptr;
  }

  const std::string object_;
  jit_code_entry entry_{};
};

}  // namespace

bool code_names_are_wanted() { return config().perf || config().gdb; }

std::shared_ptr<void> announce(const NamedCode& code) {
  static auto* dump = new JitDump;  // never destroyed: threads may compile during exit
  if (config().perf) dump->add(code);
  return config().gdb ? std::make_shared<DebugObject>(code) : nullptr;
}

}  // namespace framejit::inductor
