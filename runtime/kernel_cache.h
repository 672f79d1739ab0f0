// runtime/kernel_cache.h — compiled kernels that outlive the process: two files in a folder that the user names.
//
// A kernel is stored under its id, which covers its target, the compiler and its text, so a cached kernel is always the
// code that compiling would make. Records are appended to the file `kernels.new`. When it holds half of what the cache
// may hold, it replaces `kernels.old`. A kernel that is found in the old file is written to the new one again, so
// kernels that nobody has used for two such periods disappear. Files are only ever appended to, and never shrink: other
// processes may have them mapped.
//
// Every record has a checksum. A damaged, truncated or foreign record is not found: it costs a compile, but never gives
// a wrong kernel.
// Thread-safe; any number of processes may share a folder. A full disk or a deleted folder is not an error: nothing is
// stored or found, and one line of the log says why.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/base/result.h"
#include "runtime/kernel_code.h"

namespace framejit::runtime {

class KernelCache {
 public:
  // A missing folder is created. Refused: one that others can write to, one of another user, a link, a file.
  static Result<std::unique_ptr<KernelCache>> open(const std::string& folder, int64_t most_bytes);
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;

  // The code of the kernel with this id, target and text; null: not there.
  std::shared_ptr<const KernelCode> find(const KernelId& id, const std::string& target, const std::string& text);
  void store(const KernelCode& code);

  struct Statistics {
    uint64_t hits = 0, misses = 0, stored = 0;
  };
  Statistics statistics() const { return {hits_, misses_, stored_}; }
  const std::string& folder() const { return folder_; }

 private:
  class File;
  KernelCache(std::string folder, int64_t most_bytes);
  bool append(const KernelCode& code, std::string& failure);
  void say(const std::string& failure);

  const std::string folder_;
  const int64_t most_bytes_;
  std::mutex mutex_;
  std::unique_ptr<File> young_, old_;
  std::atomic<bool> has_said_ = false;
  std::atomic<uint64_t> hits_ = 0, misses_ = 0, stored_ = 0;
};

// The cache of this process; null: there is none, and no file is written.
std::shared_ptr<KernelCache> kernel_cache();
void set_kernel_cache(std::shared_ptr<KernelCache> cache);

}  // namespace framejit::runtime
