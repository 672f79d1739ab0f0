// tests/unit/runtime/watched_memory.h — memory that the tests of the write watch map, write and lose.
#pragma once

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "runtime/write_watch.h"
#include "tests/unit/not_tested.h"

namespace framejit::runtime::testing {

inline const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// Memory aligned to `alignment`, with a page that cannot be touched at either end. Unmaps what is left of it.
class Memory {
 public:
  explicit Memory(size_t bytes, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1, int can = PROT_READ | PROT_WRITE,
                  size_t alignment = kPage)
      : bytes_(bytes), mapped_bytes_(bytes + alignment + 2 * kPage) {
    mapped_ = static_cast<char*>(mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    const auto first = reinterpret_cast<uintptr_t>(mapped_) + kPage;
    data_ = reinterpret_cast<char*>((first + alignment - 1) & ~(alignment - 1));
    if (mmap(data_, bytes, can, flags | MAP_FIXED, fd, 0) == MAP_FAILED) ADD_FAILURE() << std::strerror(errno);
  }
  ~Memory() { munmap(mapped_, mapped_bytes_); }
  Memory(const Memory&) = delete;

  char* at(size_t page) const { return data_ + page * kPage; }
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  void fill(char value) const { std::memset(data_, value, bytes_); }

 private:
  size_t bytes_, mapped_bytes_;
  char *mapped_, *data_;
};

// A file without a name.
class File {
 public:
  explicit File(size_t bytes, char value = 'f') {
    std::string path = ::testing::TempDir() + "framejit-watch-XXXXXX";
    fd_ = mkstemp(path.data());
    unlink(path.c_str());
    fill(bytes, value);
  }
  ~File() { close(fd_); }
  File(const File&) = delete;
  int fd() const { return fd_; }
  void fill(size_t bytes, char value) const {
    const std::string text(bytes, value);
    EXPECT_EQ(pwrite(fd_, text.data(), bytes, 0), static_cast<ssize_t>(bytes));
  }

 private:
  int fd_;
};

class WriteWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string& why = watch_.unavailable(); !why.empty()) FJ_NOT_TESTED_HERE("the write watch - " + why);
  }
  WriteWatch::Handle watch(const void* begin, size_t bytes) {
    WriteWatch::Answer answer = watch_.watch(begin, bytes);
    EXPECT_TRUE(answer.handle) << answer.why;
    return answer.handle;
  }
  WriteWatch::Handle watch(const Memory& memory) { return watch(memory.data(), memory.bytes()); }
  bool written(const WriteWatch::Handle& handle) { return watch_.written({handle}); }
  WriteWatch::NotWatched not_watched(const void* begin, size_t bytes) {
    const WriteWatch::Answer answer = watch_.watch(begin, bytes);
    EXPECT_EQ(answer.handle == nullptr, answer.reason != WriteWatch::NotWatched::kNone);
    EXPECT_EQ(answer.handle == nullptr, !answer.why.empty()) << answer.why;
    return answer.reason;
  }

  WriteWatch& watch_ = WriteWatch::instance();
};

}  // namespace framejit::runtime::testing
