// runtime/write_watch.h — whether anybody wrote to memory: the program, a system call, another thread, by any alias.
//
// The system write-protects pages and lifts the protection by itself at the first write to each; one call asks whether
// a range is still protected as a whole (runtime/protected_pages.h; Linux 6.7). Nobody is stopped, no signal is used.
//
// The order is: arm, read the source, ask. Every write after arming is seen, also one while the source is read. A write
// between the question and the use of a derived value is a race in the program itself.
// The answer is also "written" if nothing is known: memory that was unmapped, moved or mapped anew, pages that were
// dropped, a forked child, a call that failed. Ranges are rounded outwards to pages: writes next to them count too.
//
// Not seen: writes of a device into pages that were pinned for it before they were armed (cudaHostRegister, RDMA,
// registered buffers of io_uring). So pinned memory must not be watched.
//
// Thread-safe. A forked child starts without watches: all handles say "written" until the child arms them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "runtime/protected_pages.h"

namespace framejit::runtime {

class WriteWatch {
 public:
  static WriteWatch& instance();
  WriteWatch(const WriteWatch&) = delete;

  // Why nothing can be watched in this process, and what to do; empty: memory can be watched.
  const std::string& unavailable();

  enum class NotWatched : uint8_t {
    kNone,
    kUnavailable,  // nothing can be watched here
    kShared,  // shared memory: what other processes write is not seen
    kNoMemory,  // pages of a file of which no private copies could be made
    kFailed,  // not mapped, watched by somebody else, or the system refused
  };
  // A range under watch. It has one owner, who arms it: for a second value that is derived from the same memory, watch
  // the memory again. Arming by one owner never hides a write from another.
  struct Watched;
  using Handle = std::shared_ptr<Watched>;  // the last one ends the watch
  struct Answer {
    Handle handle;  // null: refused
    NotWatched reason = NotWatched::kNone;
    std::string why;
  };

  // Watches and arms the pages of [begin, begin + bytes). `before` and `after`: bytes next to it that belong to the
  // caller, on pages that are not watched; with them, neighbours can be asked about in one call. Pages of private file
  // mappings become copies of this process first, which takes their size in memory. Questions about them look at each
  // page, which is slower (benchmarks/results/decisions.md).
  Answer watch(const void* begin, size_t bytes, size_t before = 0, size_t after = 0);
  // Arms it again, before its memory is read again. False: it can no longer be watched, and stays "written".
  bool arm(const Handle& handle);
  // Whether anybody wrote to one of them since it was armed.
  bool written(const std::vector<Handle>& handles);
  uint64_t bytes_made_anonymous() const { return bytes_made_anonymous_; }

  // The same question, asked often: ranges whose pages touch, including the bytes next to them, are one call. Keeps its
  // handles.
  class Question {
   public:
    Question() = default;  // about nothing: not written
    explicit Question(std::vector<Handle> handles);
    bool written() const;  // allocates nothing
    size_t calls() const { return joined_.size(); }

   private:
    struct Joined {
      PageRange pages, reach;
      size_t first, count;  // of the ranges that it consists of
      std::vector<PageRange> gaps;  // between them: pages that nobody asks about
    };
    void join(const PageRange& pages, const PageRange& reach);

    std::vector<Handle> handles_;
    std::vector<PageRange> ranges_;
    std::vector<Joined> joined_;
  };

 private:
  struct Refused {
    NotWatched reason = NotWatched::kNone;
    std::string why;
    explicit operator bool() const { return reason != NotWatched::kNone; }
  };
  WriteWatch();
  void open_locked();
  static Refused kind_of(PageRange& pages);
  Refused prepare(PageRange& pages);
  Refused protect(Watched& watched);
  Refused arm(Watched& watched);
  void end(Watched* watched);

  std::shared_mutex* mutex_;  // shared: to ask
  ProtectedPages pages_;
  std::string unavailable_;
  std::vector<Watched*> watched_;
  std::atomic<uint64_t> bytes_made_anonymous_ = 0;
};

}  // namespace framejit::runtime
