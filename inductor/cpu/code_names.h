// inductor/cpu/code_names.h — names for machine code that perf and gdb show, if FRAMEJIT_PERF or FRAMEJIT_GDB ask for
// them.
//
// perf: a function is a record of jit-<pid>.dump in FRAMEJIT_DUMP_DIR, or in the current folder; `perf inject --jit`
// reads it. A record stays after its code is gone: records have timestamps.
// gdb: a function is an ELF object in memory, registered with gdb as long as its code lives.
// Thread-safe. A child of fork() writes its own file, for the code that it compiles itself.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace framejit::inductor {

bool code_names_are_wanted();

struct NamedCode {
  std::string name;
  const void* begin = nullptr;
  size_t bytes = 0;
};
// Announces the code to the profilers and debuggers that were asked for. The code must already exist. gdb learns that
// it is gone when the last copy of the result dies.
std::shared_ptr<void> announce(const NamedCode& code);

}  // namespace framejit::inductor
