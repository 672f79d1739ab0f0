// tests/unit/inductor/guarded_memory.h — memory that ends at pages that must not be read or written: if machine code
// goes past a buffer, the process crashes at once and says why. No sanitizer sees what the kernels do.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace framejit::inductor::testing {

// Printed on the way to the crash: the line above it (gtest), or --gtest_brief=0, says which test it was.
inline void say_where_it_died(int signal) {
  constexpr char kSaid[] = "a kernel, or other code of ours, reached outside of its buffers (guarded_memory.h)\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kSaid, sizeof(kSaid) - 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// While one exists, the pages around blocks contain 0xCB too: kernels with a planted defect may reach there, and are
// recognised by their results.
class Unguarded {
 public:
  Unguarded() { ++count_; }
  ~Unguarded() { --count_; }
  Unguarded(const Unguarded&) = delete;
  Unguarded& operator=(const Unguarded&) = delete;
  static bool exists() { return count_ > 0; }

 private:
  static inline int count_ = 0;
};

// `bytes` of 0xCB, so that reads before writes show. The last byte, rounded up to `alignment`, lies before a page that
// cannot be touched. The first one comes after such a page and a part of another page, which is 0xCB too.
inline std::shared_ptr<char[]> guarded_block(int64_t bytes, int64_t alignment) {
  static const bool handled = std::signal(SIGSEGV, say_where_it_died) != SIG_ERR;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used = static_cast<size_t>((bytes + alignment - 1) / alignment * alignment),
               space = (used + page - 1) / page * page, all = space + 2 * page;
  void* const mapped =
      mmap(nullptr, all, Unguarded::exists() ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!handled || mapped == MAP_FAILED ||
      mprotect(static_cast<char*>(mapped) + page, space, PROT_READ | PROT_WRITE) != 0)
    throw std::runtime_error("no guarded memory");
  char* const first = static_cast<char*>(mapped) + page;
  if (Unguarded::exists()) std::memset(mapped, 0xCB, all);
  else std::memset(first, 0xCB, space);
  return {first + (space - used), [mapped, all](char*) { munmap(mapped, all); }};
}

// A copy that cannot be written.
inline std::shared_ptr<char[]> guarded_copy(const char* data, int64_t bytes) {
  std::shared_ptr<char[]> block = guarded_block(bytes, 1);
  if (bytes == 0) return block;
  std::memcpy(block.get(), data, static_cast<size_t>(bytes));
  if (Unguarded::exists()) return block;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(block.get()) / page * page;
  mprotect(reinterpret_cast<void*>(first),
           reinterpret_cast<uintptr_t>(block.get()) + static_cast<uintptr_t>(bytes) - first, PROT_READ);
  return block;
}

}  // namespace framejit::inductor::testing
