// inductor/cpu/code_names.h — machine code under a name that perf and gdb show, where FRAMEJIT_PERF or FRAMEJIT_GDB ask
// for it.
//
// perf: a function is a record of jit-<pid>.dump in FRAMEJIT_DUMP_DIR, or in the current folder; `perf inject --jit`
// reads it. It stays there when the code is gone: records carry the time.  gdb: a function is an ELF object in memory,
// which gdb is told of, for as long as its code lives.  Thread-safe. A child of fork() writes a file of its own, of
// what it compiles itself.
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
// Tells those who asked. The code must be there already. gdb is told that it is gone when the last copy of the result
// dies.
std::shared_ptr<void> announce(const NamedCode& code);

}  // namespace framejit::inductor
